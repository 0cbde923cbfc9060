"""``manage.py shedlock release`` and ``extend``."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from django_shedlock.console.cli.base import (
    ExitStatus,
    Subcommand,
    add_reason,
    failure,
    find_status,
    operator,
)
from django_shedlock.console.cli.terminal import printable
from django_shedlock.console.operators import OperatorAction
from django_shedlock.locks.configuration import check_durations, parse_option
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
        status = find_status(provider, name)
        by = {"operator": operator(), "reason": reason}
        action = OperatorAction(provider, name, status.locked_by, **by)
        answer = action.release(running=force)
        told = printable(answer.detail)
        if answer:
            self.stdout.write(told)
            return
        exit_status = failure(answer)
        if exit_status is ExitStatus.RUNNING:
            told = f"{told}{WITH_FORCE}"
        elif exit_status is ExitStatus.PAUSED:
            told = f"{told} `shedlock resume {name}` ends the pause."
        raise CommandError(told, returncode=exit_status)


WITH_FORCE = (
    " With --force it is released all the same, and another worker may start the job "
    "while this one goes on."
)


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
        status = find_status(provider, name)
        by = {"operator": operator(), "reason": reason}
        answer = OperatorAction(provider, name, status.locked_by, **by).extend(lease)
        if not answer:
            raise CommandError(printable(answer.detail), returncode=failure(answer))
        self.stdout.write(printable(answer.detail))
