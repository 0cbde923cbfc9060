"""What the subcommands of ``manage.py shedlock`` share."""

from __future__ import annotations

import getpass
import json
import os
from abc import ABC, abstractmethod
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.core.management.base import CommandError, OutputWrapper
from django.utils import timezone

from django_shedlock.durations import parse_duration
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.states import LockStatus
from django_shedlock.providers import get_provider
from django_shedlock.providers.base import LockProvider

FAILED = 1
RUNNING = 3


def as_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the rows below the columns' names, each column as wide as needed."""
    lines = [columns, *(list(map(printable, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) for cell, width in zip(line, widths, strict=True)
        ).rstrip()
        for line in lines
    )


def as_json(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the rows as a JSON list; durations are seconds."""
    return json.dumps(list(rows), default=_encoded, indent=2)


def _encoded(value: datetime | timedelta) -> str | float:
    if isinstance(value, datetime):
        return value.isoformat()
    return value.total_seconds()


def printable(text: str) -> str:
    """Return the text; what could move a terminal's cursor is escaped."""
    return "".join(
        character if character.isprintable() else repr(character)[1:-1]
        for character in text
    )


def local(moment: datetime) -> str:
    """Return the instant to the second, in the project's time zone."""
    if timezone.is_aware(moment):
        moment = timezone.localtime(moment)
    return moment.isoformat(sep=" ", timespec="seconds")


class Subcommand(ABC):
    """A subcommand: its name, its arguments, and what it does."""

    name: ClassVar[str]
    help: ClassVar[str]

    def __init__(self, stdout: OutputWrapper):
        self.stdout = stdout

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
    message = f"There is no lock {name!r}. `shedlock list` shows all of them."
    raise CommandError(message, returncode=FAILED)


def history_database(provider: LockProvider) -> str:
    """Return the alias of the database with the runs, or raise ``CommandError``."""
    if provider.history_database is None:
        message = f"The provider {provider.alias!r} keeps no history."
        raise CommandError(message, returncode=FAILED)
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
