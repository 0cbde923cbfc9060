"""``manage.py shedlock list``."""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from django.db import Error

from django_shedlock import conf
from django_shedlock.durations import format_seconds
from django_shedlock.exceptions import ShedLockError
from django_shedlock.management.subcommands.arguments import interval
from django_shedlock.management.subcommands.base import Subcommand
from django_shedlock.management.subcommands.tables import as_table, local
from django_shedlock.options import default_duration
from django_shedlock.outcomes import RunOutcome
from django_shedlock.providers.base import LockProvider
from django_shedlock.states import LockState, LockStatus
from django_shedlock.summaries import summarize

COLUMNS = ("NAME", "STATE", "LOCKED BY", "LOCKED AT", "REMAINING", "LAST RUN")
NEXT = "NEXT"
"""A column that is there only if a lock has a schedule."""
CLEAR = "\x1b[2J\x1b[H"
"""Empties a terminal, and goes to its first line."""
STATES = {state.value.replace(" ", "-"): state for state in LockState}


class ListedLock(NamedTuple):
    """A lock that has a record."""

    name: str
    status: LockStatus
    last_outcome: RunOutcome | None
    overdue_since: datetime | None


class Listing(Subcommand):
    """Shows locks."""

    name = "list"
    help = "show all locks"

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """Which locks, how, and how often."""
        parser.add_argument("--state", choices=STATES, help="only locks in this state")
        parser.add_argument("--json", action="store_true", help="for programs")
        parser.add_argument(
            "--watch",
            metavar="INTERVAL",
            nargs="?",
            type=interval,
            const="2s",
            help="show them again and again until Ctrl-C; every 2s if not given",
        )

    def run(
        self, provider: LockProvider, *, watch: float | None, **options: Any
    ) -> None:
        """Print a table of locks, or JSON; with ``watch`` until interrupted."""
        if watch is None:
            self.stdout.write(shown(provider, **options))
            return
        with suppress(KeyboardInterrupt):
            while True:
                self._write_again(provider, **options)
                time.sleep(watch)

    def _write_again(self, provider: LockProvider, **options: Any) -> None:
        try:
            text = shown(provider, **options)
        except (ShedLockError, Error) as error:
            text = str(error).strip()
        self.stdout.write(CLEAR + text if self.stdout.isatty() else text)
        self.stdout.flush()


def shown(
    provider: LockProvider, *, state: str | None, json: bool, **options: Any
) -> str:
    """Return the locks, or those in one state, as a table or as JSON."""
    wanted = STATES[state] if state else None
    locks = [lock for lock in _locks(provider) if wanted in {None, lock.status.state}]
    if json or locks:
        return as_json(locks) if json else _table(locks)
    return f"No lock is {wanted}." if wanted else "There are no locks yet."


def as_json(locks: Sequence[ListedLock]) -> str:
    """Return the locks as a JSON list; durations are seconds."""
    return json.dumps(
        [
            {
                "name": name,
                "state": status.state.value,
                "locked_by": status.locked_by,
                "locked_at": status.locked_at.isoformat(),
                "lock_until": status.lock_until.isoformat(),
                "remaining": status.remaining.total_seconds(),
                "last_outcome": last_outcome,
                "schedule": str(status.schedule) if status.schedule else None,
                "next_tick": _iso(status.next_tick),
                "overdue_since": _iso(overdue_since),
            }
            for name, status, last_outcome, overdue_since in locks
        ],
        indent=2,
    )


def _locks(provider: LockProvider) -> Iterator[ListedLock]:
    grace = default_duration(conf.GRACE)
    for summary in summarize(provider):
        if summary.status is not None:
            yield ListedLock(
                summary.name,
                summary.status,
                summary.last_outcome,
                summary.overdue_since(grace),
            )


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _table(locks: Sequence[ListedLock]) -> str:
    has_schedules = any(lock.status.schedule for lock in locks)
    columns = (*COLUMNS, NEXT) if has_schedules else COLUMNS
    return as_table(columns, [_row(*lock)[: len(columns)] for lock in locks])


def _row(
    name: str,
    status: LockStatus,
    last_outcome: RunOutcome | None,
    overdue_since: datetime | None,
) -> tuple[str, ...]:
    return (
        name,
        status.state.value,
        status.locked_by or "-",
        local(status.locked_at) if status.locked_by else "-",
        format_seconds(status.remaining) if status.state.is_held else "-",
        last_outcome or "-",
        _next(status.next_tick, overdue_since),
    )


def _next(tick: datetime | None, overdue_since: datetime | None) -> str:
    if tick is None:
        return "-"
    return local(tick) if overdue_since is None else f"{local(tick)} (overdue)"
