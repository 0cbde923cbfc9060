"""``manage.py shedlock history``."""

from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import islice
from typing import ClassVar

from django.core.management.color import Style
from django.utils.text import Truncator

from django_shedlock.cli import base, json_output, terminal
from django_shedlock.clocks import local_text
from django_shedlock.durations import format_measured
from django_shedlock.locks.patterns import WILDCARD
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRun, LockRunQuerySet
from django_shedlock.providers.base import LockProvider, LockQuery
from django_shedlock.providers.database.reading import may_match
from django_shedlock.sql.connections import read_rows


class History(base.Subcommand):
    """Shows runs."""

    name = "history"
    help = "show the last runs, the newest first"
    run_batch_size: ClassVar[int] = 500

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        base.add_names(parser)
        parser.add_argument(
            "--outcome", choices=[outcome.value for outcome in RunOutcome]
        )
        base.add_switch(
            parser,
            "--attention",
            "only runs that failed, timed out, lost their lock, or were abandoned",
        )
        base.add_duration(
            parser, "--since", "only runs that ended no longer ago than this"
        )
        parser.add_argument(
            "--limit",
            type=base.positive,
            default=20,
            help="show no more runs; 20 by default",
        )
        base.add_output(parser)

    def run(
        self,
        provider: LockProvider,
        *,
        name: list[str],
        outcome: str | None,
        attention: bool,
        since: timedelta | None,
        limit: int,
        json: bool,
        wide: bool,
        traceback: bool,
        **options: object,
    ) -> None:
        all_runs = LockRun.objects.using(base.history_database(provider))
        runs = all_runs.filter(provider=provider.alias)
        if attention:
            runs = runs.exclude(outcome=RunOutcome.SUCCEEDED)
        if outcome is not None:
            runs = runs.filter(outcome=outcome)
        if since is not None:
            runs = runs.since(since)
        runs = runs if json or traceback else runs.defer("exception_traceback")
        found = list(islice(self.iter_runs(runs, name, limit + 1), limit + 1))
        shown = found[:limit]
        for each in set(name).difference(run.name for run in shown):
            # A lock may be known although it was pruned, or has no such run.
            known = all_runs.of_lock(each, provider.alias).values_list("pk")[:1]
            if not WILDCARD.search(each) and not read_rows(known, runs.db):
                base.find_status(provider, each)
        if json:
            json_output.write_json(self.stdout, map(run_as_dict, shown))
        elif shown:
            self.write(runs_table(self.style, shown, wide=wide, traceback=traceback))
            if len(found) > limit:
                self.write("There are more runs: see --limit.")
        else:
            is_filtered = name or outcome or attention or since
            self.write("There are no such runs." if is_filtered else "No runs yet.")

    def iter_runs(
        self, runs: LockRunQuerySet, names: Sequence[str], expected: int
    ) -> Iterator[LockRun]:
        """Return the runs with these names or patterns, the newest first."""
        # Without a pattern, all rows match. So read no more rows than are shown.
        has_pattern = any(map(WILDCARD.search, names))
        size = self.run_batch_size if has_pattern else expected
        runs = runs.filter(may_match(names)).order_by("-pk")
        is_wanted = LockQuery(patterns=tuple(names)).accepts_name
        page = runs
        while read := read_rows(page[:size], runs.db):
            yield from (run for run in read if is_wanted(run.name))
            if len(read) < size:
                return
            page = runs.filter(pk__lt=read[-1].pk)


def last_runs(name: str, provider: str, using: str, limit: int) -> list[LockRun]:
    """
    Return the last runs of a lock, the newest first, and at most ``limit`` of them.

    ``provider`` is the alias of its provider, ``using`` that of the database with the
    history.
    """
    runs = LockRun.objects.using(using).of_lock(name, provider)
    return read_rows(runs.order_by("-pk")[:limit], using)


def runs_table(
    style: Style,
    runs: Sequence[LockRun],
    *,
    wide: bool,
    traceback: bool,
    named: bool = True,
) -> str:
    """
    Return a table of runs; if they are ``named``, with the names of their locks.

    With ``traceback``, the tracebacks of the runs stand below the table.
    """
    rows = []
    for run in runs:
        started = run.started and terminal.instant(run.started, wide=wide)
        row: dict[str, str | terminal.Cell] = {"STARTED": started or ""}
        if named:
            row["NAME"] = terminal.lock_name(run.name, wide=wide)
        row["OUTCOME"] = terminal.coloured(run.outcome)
        took = run.duration
        row["DURATION"] = "" if took is None else format_measured(took)
        told = run.exception_type.rpartition(".")[2]
        if wide:
            row["LOCKED BY"] = run.locked_by
            told = f"{run.exception_type}: {run.exception_message}" if told else ""
        row["EXCEPTION"] = Truncator(told).chars(100)
        rows.append(row)
    parts = [terminal.table(style, rows)]
    for run in runs if traceback else ():
        if run.exception_traceback:
            at = local_text(run.started or run.ended)
            title = terminal.printable(f"{run.name}, {at}:")
            lines = map(terminal.printable, run.exception_traceback.splitlines())
            parts.append("\n".join([title, *lines]))
    return "\n\n".join(parts)


def run_as_dict(run: LockRun) -> dict[str, object]:
    """Return a run as JSON shows it."""
    columns = (
        *("name", "outcome", "started", "lost_at", "ended", "duration", "locked_by"),
        *("host", "pid", "fencing_token", "exception_type", "exception_message"),
        *("exception_traceback", "trigger", "operator", "reason"),
    )
    return {column: getattr(run, column) for column in columns}
