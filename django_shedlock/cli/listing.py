"""``manage.py shedlock list``."""

import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Any, ClassVar

from django.core.management.base import CommandError
from django.core.management.color import Style
from django.db import Error

from django_shedlock import conf
from django_shedlock.cli import base, json_output, terminal
from django_shedlock.durations import format_left
from django_shedlock.exceptions import ShedLockError
from django_shedlock.locks.configuration import ZERO, default_duration
from django_shedlock.locks.status import LockState, LockStatus
from django_shedlock.providers.base import LockProvider, LockQuery


@dataclass
class ListedLocks:
    """The locks of a provider that a query selects, and what to show of each."""

    provider: LockProvider
    wanted: LockQuery

    @property
    def grace(self) -> timedelta:
        """How long after its tick a job becomes overdue."""
        return default_duration(conf.GRACE)

    def statuses(self) -> Iterator[LockStatus]:
        """Return the locks, read lazily; raise ``CommandError`` for an unknown name."""
        self.check_names()
        yield from self.provider.statuses(self.wanted)

    def check_names(self) -> None:
        """Raise ``CommandError`` for an unknown name, or a pattern without a lock."""
        for name in self.wanted.patterns:
            base.check_name(self.provider, name)

    def as_dict(self, status: LockStatus) -> dict[str, object]:
        """Return a lock as JSON shows it."""
        return json_output.status_as_dict(status, self.grace)

    def first_lines(self, style: Style) -> list[str]:
        """Return the lines above the table."""
        return []

    def last_lines(self, *, is_empty: bool) -> list[str]:
        """Return the lines below the table."""
        return []

    def rows(self, locks: list[LockStatus], *, wide: bool) -> Iterator[terminal.Row]:
        """Return the rows of a table."""
        has_schedules = any(status.schedule for status in locks)
        for status in locks:
            yield self.row(status, wide=wide, has_schedules=has_schedules)

    def row(
        self, status: LockStatus, *, wide: bool, has_schedules: bool
    ) -> dict[str, str | terminal.Cell]:
        """Return the cells of one lock."""
        row: dict[str, str | terminal.Cell] = {
            "NAME": terminal.lock_name(status.name, wide=wide),
            "STATE": terminal.coloured(status.state),
        }
        if wide:
            by, is_held = status.locked_by, status.state.is_held
            row["LOCKED BY"] = by
            row["LOCKED AT"] = terminal.instant(status.locked_at) if by else ""
            left = format_left(status.remaining) if is_held else ""
            row["REMAINING"] = (
                terminal.ENDLESS_PAUSE_TEXT if status.is_endless else left
            )
        row["LAST RUN"] = terminal.coloured(status.job.outcome or "")
        if has_schedules:
            tick = status.next_tick
            is_overdue = status.overdue_since(self.grace) is not None
            row["NEXT"] = terminal.Cell(
                terminal.instant(tick, wide=wide) if tick else "",
                "ERROR" if is_overdue else "",
            )
        return row


class Listing(base.Subcommand):
    """Shows locks."""

    name = "list"
    group = base.Group.LOOK
    example = "list --state running"
    help = "show locks"
    states: ClassVar[dict[str, LockState]] = {
        state.value.replace(" ", "-"): state for state in LockState
    }

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        base.add_names(parser)
        parser.add_argument(
            "--state", choices=cls.states, help="only locks in this state"
        )
        parser.add_argument(
            "--limit",
            type=base.positive,
            help="show no more locks; 50 by default, and all with --json",
        )
        base.add_output(parser)
        parser.add_argument(
            "--watch",
            metavar="INTERVAL",
            nargs="?",
            type=base.duration,
            const="2s",
            help="show them repeatedly until Ctrl-C; every 2s by default",
        )

    def select(
        self, provider: LockProvider, wanted: LockQuery, **options: Any
    ) -> ListedLocks:
        """Return the locks to show."""
        return ListedLocks(provider, wanted)

    def run(
        self,
        provider: LockProvider,
        *,
        name: list[str],
        state: str | None,
        limit: int | None,
        json: bool,
        wide: bool,
        watch: timedelta | None,
        **options: Any,
    ) -> None:
        if watch == ZERO:
            raise base.WrongCall("--watch needs a positive duration.")
        states = [self.states[state]] if state else []
        wanted = LockQuery(patterns=tuple(name), states=states)
        is_filtered = bool(name or state or options.get("attention"))

        def write(before: str = "") -> None:
            selection = self.select(provider, wanted, **options)
            found = selection.statuses()
            if json:
                shown = map(selection.as_dict, islice(found, limit))
                json_output.write_json(self.stdout, shown)
                return
            locks = list(islice(found, limit or 50))
            lines = selection.first_lines(self.style)
            if locks:
                rows = list(selection.rows(locks, wide=wide))
                lines.append(terminal.table(self.style, rows))
                if any(found):
                    lines.append("There are more locks: see --limit.")
            elif is_filtered:
                lines.append("There are no such locks.")
            else:
                lines.append("There are no locks yet.")
            lines += selection.last_lines(is_empty=not locks)
            self.write(before + "\n".join(lines))

        if watch is None:
            write()
            return
        clear_screen, cursor_home = "\x1b[2J", "\x1b[H"
        before = clear_screen + cursor_home if self.stdout.isatty() else ""
        with suppress(KeyboardInterrupt):
            while True:
                try:
                    write(before)
                except (ShedLockError, CommandError, Error) as error:
                    self.write(str(error).strip())
                self.stdout.flush()
                time.sleep(watch.total_seconds())
