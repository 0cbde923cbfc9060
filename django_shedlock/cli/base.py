"""What the subcommands share: exit statuses, arguments, and the search for a lock."""

import difflib
import getpass
import glob
import os
import signal
from abc import ABC, abstractmethod
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from enum import IntEnum, StrEnum
from itertools import islice
from typing import Any, ClassVar

from django.core.management.base import CommandError, OutputWrapper
from django.core.management.color import Style

from django_shedlock.cli.terminal import printable
from django_shedlock.durations import parse_duration
from django_shedlock.execution.executor import SKIPPED_EXIT_STATUS
from django_shedlock.execution.skips import operator_command
from django_shedlock.locks.patterns import WILDCARD
from django_shedlock.locks.pauses import FOREVER
from django_shedlock.locks.status import LockStatus
from django_shedlock.processes import child, guard, run
from django_shedlock.providers import get_provider
from django_shedlock.providers.base import LockProvider, LockQuery

# To find the nearest one, an unknown name is compared with at most this many others.
COMPARED_NAMES_LIMIT = 1000
HELP_WIDTH = 78
"""Characters of a line of the help, where argparse does not wrap it."""


def command(provider: LockProvider, subcommand: str, *words: str) -> str:
    """Return the line for a shell that calls this subcommand with these words."""
    return operator_command(provider.alias, subcommand, *words)


def release_words(status: LockStatus) -> list[str]:
    """
    Return the words for ``command()`` that release the acquisition that has the lock.

    While its lease runs they end with ``--reason``: a person has to say it.
    """
    words = ["release", status.name, "--held-by", status.locked_by]
    return [*words, "--reason"] if status.state.is_in_use else words


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


class Group(StrEnum):
    """What subcommands are for, in the order in which ``--help`` shows them."""

    LOOK = "Look"
    ACT = "Act"
    RUN = "Run"
    TIDY = "Tidy up"


class Subcommand(ABC):
    """
    A subcommand: its name, its arguments, and what it does.

    ``--help`` shows it in its ``group``, with an ``example``: the words after
    ``manage.py shedlock``, as in ``"show nightly"``. Each class that is called needs
    all four attributes.
    """

    name: ClassVar[str]
    group: ClassVar[Group]
    help: ClassVar[str]
    example: ClassVar[str]
    stdout: OutputWrapper
    stderr: OutputWrapper
    style: Style

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if hasattr(cls, "name"):
            for attribute in ("group", "help", "example"):
                if not hasattr(cls, attribute):
                    raise TypeError(f"Subcommand {cls.name!r} needs {attribute!r}.")

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


def add_names(parser: ArgumentParser, *, is_required: bool = False) -> None:
    """Add the names of locks; at least one if it ``is_required``."""
    parser.add_argument(
        "name",
        nargs="+" if is_required else "*",
        help='only of these locks; patterns as in "import:*" may be among them',
    )


def add_output(parser: ArgumentParser) -> None:
    """Add the options for the form of the output."""
    add_switch(parser, "--wide", "show all columns, and cut nothing")
    add_switch(parser, "--json", "print JSON")


def add_name(parser: ArgumentParser) -> None:
    """Add the name of one lock."""
    parser.add_argument("name", help="of the job's lock")


def add_held_by(parser: ArgumentParser) -> None:
    """Add the option that binds a change to one acquisition."""
    parser.add_argument(
        "--held-by",
        metavar="IDENTITY",
        default="",
        help="do it only if this acquisition still has the lock; `show` names it",
    )


def add_reason(parser: ArgumentParser, *, is_required: bool = False) -> None:
    """Add the option in which the operator says why; a blank text is no reason."""
    parser.add_argument(
        "--reason",
        type=_reason if is_required else str.strip,
        default="",
        required=is_required,
        help="why, for the log and receivers of the signal",
    )


def _reason(text: str) -> str:
    if reason := text.strip():
        return reason
    raise ArgumentTypeError("say why: the text is blank")


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
    """Return the whole number of an argument; refuse one below 1, or far too large."""
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a positive number")
    if len(text) >= 10:
        raise ArgumentTypeError(f"{text!r} is too large")
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


def add_lasting(parser: ArgumentParser, help: str) -> None:
    """Add the option ``--for``, which is ``lasting`` in the code."""
    parser.add_argument(
        "--for",
        dest="lasting",
        metavar="DURATION",
        type=duration,
        default=FOREVER,
        help=help,
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
    raise _unknown_lock(provider, name)


def find_statuses(provider: LockProvider, names: Sequence[str]) -> Iterator[LockStatus]:
    """
    Return the locks with these names, or that match these patterns, by name.

    Raises ``CommandError`` for the first name or pattern that finds nothing.
    """
    for name in names:
        check_name(provider, name)
    return provider.statuses(LockQuery(patterns=tuple(names)))


def check_name(provider: LockProvider, name: str) -> None:
    """Raise ``CommandError`` if no lock has this name, or matches this pattern."""
    if has_match(provider, name):
        return
    if WILDCARD.search(name):
        raise unmatched_pattern(provider, name)
    raise _unknown_lock(provider, name)


def has_match(provider: LockProvider, pattern: str) -> bool:
    """Return whether a lock has this name, or matches this pattern."""
    if not WILDCARD.search(pattern):
        return provider.status(pattern) is not None
    return any(provider.statuses(LockQuery(patterns=(pattern,), limit=1)))


def unmatched_pattern(provider: LockProvider, pattern: str) -> CommandError:
    """Return the error that no lock matches the pattern."""
    return CommandError(
        f"No lock matches the pattern {pattern!r}. `{command(provider, 'list')}` "
        "shows all of them.",
        returncode=ExitStatus.UNKNOWN,
    )


def needless_pattern(option: str, pattern: str) -> str:
    """Say that this value of an option has no effect now: it may be misspelt."""
    return printable(f"{option} {pattern!r} matches no lock that is known.")


def _unknown_lock(provider: LockProvider, name: str) -> CommandError:
    def candidates() -> Iterator[str]:
        for pattern in (f"{glob.escape(name[:3])}*", "*"):
            found = provider.statuses(LockQuery(patterns=(pattern,)))
            yield from (status.name for status in islice(found, COMPARED_NAMES_LIMIT))

    hint = nearest(name, candidates())
    if WILDCARD.search(name):
        hint = " It looks like a pattern, but a name is needed here."
    return CommandError(
        f"There is no lock {name!r}.{hint} "
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
