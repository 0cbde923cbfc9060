"""Show, release and extend locks from the command line."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from django_shedlock.configuration import check_lease, parse_option
from django_shedlock.durations import format_seconds
from django_shedlock.exceptions import ShedLockError
from django_shedlock.providers import get_provider
from django_shedlock.providers.base import LockProvider
from django_shedlock.states import LockState, LockStatus

FAILED = 1
RUNNING = 3

EPILOG = f"""
Exit statuses: 0, done; {FAILED}, there is no such lock, it is not held, or the store
failed; 2, the call is wrong; {RUNNING}, the lock's job is running and --force was not
given.
"""
COLUMNS = ("NAME", "STATE", "LOCKED BY", "LOCKED AT", "REMAINING")


class Command(BaseCommand):
    """``manage.py shedlock list | release NAME | extend NAME DURATION``."""

    help = "Shows the locks of scheduled jobs, and releases or extends them."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add a subcommand for each of the methods below."""
        parser.epilog = EPILOG
        parser.add_argument(
            "--provider", default="default", help="alias in SHEDLOCK_PROVIDERS"
        )
        commands = parser.add_subparsers(required=True, metavar="COMMAND")
        listing = commands.add_parser("list", help="show all locks")
        listing.add_argument("--json", action="store_true", help="for programs")
        listing.set_defaults(method=self.list)
        release = commands.add_parser(
            "release", help="free a lock that lock_at_least_for keeps"
        )
        release.add_argument("name")
        release.add_argument(
            "--force",
            action="store_true",
            help="also if its job runs: another one may start, this one is not stopped",
        )
        release.set_defaults(method=self.release)
        extend = commands.add_parser("extend", help="lengthen the lease of a held lock")
        extend.add_argument("name")
        extend.add_argument("duration", help='counts from now, as in "30s" or "1h30m"')
        extend.set_defaults(method=self.extend)

    def handle(self, *args: Any, method: Any, provider: str, **options: Any) -> None:
        """Call the subcommand's method."""
        try:
            method(get_provider(provider), **options)
        except (ShedLockError, ImproperlyConfigured) as error:
            raise CommandError(str(error), returncode=FAILED) from error

    def list(self, provider: LockProvider, *, json: bool, **options: Any) -> None:
        """Print a table of all locks, or JSON."""
        statuses = provider.statuses()
        self.stdout.write(as_json(statuses) if json else as_table(statuses))

    def release(
        self, provider: LockProvider, *, name: str, force: bool, **options: Any
    ) -> None:
        """Free the lock, or say why not."""
        if provider.force_release(name, running=force):
            self.stdout.write(f"Lock {name!r} is released.")
            return
        status = find_status(provider, name)
        if status.state is LockState.RUNNING:
            raise CommandError(
                f"Lock {name!r} is not released: its job is running as "
                f"{status.locked_by}. With --force it is released all the same, and "
                "another worker may start the job while this one goes on.",
                returncode=RUNNING,
            )
        raise CommandError(f"Lock {name!r} is not held.", returncode=FAILED)

    def extend(
        self, provider: LockProvider, *, name: str, duration: str, **options: Any
    ) -> None:
        """Lengthen the lease, or say why not."""
        lease = parse_option(name, "duration", duration)
        check_lease(name, lease)
        if not provider.force_extend(name, lease):
            find_status(provider, name)
            raise CommandError(f"Lock {name!r} is not held.", returncode=FAILED)
        remaining = format_seconds(find_status(provider, name).remaining)
        self.stdout.write(f"Lock {name!r} is held for {remaining} more at the most.")


def find_status(provider: LockProvider, name: str) -> LockStatus:
    """Return the lock's status, or raise ``CommandError``."""
    for status in provider.statuses(name):
        return status
    raise CommandError(
        f"There is no lock {name!r}. `shedlock list` shows all of them.",
        returncode=FAILED,
    )


def as_table(statuses: Sequence[LockStatus]) -> str:
    """Return the locks in columns."""
    if not statuses:
        return "There are no locks yet."
    rows = [COLUMNS, *(_row(status) for status in statuses)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    )


def as_json(statuses: Sequence[LockStatus]) -> str:
    """Return the locks as a JSON list; durations are seconds."""
    return json.dumps(
        [
            {
                "name": status.name,
                "state": status.state.value,
                "locked_by": status.locked_by,
                "locked_at": status.locked_at.isoformat(),
                "lock_until": status.lock_until.isoformat(),
                "remaining": status.remaining.total_seconds(),
            }
            for status in statuses
        ],
        indent=2,
    )


def _row(status: LockStatus) -> tuple[str, ...]:
    return (
        status.name,
        status.state.value,
        status.locked_by,
        _local(status),
        format_seconds(status.remaining) if status.state.is_held else "-",
    )


def _local(status: LockStatus) -> str:
    moment = status.locked_at
    if timezone.is_aware(moment):
        moment = timezone.localtime(moment)
    return moment.isoformat(sep=" ", timespec="seconds")
