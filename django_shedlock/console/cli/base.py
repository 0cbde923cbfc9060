"""What the subcommands of ``manage.py shedlock`` share."""

from __future__ import annotations

import difflib
import getpass
import glob
import json
import os
import sys
import textwrap
from abc import ABC, abstractmethod
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, ClassVar

from django.core.management.base import CommandError, OutputWrapper
from django.utils import timezone

from django_shedlock.console.cli.statuses import ExitStatus
from django_shedlock.console.cli.terminal import Cell, Terminal
from django_shedlock.console.cli.terminal import printable as printable
from django_shedlock.console.monitoring.findings import Finding, Severity
from django_shedlock.console.operators import Answer
from django_shedlock.durations import parse_duration
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.states import LockState, LockStatus, RunOutcome
from django_shedlock.models.console import ActionResult
from django_shedlock.providers import get_provider
from django_shedlock.providers.base import LockFilter, LockProvider

FAILED = ExitStatus.FAILED
NOT_HELD = ExitStatus.NOT_HELD
PAUSED = ExitStatus.PAUSED
RUNNING = ExitStatus.RUNNING
UNKNOWN = ExitStatus.UNKNOWN
WRONG_CALL = ExitStatus.WRONG_CALL

MOST_CANDIDATES = 1000
"""Names among which the nearest to an unknown one is looked for."""


MOST_COUNTED = 1000
"""Up to so many rows that are not shown are counted."""
OUTCOME_ROLES = {
    RunOutcome.SUCCEEDED: "SUCCESS",
    **dict.fromkeys(filter(lambda each: each.is_bad, RunOutcome), "ERROR"),
}
"""The styles of outcomes."""


STATE_ROLES = {
    LockState.RUNNING: "SUCCESS",
    LockState.HELD_AT_LEAST: "HTTP_NOT_MODIFIED",
    LockState.PAUSED: "WARNING",
    LockState.EXPIRED: "ERROR",
}
"""The styles of states."""


def status_as_dict(
    status: LockStatus, grace: timedelta, findings: Iterable[Finding]
) -> dict[str, Any]:
    """Return a lock for programs."""
    return {
        "name": status.name,
        "state": status.state,
        "locked_by": status.locked_by,
        "locked_at": status.locked_at,
        "lock_until": status.lock_until,
        "remaining": status.remaining,
        "heartbeat_at": status.heartbeat_at,
        "schedule": status.schedule and str(status.schedule),
        "next_tick": status.next_tick,
        "overdue_since": status.overdue_since(grace),
        "findings": [asdict(found) for found in findings],
    }


def failure(answer: Answer) -> ExitStatus:
    """Return the exit status for an operator's action that was not done."""
    if answer.result is not ActionResult.REFUSED:
        return FAILED
    if answer.status is None:
        return NOT_HELD
    if answer.status.pause is not None:
        return PAUSED
    return RUNNING if answer.status.state.may_run else NOT_HELD


