"""``manage.py shedlock run``."""

from __future__ import annotations

import random
import sys
from argparse import Action, ArgumentError, ArgumentParser
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError

from django_shedlock.attempts import attempt
from django_shedlock.clocks import host_now
from django_shedlock.console.cli.base import (
    ExitStatus,
    Subcommand,
    duration,
    exit_status,
)
from django_shedlock.durations import format_duration
from django_shedlock.exceptions import LockLost, LockProviderError
from django_shedlock.locks.configuration import (
    ZERO,
    LockRequest,
    make_request,
    make_schedule,
)
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.states import LockHolder
from django_shedlock.providers.base import LockProvider
from django_shedlock.schedules.state import Start, Trigger
from django_shedlock.wrapper.child import Program, ended_when_lost
from django_shedlock.wrapper.forwarding import SignalForwarder
from django_shedlock.wrapper.inheritance import descriptors

LOCK_OPTIONS = ("lock_at_most_for", "lock_at_least_for", "wait")
LOST, STORE_FAILED = ExitStatus.LOST, ExitStatus.STORE_FAILED

EPILOG = f"""
The exit status is the command's own. If a signal ended it, 128 plus the signal's
number; 2, wrong arguments or settings; {LOST}, the lock was lost, so the command was
ended; {STORE_FAILED}, the store failed, so the command did not run;
{ExitStatus.CANNOT_START} and {ExitStatus.NOT_FOUND}, as in a shell, the command can't
be started, or is not found.
"""


class Run(Subcommand):
    """Runs any program under a lock, and keeps the lock alive."""

    name = "run"
    help = "run a command under a lock, or skip it"

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """Add the lock, its options, and the command."""
        parser.usage = "%(prog)s NAME [options] -- COMMAND [ARGS ...]"
        parser.epilog = EPILOG
        parser.add_argument("name", metavar="NAME", help="of the lock")
        parser.add_argument("--lock-at-most-for", metavar="DURATION")
        parser.add_argument("--lock-at-least-for", metavar="DURATION")
        parser.add_argument(
            "--wait",
            metavar="DURATION",
            default="0s",
            help="how long to wait for a lock that somebody else holds; 0s by default",
        )
        parser.add_argument(
            "--schedule",
            metavar="EXPRESSION",
            help='run each tick of a cron expression once, as in "*/15 * * * *"',
        )
        parser.add_argument(
            "--time-zone",
            metavar="ZONE",
            help="of the schedule; TIME_ZONE of the settings if not given",
        )
        parser.add_argument(
            "--force",
            action="store_true",
            help="run even if the tick has been run, or if lock_at_least_for keeps the "
            "lock",
        )
        parser.add_argument(
            "--jitter",
            metavar="DURATION",
            type=duration,
            default=ZERO,
            help="start later, by a random time that is no longer; 0s by default",
        )
        parser.add_argument(
            "--on-skip-exit",
            metavar="STATUS",
            type=exit_status,
            default=0,
            help="the exit status if somebody else holds the lock; 0 by default",
        )
        parser.add_argument(
            "--grace",
            metavar="DURATION",
            type=duration,
            default=timedelta(seconds=10),
            help="time between SIGTERM and SIGKILL if the lock is lost; 10s by default",
        )
        parser.add_argument("command", metavar="COMMAND", nargs="+", action=_Command)

    def run(
        self,
        provider: LockProvider,
        *,
        command: list[str],
        on_skip_exit: int,
        grace: timedelta,
        jitter: timedelta,
        **options: Any,
    ) -> None:
        """Exit with the command's status, or with that of a skip."""
        program = Program(command, grace, descriptors())
        request = _jittered(_request(provider, **options), jitter)
        signals = SignalForwarder()
        try:
            with signals.handled():
                if jitter:
                    signals.sleep(random.uniform(0, jitter.total_seconds()))
                sys.exit(_run(program, request, signals, on_skip_exit))
        except LockLost as error:
            raise CommandError(str(error), returncode=LOST) from error
        except LockProviderError as error:
            raise CommandError(
                f"{error} The command did not run.", returncode=STORE_FAILED
            ) from error


class _Command(Action):
    # A program without a name; an empty argument of a program is none of our business.
    def __call__(
        self, parser: Any, namespace: Any, values: Any, option: str | None = None
    ) -> None:
        if not values[0]:
            raise ArgumentError(self, "must not be empty")
        setattr(namespace, self.dest, values)


def _request(
    provider: LockProvider,
    *,
    name: str,
    schedule: str | None,
    time_zone: str | None,
    force: bool,
    **options: Any,
) -> LockRequest:
    if time_zone is not None and schedule is None:
        problem = "--time-zone needs a --schedule."
        raise CommandError(problem, returncode=ExitStatus.WRONG_CALL)
    request = make_request(name, {option: options[option] for option in LOCK_OPTIONS})
    return replace(
        request,
        provider=provider.alias,
        keep_alive=True,
        schedule=make_schedule(name, schedule, time_zone),
        start=Start(Trigger.OPERATOR if force else Trigger.SCHEDULER),
    )


def _jittered(request: LockRequest, jitter: timedelta) -> LockRequest:
    # A start that comes later is still for the tick of now.
    if not jitter or request.schedule is None:
        return request
    interval = request.schedule.interval
    if jitter >= interval:
        raise CommandError(
            f"--jitter ({format_duration(jitter)}) must be shorter than the shortest "
            f"time between two ticks of the --schedule ({format_duration(interval)}).",
            returncode=ExitStatus.WRONG_CALL,
        )
    if request.start.trigger is not Trigger.SCHEDULER:
        return request
    return replace(request, start=Start(asked_at=host_now()))


def _run(
    program: Program, request: LockRequest, signals: SignalForwarder, on_skip_exit: int
) -> int:
    with attempt(request, sleep=signals.sleep) as lock:
        if isinstance(lock, LockHolder):
            signals.end_if_received()
            return on_skip_exit
        sys.exit(run_child(program, lock, signals))


def run_child(program: Program, lock: Lock, signals: SignalForwarder) -> int:
    """Return the command's exit status, or ``LOST`` if the lock was lost."""
    with signals.started(program) as child, ended_when_lost(lock, child):
        ended_with = child.wait()
    return LOST if lock.lost.is_set() else ended_with
