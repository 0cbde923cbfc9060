"""``manage.py shedlock list``."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from django.db import Error

from django_shedlock import conf
from django_shedlock.durations import format_seconds
from django_shedlock.exceptions import ShedLockError
from django_shedlock.locks.configuration import default_duration
from django_shedlock.locks.states import LockState
from django_shedlock.management.subcommands.base import (
    Subcommand,
    as_json,
    as_table,
    interval,
    local,
)
from django_shedlock.monitoring.summaries import summarize
from django_shedlock.providers.base import LockProvider

COLUMNS = ("NAME", "STATE", "LOCKED BY", "LOCKED AT", "REMAINING", "LAST RUN")
NEXT = "NEXT"
"""This column is shown only if a lock has a schedule."""
CLEAR = "\x1b[2J\x1b[H"
"""Clears a terminal."""
STATES = {state.value.replace(" ", "-"): state for state in LockState}


class Listing(Subcommand):
    """Shows locks."""

    name = "list"
    help = "show all locks"

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """Add which locks to show, how, and how often."""
        parser.add_argument("--state", choices=STATES, help="only locks in this state")
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
    locks = [lock for lock in _locks(provider) if wanted in {None, lock["state"]}]
    if json or locks:
        return as_json(locks) if json else _table(locks)
    return f"No lock is {wanted}." if wanted else "There are no locks yet."


def _locks(provider: LockProvider) -> Iterator[dict[str, Any]]:
    grace = default_duration(conf.GRACE)
    for summary in summarize(provider):
        status = summary.status
        if status is not None:
            yield {
                "name": summary.name,
                "state": status.state,
                "locked_by": status.locked_by,
                "locked_at": status.locked_at,
                "lock_until": status.lock_until,
                "remaining": status.remaining,
                "last_outcome": summary.last_outcome,
                "schedule": status.schedule and str(status.schedule),
                "next_tick": status.next_tick,
                "overdue_since": status.overdue_since(grace),
            }


def _table(locks: Sequence[dict[str, Any]]) -> str:
    has_schedules = any(lock["schedule"] for lock in locks)
    columns = (*COLUMNS, NEXT) if has_schedules else COLUMNS
    return as_table(columns, [_row(lock)[: len(columns)] for lock in locks])


def _row(lock: dict[str, Any]) -> tuple[str, ...]:
    return (
        lock["name"],
        lock["state"],
        lock["locked_by"] or "-",
        local(lock["locked_at"]) if lock["locked_by"] else "-",
        format_seconds(lock["remaining"]) if lock["state"].is_held else "-",
        lock["last_outcome"] or "-",
        _next(lock),
    )


def _next(lock: dict[str, Any]) -> str:
    if lock["next_tick"] is None:
        return "-"
    return local(lock["next_tick"]) + (" (overdue)" if lock["overdue_since"] else "")
