"""``manage.py shedlock list``."""

import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from typing import Any

from django.core.management.base import CommandError
from django.db import Error

from django_shedlock.console.cli import base, terminal
from django_shedlock.console.links import PROGRAM
from django_shedlock.console.monitoring.findings import Finding, Kind
from django_shedlock.console.monitoring.search import Search
from django_shedlock.durations import format_seconds
from django_shedlock.exceptions import LockProviderError, ShedLockError
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.status import LockState, LockStatus
from django_shedlock.providers.base import WILDCARD, LockProvider, LockQuery
from django_shedlock.providers.database.reading import batches

CLEAR = "\x1b[2J\x1b[H"
"""Clears a terminal."""
STATES = {state.value.replace(" ", "-"): state for state in LockState}
LIMIT = 50


class Listing(base.Subcommand):
    """Shows locks."""

    name = "list"
    help = "show locks, first those that have findings"

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        base.add_names(parser)
        parser.add_argument("--state", choices=STATES, help="only locks in this state")
        base.add_switch(parser, "--attention", "only locks with findings")
        parser.add_argument(
            "--limit",
            type=base.positive,
            help=f"show no more locks; {LIMIT} by default, and all with --json",
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
        watch: timedelta | None,
        **options: Any,
    ) -> None:
        if watch == ZERO:
            raise base.WrongCall("--watch needs a positive duration.")
        states = [STATES[state]] if state else []
        wanted = LockQuery(patterns=tuple(name), states=states)

        def write(before: str = "") -> None:
            selection = Selection(provider, wanted, attention)
            found = selection.statuses()
            if json:
                grace, findings = selection.search.grace, selection.findings
                dicts = (
                    terminal.status_as_dict(each, grace, findings.get(each.name, []))
                    for each in islice(found, limit)
                )
                terminal.write_json(self.stdout, dicts)
                return
            locks = list(islice(found, limit or LIMIT))
            lines = [terminal.finding_line(self.style, e) for e in selection.of_store]
            if locks:
                rows = list(selection.rows(locks, wide=wide))
                lines.append(terminal.table(self.style, rows))
                if any(found):
                    lines.append("There are more locks: see --limit.")
            elif name or state or attention:
                lines.append("There are no such locks.")
            else:
                lines.append("There are no locks yet.")
            inside = sum(map(wanted.accepts_name, selection.findings))
            outside = len(selection.findings) - inside
            if inside and locks:
                advice = f"`{PROGRAM} check` says what to do."
                lines.append(f"{_have(inside, '')} findings. {advice}")
            if outside:
                advice = f"see `{PROGRAM} list --attention`."
                lines.append(f"{_have(outside, 'other ')} findings: {advice}")
            self.write(before + "\n".join(lines))

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
                time.sleep(watch.total_seconds())


def _have(count: int, other: str) -> str:
    return f"1 {other}lock has" if count == 1 else f"{count} {other}locks have"


@dataclass
class Selection:
    """The locks to show: those with findings first, the others by name."""

    provider: LockProvider
    wanted: LockQuery
    only_attention: bool
    search: Search = field(default_factory=Search)
    findings: dict[str, list[Finding]] = field(default_factory=dict)
    of_store: list[Finding] = field(default_factory=list)

    def statuses(self) -> Iterator[LockStatus]:
        """Read them lazily; raise ``CommandError`` for an unknown name."""
        for found in self.search.findings(self.provider):
            if found.kind is Kind.UNREACHABLE:
                raise LockProviderError(found.sentence)
            if found.lock is None:
                self.of_store.append(found)
            else:
                self.findings.setdefault(found.lock, []).append(found)
        for name in self.wanted.patterns:
            if not WILDCARD.search(name):
                base.find_status(self.provider, name)
        for some in batches(filter(self.wanted.accepts_name, self.findings)):
            statuses = self.provider.statuses(LockQuery(names=some))
            read = {status.name: status for status in statuses}
            known = (read[name] for name in some if name in read)
            yield from filter(self.wanted.accepts, known)
        if not self.only_attention:
            for status in self.provider.statuses(self.wanted):
                if status.name not in self.findings:
                    yield status

    def rows(self, locks: list[LockStatus], *, wide: bool) -> Iterator[terminal.Row]:
        """Return the rows of a table."""
        has_schedules = any(status.schedule for status in locks)
        has_findings = any(status.name in self.findings for status in locks)
        for status in locks:
            row: dict[str, str | terminal.Cell] = {
                "NAME": terminal.lock_name(status.name, wide=wide),
                "STATE": terminal.coloured(status.state),
            }
            if wide:
                by, is_held = status.locked_by, status.state.is_held
                row["LOCKED BY"] = by
                row["LOCKED AT"] = terminal.instant(status.locked_at) if by else ""
                left = format_seconds(status.remaining) if is_held else ""
                row["REMAINING"] = terminal.UNTIL_RESUMED if status.is_endless else left
            row["LAST RUN"] = terminal.coloured(status.job.outcome or "")
            if has_schedules:
                tick = status.next_tick
                is_overdue = status.overdue_since(self.search.grace) is not None
                row["NEXT"] = terminal.Cell(
                    terminal.instant(tick, wide=wide) if tick else "",
                    "ERROR" if is_overdue else "",
                )
            if has_findings:
                kinds = [found.kind for found in self.findings.get(status.name, [])]
                told = ", ".join(kinds)
                if len(kinds) > 1 and not wide:
                    told = f"{kinds[0]} +{len(kinds) - 1}"
                row["FINDINGS"] = terminal.Cell(told, "ERROR")
            yield row
