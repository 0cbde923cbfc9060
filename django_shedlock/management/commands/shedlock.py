"""For operators: show, release and extend locks, and find out what went wrong."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, OutputWrapper
from django.db import Error
from django.utils.connection import ConnectionDoesNotExist

from django_shedlock.exceptions import ShedLockError
from django_shedlock.management.subcommands import SUBCOMMANDS
from django_shedlock.management.subcommands.base import FAILED, RUNNING, Subcommand

EPILOG = f"""
Exit statuses: 0, done; {FAILED}, there is no such lock, it is not held, or the store
failed; 2, wrong arguments; {RUNNING}, the lock's job is running and --force was not
given. `check` and `run` have exit statuses of their own.
"""
UNREAD = 141
"""A shell's exit status for SIGPIPE: the output's reader has stopped."""
WRONG_SETTINGS = (ImproperlyConfigured, ConnectionDoesNotExist)


class Command(BaseCommand):
    """``manage.py shedlock SUBCOMMAND``."""

    help = "Shows the locks of scheduled jobs, and releases or extends them."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the subcommands."""
        parser.epilog = EPILOG
        parser.add_argument(
            "--provider",
            help='alias in SHEDLOCK_PROVIDERS; by default "default", and for `check` '
            "all of them",
        )
        commands = parser.add_subparsers(required=True, metavar="COMMAND")
        for subcommand in SUBCOMMANDS:
            own = commands.add_parser(subcommand.name, help=subcommand.help)
            subcommand.add_arguments(own)
            own.set_defaults(subcommand=subcommand)

    def handle(
        self,
        *args: Any,
        subcommand: type[Subcommand],
        provider: str | None,
        **options: Any,
    ) -> None:
        """Run the subcommand."""
        try:
            subcommand(self.stdout).handle(provider, **options)
        except (ShedLockError, *WRONG_SETTINGS) as error:
            raise CommandError(str(error), returncode=FAILED) from error
        except Error as error:
            problem = f"The database failed: {str(error).strip()}"
            raise CommandError(problem, returncode=FAILED) from error
        except BrokenPipeError:
            _discard(self.stdout)
            sys.exit(UNREAD)


def _discard(output: OutputWrapper) -> None:
    # Otherwise Python fails again at its end, when it flushes the rest.
    with suppress(OSError), Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), output.fileno())
