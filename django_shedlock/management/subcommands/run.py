"""``manage.py shedlock run``."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError

from django_shedlock.attempts import attempt
from django_shedlock.children import ended_when_lost
from django_shedlock.exceptions import (
    LockLost,
    LockProviderError,
)
from django_shedlock.holders import LockHolder
from django_shedlock.launcher import CANNOT_START, NOT_FOUND
from django_shedlock.locks import Lock
from django_shedlock.management.subcommands.arguments import duration, status
from django_shedlock.management.subcommands.base import Subcommand
from django_shedlock.options import LockRequest, parse_schedule
from django_shedlock.process_signals import Signals
from django_shedlock.providers.base import LockProvider
from django_shedlock.schedules import Schedule
from django_shedlock.triggers import Trigger

LOST = 123
STORE_FAILED = 125

EPILOG = f"""
The exit status is the command's own. If a signal ended it, 128 and the signal's
number; {LOST}, it was ended since the lock was lost; {STORE_FAILED}, the store failed,
and it did not run; {CANNOT_START} and {NOT_FOUND}, as in a shell, it can't be
started, or not be found.
"""


class Run(Subcommand):
    """Runs any program under a lock that is kept alive."""

    name = "run"
    help = "run a command under a lock, or skip it"

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """The lock, its options, and the command."""
        parser.usage = "%(prog)s NAME [options] -- COMMAND [ARGS ...]"
        parser.epilog = EPILOG
        parser.add_argument("name", metavar="NAME", help="of the lock")
        parser.add_argument("--lock-at-most-for", metavar="DURATION")
        parser.add_argument("--lock-at-least-for", metavar="DURATION")
        parser.add_argument(
            "--wait",
            metavar="DURATION",
            default="0s",
            help="for a lock that somebody else holds",
        )
        parser.add_argument(
            "--schedule",
            metavar="EXPRESSION",
            help='run each tick of a cron expression once, as in "*/15 * * * *"',
        )
        parser.add_argument(
            "--time-zone",
            metavar="ZONE",
            help="of the schedule; that of the settings if not given",
        )
        parser.add_argument(
            "--force",
            action="store_true",
            help="whether or not the tick has been run, and also while "
            "lock_at_least_for keeps the lock",
        )
        parser.add_argument(
            "--on-skip-exit",
            metavar="STATUS",
            type=status,
            default=0,
            help="the exit status if somebody else holds the lock; 0 if not given",
        )
        parser.add_argument(
            "--grace",
            metavar="DURATION",
            type=duration,
            default=timedelta(seconds=10),
            help="between SIGTERM and SIGKILL if the lock is lost; 10s if not given",
        )
        parser.add_argument("command", metavar="COMMAND", nargs="+")

    def run(
        self,
        provider: LockProvider,
        *,
        name: str,
        command: list[str],
        on_skip_exit: int,
        grace: timedelta,
        lock_at_most_for: str | None,
        lock_at_least_for: str | None,
        wait: str,
        schedule: str | None,
        time_zone: str | None,
        force: bool,
        **options: Any,
    ) -> None:
        """Exit with the command's status, or with that of a skip."""
        request = LockRequest(
            name,
            lock_at_most_for,
            lock_at_least_for,
            provider=provider.alias,
            keep_alive=True,
            wait=wait,
            schedule=_schedule(name, schedule, time_zone),
            trigger=Trigger.OPERATOR if force else Trigger.SCHEDULER,
        )
        signals = Signals()
        try:
            with signals.handled(), attempt(request, sleep=signals.sleep) as lock:
                if isinstance(lock, LockHolder):
                    signals.end_if_received()
                    sys.exit(on_skip_exit)
                sys.exit(run_child(command, lock, signals, grace))
        except LockLost as error:
            raise CommandError(str(error), returncode=LOST) from error
        except LockProviderError as error:
            raise CommandError(
                f"{error} The command did not run.", returncode=STORE_FAILED
            ) from error


def _schedule(
    name: str, expression: str | None, time_zone: str | None
) -> Schedule | str | None:
    if time_zone is None:
        return expression
    if expression is None:
        raise CommandError("--time-zone is that of a --schedule, which is missing.")
    return parse_schedule(name, expression, time_zone)


def run_child(
    command: list[str], lock: Lock, signals: Signals, grace: timedelta
) -> int:
    """Return the command's exit status, or ``LOST`` if the lock was lost."""
    with signals.started(command) as child, ended_when_lost(lock, child, grace):
        exit_status = child.wait()
    return LOST if lock.lost.is_set() else exit_status
