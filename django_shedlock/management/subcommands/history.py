"""``manage.py shedlock history``."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from django_shedlock.durations import format_measured
from django_shedlock.management.subcommands.arguments import positive
from django_shedlock.management.subcommands.base import (
    Subcommand,
    find_status,
    history_database,
)
from django_shedlock.management.subcommands.tables import as_table, local
from django_shedlock.models import LockRun
from django_shedlock.outcomes import RunOutcome
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.statements import run

COLUMNS = ("STARTED", "NAME", "OUTCOME", "DURATION", "LOCKED BY", "EXCEPTION")
LONGEST_EXCEPTION = 100


class History(Subcommand):
    """Shows runs."""

    name = "history"
    help = "show the last runs, the newest first"

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """Which runs, and how many of them."""
        parser.add_argument("name", nargs="?", help="only of this lock")
        parser.add_argument(
            "--outcome", choices=[outcome.value for outcome in RunOutcome]
        )
        parser.add_argument(
            "--limit", type=positive, default=20, help="20 if not given"
        )
        parser.add_argument("--json", action="store_true", help="for programs")

    def run(
        self, provider: LockProvider, *, name: str | None, json: bool, **options: Any
    ) -> None:
        """Print a table of runs, or JSON."""
        using = history_database(provider)
        runs = run(lambda: last_runs(provider, using, name, **options), using)
        if name is not None and options["outcome"] is None and not runs:
            find_status(provider, name)
        self.stdout.write(as_json(runs) if json else _table(runs))


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


def as_json(runs: Sequence[Any]) -> str:
    """Return the runs as a JSON list; durations are seconds."""
    return json.dumps(
        [
            {
                "name": run.name,
                "outcome": run.current_outcome,
                "started": run.started.isoformat(),
                "finished": run.finished and run.finished.isoformat(),
                "duration": None
                if run.duration is None
                else run.duration.total_seconds(),
                "locked_by": run.locked_by,
                "host": run.host,
                "pid": run.pid,
                "fencing_token": run.fencing_token,
                "skips": run.skips,
                "exception_type": run.exception_type,
                "exception_message": run.exception_message,
            }
            for run in runs
        ],
        indent=2,
    )


def _table(runs: Sequence[Any]) -> str:
    return as_table(COLUMNS, [_row(run) for run in runs]) if runs else "No runs yet."


def _row(run: Any) -> tuple[str, ...]:
    return (
        local(run.started),
        run.name,
        run.current_outcome,
        "-" if run.duration is None else format_measured(run.duration),
        run.locked_by,
        _exception(run),
    )


def _exception(run: Any) -> str:
    if not run.exception_type:
        return "-"
    text = f"{run.exception_type}: {run.exception_message}"
    return (
        text if len(text) <= LONGEST_EXCEPTION else text[: LONGEST_EXCEPTION - 1] + "…"
    )
