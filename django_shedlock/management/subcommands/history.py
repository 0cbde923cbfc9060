"""``manage.py shedlock history``."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.utils.text import Truncator

from django_shedlock.durations import format_measured
from django_shedlock.locks.states import RunOutcome
from django_shedlock.management.subcommands.base import (
    Subcommand,
    as_json,
    as_table,
    find_status,
    history_database,
    local,
    positive,
)
from django_shedlock.models import LockRun
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.database.connections import run_here

COLUMNS = ("STARTED", "NAME", "OUTCOME", "DURATION", "LOCKED BY", "EXCEPTION")
LONGEST_EXCEPTION = 100


class History(Subcommand):
    """Shows runs."""

    name = "history"
    help = "show the last runs, the newest first"

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """Add which runs, and how many of them."""
        parser.add_argument("name", nargs="?", help="only of this lock")
        parser.add_argument(
            "--outcome", choices=[outcome.value for outcome in RunOutcome]
        )
        parser.add_argument("--limit", type=positive, default=20, help="20 by default")
        parser.add_argument("--json", action="store_true", help="print JSON")

    def run(
        self, provider: LockProvider, *, name: str | None, json: bool, **options: Any
    ) -> None:
        """Print a table of runs, or JSON."""
        using = history_database(provider)
        runs = run_here(lambda: last_runs(provider, using, name, **options), using)
        if name is not None and options["outcome"] is None and not runs:
            find_status(provider, name)
        if json:
            self.stdout.write(as_json(map(_as_dict, runs)))
        elif runs:
            self.stdout.write(as_table(COLUMNS, [_row(run) for run in runs]))
        else:
            self.stdout.write("No runs yet.")


def last_runs(
    provider: LockProvider,
    using: str,
    name: str | None,
    *,
    outcome: str | None,
    limit: int,
    **options: Any,
) -> list[Any]:
    """Return the runs, the newest first, with their ``current_outcome``."""
    runs = LockRun.objects.using(using).filter(provider=provider.alias)
    if name is not None:
        runs = runs.filter(name=name)
    if outcome is not None:
        runs = runs.of_outcome(RunOutcome(outcome))
    return list(runs.with_outcome().order_by("-pk")[:limit])


def _as_dict(run: Any) -> dict[str, Any]:
    return {
        "name": run.name,
        "outcome": run.current_outcome,
        "started": run.started,
        "finished": run.finished,
        "duration": run.duration,
        "locked_by": run.locked_by,
        "host": run.host,
        "pid": run.pid,
        "fencing_token": run.fencing_token,
        "skips": run.skips,
        "exception_type": run.exception_type,
        "exception_message": run.exception_message,
    }


def _row(run: Any) -> tuple[str, ...]:
    exception = f"{run.exception_type}: {run.exception_message}"
    return (
        local(run.started),
        run.name,
        run.current_outcome,
        "-" if run.duration is None else format_measured(run.duration),
        run.locked_by,
        Truncator(exception).chars(LONGEST_EXCEPTION) if run.exception_type else "-",
    )
