"""``manage.py shedlock history``."""

from argparse import ArgumentParser
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import ClassVar

from django.core.management.color import Style
from django.utils.text import Truncator

from django_shedlock.cli import base, json_output, terminal
from django_shedlock.clocks import aware, local_text
from django_shedlock.durations import format_measured, format_rough
from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.lock import split_identity
from django_shedlock.locks.patterns import WILDCARD, matches_any
from django_shedlock.locks.status import LockState, LockStatus, RunOutcome
from django_shedlock.models import LockRun, LockRunQuerySet
from django_shedlock.providers.base import LockProvider, LockQuery
from django_shedlock.providers.database.reading import may_match
from django_shedlock.sql.connections import read_rows

NO_RUN_TEXT = "The history has no run of"


class History(base.Subcommand):
    """Shows runs."""

    name = "history"
    group = base.Group.LOOK
    example = "history --attention --since 1d"
    help = "show the running and the last runs, the newest first"
    run_batch_size: ClassVar[int] = 500

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        base.add_names(parser)
        outcomes = [outcome.value for outcome in RunOutcome]
        running = LockState.RUNNING.value
        parser.add_argument("--outcome", choices=[running, *outcomes])
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
        if not attention and outcome in {None, LockState.RUNNING.value}:
            ended = {run.locked_by for run in found}
            found = [*self.running_runs(provider, name, ended), *found]
        shown = found[:limit]
        for each in name:
            if not any(matches_any(run.name, [each]) for run in shown):
                self.check_name(provider, each, all_runs)
        if json:
            json_output.write_json(self.stdout, map(run_as_dict, shown))
        elif shown:
            self.write(runs_table(self.style, shown, wide=wide, traceback=traceback))
            if len(found) > limit:
                self.write("There are more runs: see --limit.")
        elif outcome or attention or since is not None:
            self.write("There are no such runs.")
        elif name:
            is_one = len(name) == 1 and not WILDCARD.search(name[0])
            lines = [f"{NO_RUN_TEXT} {'it' if is_one else 'them'}."]
            self.write("\n".join([*lines, *self.open_runs(provider, name)]))
        else:
            self.write("No runs yet.")

    def check_name(
        self, provider: LockProvider, name: str, all_runs: LockRunQuerySet
    ) -> None:
        """Raise ``CommandError`` if no lock and no run is called so, or matches it."""
        # A lock may be known although it was pruned, or has no such run.
        if WILDCARD.search(name):
            runs = all_runs.filter(provider=provider.alias)
            is_known = base.has_match(provider, name) or any(
                self.iter_runs(runs, [name], 1)
            )
        else:
            newest = all_runs.of_lock(name, provider.alias).values_list("pk")[:1]
            is_known = bool(read_rows(newest, all_runs.db))
        if not is_known:
            base.check_name(provider, name)

    def open_runs(self, provider: LockProvider, names: Sequence[str]) -> list[str]:
        """Return a sentence for each run of these locks that did not report its end."""
        may_be_open = [LockState.EXPIRED, LockState.RUNNING]
        wanted = LockQuery(patterns=tuple(names), states=may_be_open)
        return [
            terminal.printable(f"Lock {status.name!r}: {open_run_text(status)}")
            for status in provider.statuses(wanted)
            if status.unreported_run
        ]

    def running_runs(
        self, provider: LockProvider, names: Sequence[str], ended: Collection[str]
    ) -> list[LockRun]:
        """Return the runs that go on, the newest first; none if the store fails."""
        wanted = LockQuery(patterns=tuple(names), states=[LockState.RUNNING])
        try:
            found = [*filter(None, map(running_run, provider.statuses(wanted)))]
        except LockProviderError as error:  # the history may be elsewhere
            self.stderr.write(f"Runs that go on are not shown: {error}")
            return []
        # A run may have ended since the history was read.
        found = [run for run in found if run.locked_by not in ended]
        return sorted(found, key=started_at, reverse=True)

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


def open_run_text(status: LockStatus) -> str:
    """Say which run of the lock did not report its end, and when that began."""
    run = status.unreported_run
    if run != status.locked_by:  # another program has acquired the lock since
        return f"Its run as {run} has not reported its end."
    began = local_text(status.locked_at)
    return f"Its run as {run} began at {began} and has not reported its end."


def running_run(status: LockStatus) -> LockRun | None:
    """Return the lock's run that goes on, with its duration so far, if there is one."""
    # Another program that shares the table opens no run.
    is_ours = status.job.open_run == status.locked_by
    if status.state is not LockState.RUNNING or not is_ours:
        return None
    host, pid = split_identity(status.locked_by)
    return LockRun(
        name=status.name,
        locked_by=status.locked_by,
        host=host,
        pid=pid,
        fencing_token=status.fencing_token,
        started=status.locked_at,
        duration=status.held_for,
        outcome=status.state.value,
    )


def started_at(run: LockRun) -> datetime:
    """Return when a run that goes on has begun."""
    return aware(run.started)


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
        if run.ended is None and took is not None:
            row["DURATION"] = f"{format_rough(took)} so far"
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
