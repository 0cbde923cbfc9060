"""``manage.py shedlock history``."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Any

from django.utils.text import Truncator

from django_shedlock.console.cli.base import (
    MOST_COUNTED,
    OUTCOME_ROLES,
    Subcommand,
    add_names,
    duration,
    find_status,
    history_database,
    instant,
    more,
    positive,
    write_json,
)
from django_shedlock.console.cli.terminal import Cell, Column, Terminal
from django_shedlock.durations import format_measured
from django_shedlock.locks.states import RunOutcome
from django_shedlock.models import LockRun, LockRunQuerySet
from django_shedlock.patterns import WILDCARD, matches, may_match
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.database.connections import run_here

COLUMNS = (
    Column("STARTED", 2, stays=True),
    Column("NAME", 0, least=30, stays=True),
    Column("OUTCOME", 1, stays=True),
    Column("DURATION", 4),
    Column("LOCKED BY", 5, least=14),
    Column("EXCEPTION", 3, least=24),
)
LONGEST_EXCEPTION = 100
LIMIT = 20
PAGE = 500
"""Runs that are read at once."""


class History(Subcommand):
    """Shows runs."""

    name = "history"
    help = "show the last runs, the newest first"

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """Add which runs, and how many of them."""
        add_names(parser)
        parser.add_argument(
            "--outcome", choices=[outcome.value for outcome in RunOutcome]
        )
        parser.add_argument(
            "--attention",
            action="store_true",
            help="only runs that failed, lost their lock, or were abandoned",
        )
        parser.add_argument(
            "--since",
            metavar="DURATION",
            type=duration,
            help="only runs that began no longer ago than this",
        )
        parser.add_argument(
            "--limit",
            type=positive,
            default=LIMIT,
            help=f"show no more runs; {LIMIT} by default",
        )
        parser.add_argument("--json", action="store_true", help="print JSON")

    def run(
        self,
        provider: LockProvider,
        *,
        name: list[str],
        limit: int,
        json: bool,
        **options: Any,
    ) -> None:
        """Print a table of runs, or JSON."""
        runs = wanted_runs(provider, **options)
        runs = runs if json else runs.defer("exception_traceback")
        shown = list(islice(iter_runs(runs, name, limit), limit))
        for each in set(name).difference(run.name for run in shown):
            _require(provider, runs, each)
        if json:
            write_json(self.stdout, map(run_as_dict, shown))
        elif shown:
            is_full = len(shown) == limit
            rest = _names_before(runs, name, shown[-1]) if is_full else iter(())
            table = runs_table(self.terminal, shown)
            self.terminal.write("\n".join([table, *more(rest)]))
        else:
            self.terminal.write(_nothing(name, **options))


def wanted_runs(
    provider: LockProvider,
    *,
    outcome: str | None = None,
    attention: bool = False,
    since: timedelta | None = None,
    **options: Any,
) -> LockRunQuerySet:
    """Return the runs with their ``current_outcome``."""
    all_runs = LockRun.objects.using(history_database(provider))
    runs = all_runs.filter(provider=provider.alias)
    if attention:
        runs = runs.bad()
    if outcome is not None:
        runs = runs.of_outcome(RunOutcome(outcome))
    if since is not None:
        runs = runs.since(since)
    return runs.with_outcome()


def iter_runs(
    runs: LockRunQuerySet, names: Sequence[str], expected: int
) -> Iterator[Any]:
    """Return the runs of these locks, the newest first; read a page at a time."""
    size = PAGE if any(map(WILDCARD.search, names)) else expected
    runs = runs.filter(may_match(names)).order_by("-pk")
    page, read = runs, list[Any]()
    while read := run_here(partial(list, page[:size]), runs.db):
        yield from (run for run in read if matches(run.name, names))
        if len(read) < size:
            return
        page = runs.filter(pk__lt=read[-1].pk)


def _names_before(
    runs: LockRunQuerySet, names: Sequence[str], last: LockRun
) -> Iterator[str]:
    older = runs.filter(may_match(names), pk__lt=last.pk).values_list("name", flat=True)
    read = run_here(lambda: list(older.order_by("-pk")[: MOST_COUNTED + 1]), runs.db)
    return (name for name in read if matches(name, names))


def runs_table(terminal: Terminal, runs: Sequence[Any], *, named: bool = True) -> str:
    """Return a table of runs, with the names of their locks or without."""
    shown = [n for n, each in enumerate(COLUMNS) if named or each.title != "NAME"]
    rows = [_row(run) for run in runs]
    return terminal.table(
        [COLUMNS[number] for number in shown],
        [[row[number] for number in shown] for row in rows],
    )


def _require(provider: LockProvider, runs: LockRunQuerySet, name: str) -> None:
    # A lock may have been pruned, or have no such run.
    if WILDCARD.search(name):
        return
    known = LockRun.objects.using(runs.db).of_lock(name, provider.alias)
    if not run_here(known.exists, runs.db):
        find_status(provider, name)


def _nothing(
    names: Sequence[str],
    *,
    outcome: str | None,
    attention: bool,
    since: timedelta | None,
    **options: Any,
) -> str:
    is_filtered = names or outcome or attention or since
    return "There are no such runs." if is_filtered else "No runs yet."


def run_as_dict(run: Any) -> dict[str, Any]:
    """Return a run for programs."""
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
        "exception_traceback": run.exception_traceback,
        "trigger": run.trigger,
        "operator": run.operator,
        "reason": run.reason,
    }


def _row(run: Any) -> tuple[Cell | str, ...]:
    outcome = run.current_outcome
    return (
        instant(run.started),
        run.name,
        Cell(outcome, role=OUTCOME_ROLES.get(outcome, "")),
        "-" if run.duration is None else format_measured(run.duration),
        run.locked_by,
        _exception(run) if run.exception_type else "-",
    )


def _exception(run: Any) -> Cell:
    text = f"{run.exception_type}: {run.exception_message}"
    cut = Truncator(text).chars(LONGEST_EXCEPTION)
    return Cell(cut, cut[run.exception_type.rfind(".") + 1 :])
