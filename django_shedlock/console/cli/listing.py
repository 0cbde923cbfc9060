"""``manage.py shedlock list``."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

from django.core.management.base import CommandError
from django.db import Error

from django_shedlock import conf
from django_shedlock.console.cli.base import (
    Subcommand,
    add_names,
    add_output,
    find_status,
    interval,
    positive,
)
from django_shedlock.console.cli.terminal import (
    OUTCOME_ROLES,
    STATE_ROLES,
    Cell,
    Row,
    finding_line,
    instant,
    lock_name,
    more,
    status_as_dict,
    table,
    write_json,
)
from django_shedlock.console.monitoring.findings import Finding, Kind, Search
from django_shedlock.console.monitoring.summaries import with_last_runs
from django_shedlock.durations import format_seconds
from django_shedlock.exceptions import LockProviderError, ShedLockError
from django_shedlock.locks.configuration import default_duration
from django_shedlock.locks.states import LockState, LockStatus, RunOutcome
from django_shedlock.patterns import WILDCARD, matches
from django_shedlock.providers.base import LockFilter, LockProvider

CLEAR = "\x1b[2J\x1b[H"
"""Clears a terminal."""
STATES = {state.value.replace(" ", "-"): state for state in LockState}
LIMIT = 50
PAGE = 500
"""Locks whose last runs are read at once."""


class Listing(Subcommand):
    """Shows locks."""

    name = "list"
    help = "show locks, first those that have findings"

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        add_names(parser)
        parser.add_argument("--state", choices=STATES, help="only locks in this state")
        parser.add_argument(
            "--attention", action="store_true", help="only locks with findings"
        )
        parser.add_argument(
            "--limit",
            type=positive,
            help=f"show no more locks; {LIMIT} by default, and all with --json",
        )
        add_output(parser)
        parser.add_argument(
            "--watch",
            metavar="INTERVAL",
            nargs="?",
            type=interval,
            const="2s",
            help="show them repeatedly until Ctrl-C; every 2s by default",
        )

    def run(
        self,
        provider: LockProvider,
        *,
        name: list[str],
        state: str | None,
        attention: bool,
        limit: int | None,
        json: bool,
        wide: bool,
        watch: float | None,
        **options: Any,
    ) -> None:
        """Print a table of locks, or JSON; with ``watch`` until interrupted."""
        wanted = LockFilter(tuple(name), STATES[state] if state else None)
        selection = Selection(provider, wanted, only_attention=attention)

        def write(before: str = "") -> None:
            if json:
                locks = selection.locks(islice(selection.statuses(), limit))
                write_json(self.stdout, map(selection.as_dict, locks))
            else:
                shown = self._text(selection, limit or LIMIT, wide=wide)
                self.write(before + shown)

        if watch is None:
            write()
            return
        clear = CLEAR if self.stdout.isatty() else ""
        with suppress(KeyboardInterrupt):
            while True:
                try:
                    write(clear)
                except (ShedLockError, CommandError, Error) as error:
                    self.write(str(error).strip())
                self.stdout.flush()
                time.sleep(watch)

    def _text(self, selection: Selection, limit: int, *, wide: bool) -> str:
        found = selection.statuses()
        locks = list(selection.locks(islice(found, limit)))
        lines = [finding_line(self.style, each) for each in selection.of_store]
        if not locks:
            return "\n".join([*lines, selection.nothing()])
        lines.append(table(self.style, selection.rows(locks, wide=wide)))
        lines += more(found)
        if count := len(selection.findings):
            have = "1 lock has" if count == 1 else f"{count} locks have"
            lines.append(
                f"{have} findings. `shedlock check`, or `show NAME`, says what to do."
            )
        return "\n".join(lines)


class Lock(NamedTuple):
    """A lock that is shown, with its last run and its findings."""

    status: LockStatus
    last_outcome: RunOutcome | None
    findings: list[Finding]


class Selection:
    """The locks to show: those with findings first, the others by name."""

    def __init__(
        self, provider: LockProvider, wanted: LockFilter, *, only_attention: bool
    ):
        self.provider, self.wanted = provider, wanted
        self.only_attention = only_attention
        self.grace = default_duration(conf.GRACE)
        self.findings: dict[str, list[Finding]] = {}
        self.of_store: list[Finding] = []

    def statuses(self) -> Iterator[LockStatus]:
        """Read them as they are asked for; raise an error for an unknown name."""
        self.findings, self.of_store = {}, []
        for found in Search(self.grace).findings(self.provider):
            if found.kind is Kind.UNREACHABLE:
                raise LockProviderError(found.sentence)
            if found.lock is None:
                self.of_store.append(found)
            else:
                self.findings.setdefault(found.lock, []).append(found)
        patterns = self.wanted.patterns
        for name in patterns:
            if not WILDCARD.search(name):
                find_status(self.provider, name)
        urgent = (name for name in self.findings if matches(name, patterns))
        while some := list(islice(urgent, PAGE)):
            read = {each.name: each for each in self.provider.statuses_of(some)}
            known = (read[name] for name in some if name in read)
            yield from filter(self.wanted.accepts, known)
        if not self.only_attention:
            for status in self.provider.iter_statuses(self.wanted):
                if status.name not in self.findings:
                    yield status

    def locks(self, statuses: Iterator[LockStatus]) -> Iterator[Lock]:
        """Add their last runs, which are read for some locks at a time."""
        while page := list(islice(statuses, PAGE)):
            names = [status.name for status in page]
            summaries = with_last_runs(self.provider, page, names)
            outcomes = {each.name: each.last_outcome for each in summaries}
            for status in page:
                found = self.findings.get(status.name, [])
                yield Lock(status, outcomes[status.name], found)

    def as_dict(self, lock: Lock) -> dict[str, Any]:
        """Return a lock for programs."""
        shown = status_as_dict(lock.status, self.grace, lock.findings)
        return {**shown, "last_outcome": lock.last_outcome}

    def rows(self, locks: list[Lock], *, wide: bool) -> list[Row]:
        """Return the rows of a table."""
        has_schedules = any(lock.status.schedule for lock in locks)
        has_findings = any(lock.findings for lock in locks)
        rows = []
        for status, outcome, findings in locks:
            role = STATE_ROLES.get(status.state, "")
            row: dict[str, Cell | str] = {
                "NAME": lock_name(status.name, wide=wide),
                "STATE": Cell(status.state, role),
            }
            if wide:
                locked_at = instant(status.locked_at, wide=True)
                remaining = format_seconds(status.remaining)
                row["LOCKED BY"] = status.locked_by or "-"
                row["LOCKED AT"] = locked_at if status.locked_by else "-"
                row["REMAINING"] = remaining if status.state.is_held else "-"
            role = OUTCOME_ROLES.get(outcome, "") if outcome else ""
            row["LAST RUN"] = Cell(outcome or "-", role)
            if has_schedules:
                row["NEXT"] = self._next(status, wide=wide)
            if has_findings:
                kinds = [found.kind.value for found in findings] or ["-"]
                if len(kinds) > 1 and not wide:
                    kinds = [f"{kinds[0]} +{len(kinds) - 1}"]
                row["FINDINGS"] = Cell(", ".join(kinds), "ERROR" if findings else "")
            rows.append(row)
        return rows

    def _next(self, status: LockStatus, *, wide: bool) -> Cell:
        if status.next_tick is None:
            return Cell("-")
        shown = instant(status.next_tick, wide=wide)
        if status.overdue_since(self.grace) is None:
            return Cell(shown)
        return Cell(f"{shown} (overdue)" if wide else shown, "ERROR")

    def nothing(self) -> str:
        """Say that there is no lock to show."""
        wanted = self.wanted
        if wanted.patterns:
            lock = "such lock" if wanted.state or self.only_attention else "lock"
            return f"No {lock} has a name like {' or '.join(wanted.patterns)}."
        if wanted.state:
            return f"No lock is {wanted.state}."
        if self.only_attention:
            return "No lock has findings."
        return "There are no locks yet."
