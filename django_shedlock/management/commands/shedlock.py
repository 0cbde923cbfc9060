"""For operators: show, release and extend locks, and find out what went wrong."""

from __future__ import annotations

import os
import sys
from argparse import SUPPRESS, ArgumentParser
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import (
    BaseCommand,
    CommandError,
    DjangoHelpFormatter,
    OutputWrapper,
)
from django.db import Error
from django.utils.connection import ConnectionDoesNotExist

from django_shedlock.console.cli import SUBCOMMANDS
from django_shedlock.console.cli.base import Subcommand
from django_shedlock.console.cli.statuses import ExitStatus
from django_shedlock.console.cli.terminal import Terminal
from django_shedlock.exceptions import (
    InvalidLockConfiguration,
    LockProviderError,
    ShedLockError,
)
from django_shedlock.providers import get_provider
from django_shedlock.providers.database.errors import is_missing_table, migrate_command

EPILOG = """
Exit statuses: 0, done; 1, a job failed, or `check` found something; 2, wrong arguments
or settings, or `check` found that no job can run; 3, the lock's job is running; 4,
there is no such lock or job; 5, the lock is not held; 6, a mail could not be sent; 7,
the job is paused; 125, the store failed. `run` exits with the status of its command.
"""
WRONG = (InvalidLockConfiguration, ImproperlyConfigured, ConnectionDoesNotExist)
PROVIDER = (
    'alias in SHEDLOCK_PROVIDERS; by default "default", and for `check` all of them'
)


class Command(BaseCommand):
    """``manage.py shedlock SUBCOMMAND``."""

    help = "Shows the locks of scheduled jobs, and releases or extends them."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the subcommands, each also with the options of the command itself."""
        parser.epilog = EPILOG
        parser.add_argument("--provider", help=PROVIDER)
        commands = parser.add_subparsers(required=True, metavar="COMMAND")
        for subcommand in SUBCOMMANDS:
            own = commands.add_parser(
                subcommand.name,
                help=subcommand.help,
                formatter_class=DjangoHelpFormatter,
            )
            subcommand.add_arguments(own)
            _add_common(own)
            own.set_defaults(subcommand=subcommand)

    def handle(
        self,
        *args: Any,
        subcommand: type[Subcommand],
        provider: str | None,
        **options: Any,
    ) -> None:
        """Run the subcommand."""
        colours = bool(options["force_color"])
        terminal = Terminal(self.stdout, self.style, colours=colours)
        try:
            subcommand(self.stdout, terminal, self.stderr).handle(provider, **options)
        except WRONG as error:
            raise _as_error(error, ExitStatus.WRONG_CALL) from error
        except LockProviderError as error:
            raise _as_error(error, ExitStatus.STORE_FAILED) from error
        except ShedLockError as error:
            raise _as_error(error, ExitStatus.FAILED) from error
        except Error as error:
            raise CommandError(
                _database_problem(error, provider), returncode=ExitStatus.STORE_FAILED
            ) from error
        except BrokenPipeError:
            _discard(self.stdout)
            sys.exit(ExitStatus.UNREAD)


def _add_common(parser: ArgumentParser) -> None:
    # What stands before the subcommand counts, unless it is given here as well.
    common = parser.add_argument_group(
        "common options", "These may also stand before the subcommand."
    )
    common.add_argument("--provider", default=SUPPRESS, help=PROVIDER)
    common.add_argument(
        "-v", "--verbosity", default=SUPPRESS, type=int, choices=[0, 1, 2, 3]
    )
    common.add_argument("--settings", default=SUPPRESS, metavar="MODULE")
    common.add_argument("--pythonpath", default=SUPPRESS, metavar="FOLDER")
    for option in ("--traceback", "--no-color", "--force-color"):
        common.add_argument(option, action="store_true", default=SUPPRESS)


def _as_error(error: Exception, status: ExitStatus) -> CommandError:
    return CommandError(str(error), returncode=status)


def _database_problem(error: Error, alias: str | None) -> str:
    if not is_missing_table(error):
        return f"The database failed: {str(error).strip()}"
    using = get_provider(alias or "default").history_database
    return (
        f"A table is missing in database {using!r}. Run "
        f"`{migrate_command(str(using))}`."
    )


def _discard(output: OutputWrapper) -> None:
    # Otherwise Python fails again at its end, when it flushes the rest.
    with suppress(OSError), Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), output.fileno())
