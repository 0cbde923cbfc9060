"""What the subcommands share: exit statuses, arguments, and the search for a lock."""

import difflib
import getpass
import glob
import os
import signal
from abc import ABC, abstractmethod
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterable, Iterator
from datetime import timedelta
from enum import IntEnum
from itertools import islice
from typing import Any, ClassVar

from django.core.management.base import CommandError, OutputWrapper
from django.core.management.color import Style

from django_shedlock.durations import parse_duration
from django_shedlock.execution.executor import SKIPPED_EXIT_STATUS
from django_shedlock.execution.skips import operator_command
from django_shedlock.locks.status import LockStatus
from django_shedlock.processes import child, guard, run
from django_shedlock.providers import get_provider
from django_shedlock.providers.base import LockProvider, LockQuery

# To find the nearest one, an unknown name is compared with at most this many others.
COMPARED_NAMES_LIMIT = 1000


def command(provider: LockProvider, subcommand: str, *words: str) -> str:
    """Return the line for a shell that calls this subcommand with these words."""
    return operator_command(provider.alias, subcommand, *words)


class ExitStatus(IntEnum):
    """
    One status for each kind of error, the same in all subcommands.

    ``check`` exits with its verdict: 0, 1 or 2, as monitoring agents expect. ``run``
    exits with the status of its command, or with one of those from 123 on.
    """

    DONE = 0
    FAILED = 1
    WRONG_CALL = 2
    RUNNING = 3
    UNKNOWN = 4
    NOT_HELD = 5
    NOT_TOLD = 6
    PAUSED = 7
    SKIPPED = SKIPPED_EXIT_STATUS
    LOST = run.RunStatus.LOST
    TIMED_OUT = run.RunStatus.TIMED_OUT
    STORE_FAILED = run.RunStatus.STORE_FAILED
    CANNOT_START = guard.ShellStatus.CANNOT_START
    NOT_FOUND = guard.ShellStatus.NOT_FOUND
    UNREAD = child.status_of_signal(signal.SIGPIPE)
    """The program that reads the output has stopped."""


class WrongCall(CommandError):
    """Arguments or settings with which the subcommand can't work."""

    def __init__(self, message: str):
        super().__init__(message, returncode=ExitStatus.WRONG_CALL)


# Django prints the name of the error's class before its text.
WrongCall.__name__ = CommandError.__name__


class Subcommand(ABC):
    """A subcommand: its name, its arguments, and what it does."""

    name: ClassVar[str]
    help: ClassVar[str]
    stdout: OutputWrapper
    stderr: OutputWrapper
    style: Style

    def __init__(self, stdout: OutputWrapper, stderr: OutputWrapper, style: Style):
        self.stdout, self.stderr, self.style = stdout, stderr, style

    @classmethod
    @abstractmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """Add the subcommand's own arguments."""

    @abstractmethod
    def run(self, *args: Any, **options: Any) -> None:
        """Carry out the subcommand, or raise ``CommandError`` or ``ShedLockError``."""

    def handle(self, alias: str | None, **options: Any) -> None:
        """Run with the provider of this alias; ``None`` is the default provider."""
        self.run(get_provider(alias or "default"), **options)

    def write(self, text: str) -> None:
        """Write one or more lines; escape characters that the output can't encode."""
        encoding = getattr(self.stdout, "encoding", None) or "utf-8"
        self.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))


def add_names(parser: ArgumentParser) -> None:
    """Add the names of locks."""
    parser.add_argument(
        "name",
        nargs="*",
        help='only of these locks; patterns as in "import:*" may be among them',
    )


def add_output(parser: ArgumentParser) -> None:
    """Add the options for the form of the output."""
    add_switch(parser, "--wide", "show all columns, and cut nothing")
    add_switch(parser, "--json", "print JSON")


def add_reason(parser: ArgumentParser, *, is_required: bool = False) -> None:
    """Add the option in which the operator says why."""
    why = "why, for the log and receivers of the signal"
    parser.add_argument("--reason", default="", required=is_required, help=why)


def duration(text: str) -> timedelta:
    """Return the duration of an argument; refuse a negative one."""
    try:
        parsed = parse_duration(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error
    if parsed < timedelta(0):
        raise ArgumentTypeError(f"{text!r} must not be negative")
    return parsed


def positive(text: str) -> int:
    """Return the whole number of an argument; refuse one below 1."""
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def add_switch(parser: ArgumentParser, option: str, help: str) -> None:
    """Add an option that takes no value."""
    parser.add_argument(option, action="store_true", help=help)


def add_duration(
    parser: ArgumentParser, option: str, help: str, default: timedelta | None = None
) -> None:
    """Add an option that takes a duration."""
    parser.add_argument(
        option, metavar="DURATION", type=duration, default=default, help=help
    )


def operator() -> str:
    """Return the name of the system's user; a container's user may have no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def refuse_own_memory(provider: LockProvider, subcommand: str) -> None:
    """Raise ``WrongCall`` if each process has its own locks of this provider."""
    if not provider.is_shared:
        raise WrongCall(
            f"The provider {provider.alias!r} keeps its locks in the memory of "
            f"each process: `shedlock {subcommand}` finds none of another process, "
            "and changes nothing. Keep them in a store that all processes share."
        )


def find_status(provider: LockProvider, name: str) -> LockStatus:
    """Return the lock's status; raise ``CommandError`` if there is no such lock."""
    if (status := provider.status(name)) is not None:
        return status

    def candidates() -> Iterator[str]:
        for pattern in (f"{glob.escape(name[:3])}*", "*"):
            found = provider.statuses(LockQuery(patterns=(pattern,)))
            yield from (status.name for status in islice(found, COMPARED_NAMES_LIMIT))

    raise CommandError(
        f"There is no lock {name!r}.{nearest(name, candidates())} "
        f"`{command(provider, 'list')}` shows all of them.",
        returncode=ExitStatus.UNKNOWN,
    )


def nearest(name: str, names: Iterable[str]) -> str:
    """Return a question that suggests the nearest of the names; or an empty text."""
    found = difflib.get_close_matches(name, dict.fromkeys(names), n=1)
    return f" Did you mean {found[0]!r}?" if found else ""


def history_database(provider: LockProvider) -> str:
    """Return the alias of the database with the runs; ``CommandError`` if none."""
    if provider.history_database is None:
        raise WrongCall(f"The provider {provider.alias!r} keeps no history.")
    return provider.history_database
