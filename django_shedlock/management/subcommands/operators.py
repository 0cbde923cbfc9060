"""``manage.py shedlock release`` and ``extend``."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from django_shedlock.durations import format_seconds
from django_shedlock.locks.configuration import check_durations, parse_option
from django_shedlock.management.subcommands.base import (
    FAILED,
    RUNNING,
    Subcommand,
    add_reason,
    find_status,
    operator,
    printable,
)
from django_shedlock.operators import OperatorAction
from django_shedlock.providers.base import LockProvider


class Release(Subcommand):
    """Releases somebody else's lock."""

    name = "release"
    help = "release a lock that lock_at_least_for keeps; with --force, any lock"

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """Add the lock, and whether its job may be running."""
        parser.add_argument("name", help="of the lock")
        parser.add_argument(
            "--force",
            action="store_true",
            help="release it even if its job is running, or its lease is over; the job "
            "is not stopped, and another worker may start it as well",
        )
        add_reason(parser)

    def run(
        self,
        provider: LockProvider,
        *,
        name: str,
        force: bool,
        reason: str,
        **options: Any,
    ) -> None:
        """Release the lock, or say why not."""
        action = OperatorAction(provider, name, operator=operator(), reason=reason)
        if action.release(running=force):
            self.stdout.write(f"Lock {name!r} is released.")
            return
        status = find_status(provider, name)
        if status.state.may_run:
            runs = "is running" if status.state.is_running else "may still be running"
            raise CommandError(
                f"Lock {name!r} is not released: its job {runs} as "
                f"{printable(status.locked_by)}. With --force it is released all the "
                "same, and another worker may start the job while this one goes on.",
                returncode=RUNNING,
            )
        raise CommandError(f"Lock {name!r} is not held.", returncode=FAILED)


class Extend(Subcommand):
    """Extends somebody else's lease."""

    name = "extend"
    help = "extend the lease of a held lock; never shorten it"

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """Add the lock, and how long its lease shall last."""
        parser.add_argument("name", help="of the lock")
        parser.add_argument("duration", help='counts from now, as in "30s" or "1h30m"')
        add_reason(parser)

    def run(
        self,
        provider: LockProvider,
        *,
        name: str,
        duration: str,
        reason: str,
        **options: Any,
    ) -> None:
        """Extend the lease, or say why not."""
        lease = parse_option(name, "duration", duration)
        check_durations(name, lease)
        action = OperatorAction(provider, name, operator=operator(), reason=reason)
        if not action.extend(lease):
            find_status(provider, name)
            raise CommandError(f"Lock {name!r} is not held.", returncode=FAILED)
        remaining = format_seconds(find_status(provider, name).remaining)
        self.stdout.write(f"Lock {name!r} is held for {remaining} more at the most.")
