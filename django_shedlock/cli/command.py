"""``manage.py shedlock``: its subcommands, their common options, and their errors."""

import os
import sys
import textwrap
from argparse import SUPPRESS, ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import (
    BaseCommand,
    CommandError,
    CommandParser,
    DjangoHelpFormatter,
)
from django.db import Error
from django.utils.connection import ConnectionDoesNotExist

from django_shedlock.cli.base import HELP_WIDTH, ExitStatus, Group, Subcommand
from django_shedlock.cli.history import History
from django_shedlock.cli.listing import Listing
from django_shedlock.cli.operators import Extend, Release
from django_shedlock.cli.prune import Prune
from django_shedlock.cli.run import Run
from django_shedlock.cli.show import Show
from django_shedlock.cli.trigger import TriggerJob
from django_shedlock.exceptions import (
    InvalidLockConfiguration,
    LockProviderError,
    ShedLockError,
)
from django_shedlock.execution.skips import PROGRAM
from django_shedlock.providers import get_provider
from django_shedlock.sql.errors import is_missing_table, migrate_command


def subcommands() -> dict[str, type[Subcommand]]:
    """
    Return all subcommands by name; ``--help`` keeps their order within a group.

    The config of an app may have ``shedlock_subcommands()``, which returns classes. A
    class with the name of a subcommand of the core takes its place.
    """
    of_core: list[type[Subcommand]] = [
        *(Listing, Show, History, Release, Extend, Prune, Run, TriggerJob)
    ]
    found = {each.name: each for each in of_core}
    for config in apps.get_app_configs():
        if hasattr(config, "shedlock_subcommands"):
            found |= {each.name: each for each in config.shedlock_subcommands()}
    return found


PROVIDER_HELP = (
    'alias in SHEDLOCK_PROVIDERS; by default "default", and for `check` all of them'
)


class HelpFormatter(DjangoHelpFormatter, RawDescriptionHelpFormatter):
    """Keeps the lines of the list of subcommands, and those of examples."""


def _listed(found: Mapping[str, type[Subcommand]]) -> str:
    """Return the subcommands in groups, each with its example."""
    width = max(map(len, found))
    indent = " " * (width + 4)
    lines = []
    for group in Group:
        lines += ["", f"{group.value}:"]
        for each in found.values():
            if each.group is group:
                title = f"  {each.name:<{width}}  "
                lines += textwrap.wrap(
                    each.help,
                    HELP_WIDTH,
                    initial_indent=title,
                    subsequent_indent=indent,
                )
                lines += [f"{indent}$ shedlock {each.example}"]
    return "\n".join(lines)


def _add_common_options(parser: ArgumentParser) -> None:
    common = parser.add_argument_group(
        "common options", "These may also stand before the subcommand."
    )
    # An option after the subcommand replaces the same option before it. If it is not
    # given, its default must not replace that one.
    common.add_argument("--provider", default=SUPPRESS, help=PROVIDER_HELP)
    common.add_argument(
        "-v", "--verbosity", default=SUPPRESS, type=int, choices=[0, 1, 2, 3]
    )
    common.add_argument("--settings", default=SUPPRESS, metavar="MODULE")
    common.add_argument("--pythonpath", default=SUPPRESS, metavar="FOLDER")
    for option in ("--no-color", "--force-color"):
        common.add_argument(option, default=SUPPRESS, action="store_true")
    common.add_argument(
        "--traceback",
        default=SUPPRESS,
        action="store_true",
        help="raise a command's error with its traceback; `show` and `history` also "
        "print those of the runs",
    )


class Command(BaseCommand):
    """``manage.py shedlock SUBCOMMAND``."""

    help = "Shows the locks of scheduled jobs, and releases or extends them."
    requires_system_checks: tuple[str, ...] = ()
    epilog = (
        "Exit statuses: 0, done; 1, a job failed, or `check` found something; 2, wrong "
        "arguments or settings, or `check` found that no job can run; 3, the lock's "
        "job is running; 4, there is no such lock or job; 5, the lock is not held; 6, "
        "a mail or a post could not be sent; 7, the job is paused; 125, the store "
        "failed. `run` exits with the status of its command."
    )

    def create_parser(
        self, prog_name: str, subcommand: str, **kwargs: Any
    ) -> CommandParser:
        """Return the parser; its help keeps the lines of its texts."""
        kwargs["formatter_class"] = HelpFormatter
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: ArgumentParser) -> None:
        found = subcommands()
        parser.description = f"{self.help}\n{_listed(found)}"
        parser.epilog = textwrap.fill(self.epilog, HELP_WIDTH)
        parser.add_argument("--provider", help=PROVIDER_HELP)
        commands = parser.add_subparsers(
            required=True,
            metavar="COMMAND",
            help="one of these; `COMMAND --help` shows its options",
        )
        for subcommand in found.values():
            own = commands.add_parser(subcommand.name, formatter_class=HelpFormatter)
            subcommand.add_arguments(own)
            own.add_argument_group("example", f"{PROGRAM} {subcommand.example}")
            own.set_defaults(subcommand=subcommand)
            _add_common_options(own)

    def handle(
        self,
        *args: object,
        subcommand: type[Subcommand],
        provider: str | None,
        **options: object,
    ) -> None:
        wrong = (InvalidLockConfiguration, ImproperlyConfigured, ConnectionDoesNotExist)
        try:
            made = subcommand(self.stdout, self.stderr, self.style)
            made.handle(provider, **options)
        except wrong as error:
            raise CommandError(error, returncode=ExitStatus.WRONG_CALL) from error
        except LockProviderError as error:
            raise CommandError(error, returncode=ExitStatus.STORE_FAILED) from error
        except ShedLockError as error:
            raise CommandError(error, returncode=ExitStatus.FAILED) from error
        except Error as error:
            told = f"The database failed: {str(error).strip()}"
            if is_missing_table(error):
                using = str(get_provider(provider or "default").history_database)
                migrate = migrate_command(using)
                told = f"A table is missing in database {using!r}. Run `{migrate}`."
            raise CommandError(told, returncode=ExitStatus.STORE_FAILED) from error
        except BrokenPipeError:
            # Otherwise Python fails again at its end, when it flushes the rest.
            with suppress(OSError), Path(os.devnull).open("w") as nothing:
                os.dup2(nothing.fileno(), self.stdout.fileno())
            sys.exit(ExitStatus.UNREAD)
