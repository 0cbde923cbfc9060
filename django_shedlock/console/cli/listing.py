"""``manage.py shedlock list``."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from django.core.management.base import CommandError
from django.db import Error

from django_shedlock import conf
from django_shedlock.console.cli.base import (
    OUTCOME_ROLES,
    STATE_ROLES,
    Subcommand,
    add_names,
    find_status,
    finding_line,
    instant,
    interval,
    more,
    positive,
    status_as_dict,
    write_json,
)
from django_shedlock.console.cli.terminal import Cell, Column, Terminal
from django_shedlock.console.monitoring.findings import Finding, Kind, Search
from django_shedlock.console.monitoring.summaries import with_last_runs
from django_shedlock.durations import format_seconds
from django_shedlock.exceptions import LockProviderError, ShedLockError
from django_shedlock.locks.configuration import default_duration
from django_shedlock.locks.states import LockState, LockStatus, RunOutcome
from django_shedlock.patterns import WILDCARD, matches
from django_shedlock.providers.base import LockFilter, LockProvider

COLUMNS = (
    Column("NAME", 0, least=36, stays=True),
    Column("STATE", 1, stays=True),
    Column("LOCKED BY", 7, least=14),
    Column("LOCKED AT", 6),
    Column("REMAINING", 5),
    Column("LAST RUN", 3),
    Column("NEXT", 4),
    Column("FINDINGS", 2, stays=True),
)
"""``NEXT`` and ``FINDINGS`` are shown only if a lock has a schedule, or findings."""
CLEAR = "\x1b[2J\x1b[H"
"""Clears a terminal."""
STATES = {state.value.replace(" ", "-"): state for state in LockState}
LIMIT = 50
PAGE = 500
"""Locks whose last runs are read at once."""


class Listing(Subcommand):
    """Shows locks."""

    name = "list"
    help = "show locks, first those that need somebody"

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """Add which locks to show, how, and how often."""
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
        parser.add_argument("--json", action="store_true", help="print JSON")
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
        watch: float | None,
        **options: Any,
    ) -> None:
        """Print a table of locks, or JSON; with ``watch`` until interrupted."""
        wanted = LockFilter(tuple(name), STATES[state] if state else None)
        selection = Selection(provider, wanted, only_attention=attention)
        if json:
            write = partial(self._write_json, selection, limit)
        else:
            write = partial(self._write_table, selection, limit or LIMIT)
        if watch is None:
            write()
            return
        with suppress(KeyboardInterrupt):
            while True:
                self._write_again(write)
                time.sleep(watch)

    def _write_again(self, write: Any) -> None:
        try:
            write(before=CLEAR if self.stdout.isatty() else "")
        except (ShedLockError, CommandError, Error) as error:
            self.terminal.write(str(error).strip())
        self.stdout.flush()

    def _write_json(
        self, selection: Selection, limit: int | None, before: str = ""
    ) -> None:
        locks = selection.with_outcomes(islice(selection.statuses(), limit))
        write_json(self.stdout, (_as_dict(selection, lock) for lock in locks))

    def _write_table(self, selection: Selection, limit: int, before: str = "") -> None:
        found = selection.statuses()
        locks = list(selection.with_outcomes(islice(found, limit)))
        lines = [finding_line(self.terminal, each) for each in selection.of_store]
        if locks:
            lines.append(_table(self.terminal, selection, locks))
            lines += more(found)
            lines += _advice(len(selection.findings))
        else:
            lines.append(_nothing(selection))
        self.terminal.write(before + "\n".join(lines))


@dataclass(frozen=True)
class Lock:
    """A lock that is shown, with its last run."""

    status: LockStatus
    last_outcome: RunOutcome | None


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
        self._search()
        for name in self.wanted.patterns:
            if not WILDCARD.search(name):
                find_status(self.provider, name)
        yield from filter(self.wanted.accepts, self._urgent())
        if not self.only_attention:
            for status in self.provider.iter_statuses(self.wanted):
                if status.name not in self.findings:
                    yield status

    def with_outcomes(self, statuses: Iterator[LockStatus]) -> Iterator[Lock]:
        """Add their last runs, some locks at a time."""
        while page := list(islice(statuses, PAGE)):
            names = [status.name for status in page]
            summaries = with_last_runs(self.provider, page, names)
            outcomes = {each.name: each.last_outcome for each in summaries}
            for status in page:
                yield Lock(status, outcomes[status.name])

    def _search(self) -> None:
        self.findings, self.of_store = {}, []
        for found in Search(self.grace).findings(self.provider):
            if found.kind is Kind.UNREACHABLE:
                raise LockProviderError(found.sentence)
            if found.lock is None:
                self.of_store.append(found)
            else:
                self.findings.setdefault(found.lock, []).append(found)

    def _urgent(self) -> Iterator[LockStatus]:
        patterns = self.wanted.patterns
        names = (name for name in self.findings if matches(name, patterns))
        while some := list(islice(names, PAGE)):
            found = {each.name: each for each in self.provider.statuses_of(some)}
            yield from (found[name] for name in some if name in found)


def _as_dict(selection: Selection, lock: Lock) -> dict[str, Any]:
    found = selection.findings.get(lock.status.name, [])
    shown = status_as_dict(lock.status, selection.grace, found)
    return {**shown, "last_outcome": lock.last_outcome}


def _table(terminal: Terminal, selection: Selection, locks: Sequence[Lock]) -> str:
    left_out = {"NEXT", "FINDINGS"}
    if any(lock.status.schedule for lock in locks):
        left_out.discard("NEXT")
    if any(lock.status.name in selection.findings for lock in locks):
        left_out.discard("FINDINGS")
    shown = [n for n, each in enumerate(COLUMNS) if each.title not in left_out]
    rows = [_row(selection, lock) for lock in locks]
    return terminal.table(
        [COLUMNS[number] for number in shown],
        [[row[number] for number in shown] for row in rows],
    )


def _row(selection: Selection, lock: Lock) -> tuple[Cell | str, ...]:
    status, outcome = lock.status, lock.last_outcome
    findings = selection.findings.get(status.name, [])
    return (
        status.name,
        Cell(status.state, role=STATE_ROLES.get(status.state, "")),
        status.locked_by or "-",
        instant(status.locked_at) if status.locked_by else "-",
        format_seconds(status.remaining) if status.state.is_held else "-",
        Cell(outcome, role=OUTCOME_ROLES.get(outcome, "")) if outcome else "-",
        _next(selection, status),
        _kinds(findings),
    )


def _kinds(findings: Sequence[Finding]) -> Cell | str:
    if not findings:
        return "-"
    first, *others = [finding.kind.value for finding in findings]
    short = f"{first} +{len(others)}" if others else first
    return Cell(", ".join([first, *others]), short, "ERROR")


def _next(selection: Selection, status: LockStatus) -> Cell | str:
    if status.next_tick is None:
        return "-"
    cell = instant(status.next_tick)
    is_overdue = status.overdue_since(selection.grace) is not None
    return Cell(cell.text + " (overdue)", cell.short, "ERROR") if is_overdue else cell


def _advice(findings: int) -> list[str]:
    if not findings:
        return []
    locks = "1 lock has" if findings == 1 else f"{findings} locks have"
    return [f"{locks} findings. `shedlock check`, or `show NAME`, says what to do."]


def _nothing(selection: Selection) -> str:
    wanted = selection.wanted
    if wanted.patterns:
        lock = "such lock" if wanted.state or selection.only_attention else "lock"
        return f"No {lock} has a name like {' or '.join(wanted.patterns)}."
    if wanted.state:
        return f"No lock is {wanted.state}."
    if selection.only_attention:
        return "No lock has findings."
    return "There are no locks yet."