def write_json(stdout: OutputWrapper, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the rows as a JSON list, one after the other; durations are seconds."""
    before = "[\n"
    for row in rows:
        stdout.write(f"{before}{_indented(row)}", ending="")
        before = ",\n"
    stdout.write("[]" if before == "[\n" else "\n]")


def as_json(value: Any) -> str:
    """Return the value as JSON; durations are seconds."""
    return json.dumps(value, default=_encoded, indent=2)


def _indented(row: Mapping[str, Any]) -> str:
    return textwrap.indent(as_json(row), "  ")


def _encoded(value: datetime | timedelta) -> str | float:
    if isinstance(value, datetime):
        return value.isoformat()
    return value.total_seconds()


def local(moment: datetime) -> str:
    """Return the instant to the second, in the project's time zone."""
    if timezone.is_aware(moment):
        moment = timezone.localtime(moment)
    return moment.isoformat(sep=" ", timespec="seconds")


def finding_line(terminal: Terminal, found: Finding) -> str:
    """Return the finding as a line, or wrapped on a terminal."""
    severity = found.kind.severity
    role = "ERROR" if severity is Severity.CRITICAL else "WARNING"
    return terminal.paragraph(f"{severity.upper()} {found}", indent="  ", role=role)


def instant(moment: datetime) -> Cell:
    """Return a cell of a table; short is without the year and the time zone."""
    text = local(moment)
    return Cell(text, text[5:16])


def more(rest: Iterator[Any]) -> list[str]:
    """Return a line that says how many rows are left, if there are any."""
    count = sum(1 for _ in islice(rest, MOST_COUNTED + 1))
    if not count:
        return []
    number = f"More than {MOST_COUNTED}" if count > MOST_COUNTED else str(count)
    return [f"{number} more: see --limit."]


def add_names(parser: ArgumentParser) -> None:
    """Add the names of locks."""
    parser.add_argument(
        "name",
        nargs="*",
        help='only of these locks; patterns as in "import:*" may be among them',
    )


class Subcommand(ABC):
    """A subcommand: its name, its arguments, and what it does."""

    name: ClassVar[str]
    help: ClassVar[str]

    def __init__(
        self,
        stdout: OutputWrapper,
        terminal: Terminal | None = None,
        stderr: OutputWrapper | None = None,
    ):
        self.stdout = stdout
        self.stderr = stderr or OutputWrapper(sys.stderr)
        self.terminal = terminal or Terminal(stdout)

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """Add the subcommand's own arguments."""
        return

    def handle(self, alias: str | None, **options: Any) -> None:
        """Run with the provider of this alias, the default one if it is ``None``."""
        self.run(get_provider(alias or "default"), **options)

    @abstractmethod
    def run(self, *args: Any, **options: Any) -> None:
        """Do it with a provider, or raise ``CommandError`` or ``ShedLockError``."""


def find_status(provider: LockProvider, name: str) -> LockStatus:
    """Return the lock's status, or raise ``CommandError``."""
    for status in provider.statuses(name):
        return status
    raise CommandError(
        f"There is no lock {name!r}.{nearest(name, _candidates(provider, name))} "
        "`shedlock list` shows all of them.",
        returncode=UNKNOWN,
    )


def _candidates(provider: LockProvider, name: str) -> Iterator[str]:
    for pattern in (f"{glob.escape(name[:3])}*", "*"):
        found = provider.iter_statuses(LockFilter((pattern,)))
        yield from (status.name for status in islice(found, MOST_CANDIDATES))


def nearest(name: str, names: Iterable[str]) -> str:
    """Return a question that names the nearest of the names; or no text."""
    found = difflib.get_close_matches(name, dict.fromkeys(names), n=1)
    return f" Did you mean {found[0]!r}?" if found else ""


def history_database(provider: LockProvider) -> str:
    """Return the alias of the database with the runs, or raise ``CommandError``."""
    if provider.history_database is None:
        message = f"The provider {provider.alias!r} keeps no history."
        raise CommandError(message, returncode=WRONG_CALL)
    return provider.history_database


def add_reason(parser: ArgumentParser) -> None:
    """Add the option with which the operator says why."""
    parser.add_argument(
        "--reason", default="", help="why, for the log and for receivers of the signal"
    )


def operator() -> str:
    """Return the name of the system's user; a container's may have a number only."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def duration(text: str) -> timedelta:
    """Return a duration that is not negative."""
    try:
        parsed = parse_duration(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error
    if parsed < ZERO:
        raise ArgumentTypeError(f"{text!r} must not be negative")
    return parsed


def interval(text: str) -> float:
    """Return the seconds of a positive duration."""
    parsed = duration(text)
    if not parsed:
        raise ArgumentTypeError(f"{text!r} must be positive")
    return parsed.total_seconds()


def positive(text: str) -> int:
    """Return a positive whole number."""
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def status(text: str) -> int:
    """Return an exit status."""
    if not text.isascii() or not text.isdecimal() or int(text) > 255:
        raise ArgumentTypeError(f"{text!r} is not a number from 0 to 255")
    return int(text)
