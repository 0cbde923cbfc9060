"""``manage.py shedlock run``."""

import sys
import textwrap
from argparse import ArgumentParser
from dataclasses import replace
from datetime import timedelta

from django_shedlock.cli import base
from django_shedlock.clocks import host_now
from django_shedlock.durations import format_duration
from django_shedlock.locks.configuration import (
    ZERO,
    LockOptions,
    make_request,
    make_schedule,
)
from django_shedlock.processes.child import DEFAULT_KILL_AFTER
from django_shedlock.processes.run import run_command
from django_shedlock.providers.base import LockProvider
from django_shedlock.schedules.state import Start, Trigger


class Run(base.Subcommand):
    """Runs any program under a lock, and keeps the lock alive."""

    name = "run"
    group = base.Group.RUN
    example = "run nightly --lock-at-most-for 30m -- pg_dump shop"
    help = "run a command under a lock, or skip it"
    epilog = (
        "The exit status is the command's own. If a signal ended it, 128 plus the "
        "signal's number; 2, wrong arguments or settings; 75, the lock is held by the "
        "run that has started this one; 123, the lock was lost, so the command was "
        "ended; 124, its time limit was over, so the command was ended; 125, the store "
        "failed, so the command did not run; 126 and 127, as in a shell, the command "
        "can't be started, or is not found."
    )

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        parser.usage = "%(prog)s NAME [options] -- COMMAND [ARGS ...]"
        parser.epilog = textwrap.fill(cls.epilog, base.HELP_WIDTH)
        parser.add_argument("name", metavar="NAME", help="of the lock")
        base.add_duration(
            parser,
            "--lock-at-most-for",
            "when the lock is released if its worker dies; "
            "SHEDLOCK_DEFAULT_LOCK_AT_MOST_FOR by default",
        )
        base.add_duration(
            parser,
            "--lock-at-least-for",
            "how long the lock is kept after a short run; "
            "SHEDLOCK_DEFAULT_LOCK_AT_LEAST_FOR by default",
        )
        base.add_duration(
            parser,
            "--wait",
            "how long to wait for a lock that is held; 0s by default",
            ZERO,
        )
        parser.add_argument(
            "--schedule",
            metavar="EXPRESSION",
            action="append",
            help='run each tick once, as in "*/15 * * * *" or "every 20s"; may be '
            "repeated",
        )
        parser.add_argument(
            "--time-zone",
            metavar="ZONE",
            help="of the schedule; TIME_ZONE of the settings if not given",
        )
        base.add_switch(
            parser,
            "--force",
            "run even if the tick has been run, or if lock_at_least_for keeps the lock",
        )
        base.add_duration(
            parser,
            "--jitter",
            "start after a random delay of at most this; 0s by default",
            ZERO,
        )
        parser.add_argument(
            "--on-skip-exit",
            metavar="STATUS",
            type=int,
            default=0,
            help="the exit status if the lock is held; 0 by default",
        )
        base.add_duration(
            parser,
            "--time-limit",
            "end the command if it runs for longer than this; no limit by default",
        )
        base.add_duration(
            parser,
            "--kill-after",
            "time between SIGTERM and SIGKILL if the lock is lost, or the time limit "
            "is over; 5s by default",
            DEFAULT_KILL_AFTER,
        )
        parser.add_argument("command", metavar="COMMAND", nargs="+")

    def run(
        self,
        provider: LockProvider,
        *,
        name: str,
        command: list[str],
        schedule: list[str] | None,
        time_zone: str | None,
        force: bool,
        jitter: timedelta,
        time_limit: timedelta | None,
        kill_after: timedelta,
        on_skip_exit: int,
        verbosity: int,
        **options: object,
    ) -> None:
        if not command[0]:
            raise base.WrongCall("COMMAND must not be empty.")
        if on_skip_exit not in range(256):
            raise base.WrongCall("--on-skip-exit must be from 0 to 255.")
        if time_zone is not None and schedule is None:
            raise base.WrongCall("--time-zone needs a --schedule.")
        if time_limit is not None and not time_limit:
            raise base.WrongCall("--time-limit must be longer than 0s.")
        ticks = make_schedule(name, schedule, time_zone)
        known = [each for each in LockOptions.__annotations__ if each in options]
        of_lock = {option: options[option] for option in known}
        of_lock |= {"provider": provider.alias, "keep_alive": True, "schedule": ticks}
        request = make_request(name, of_lock)
        start = Start(Trigger.OPERATOR) if force else Start()
        if jitter and ticks is not None:
            if jitter >= ticks.interval:
                raise base.WrongCall(
                    f"--jitter ({format_duration(jitter)}) must be shorter than the "
                    "shortest time between two ticks of the --schedule "
                    f"({format_duration(ticks.interval)})."
                )
            if not force:  # after the jitter, it still runs the tick of this instant
                start = Start(asked_at=host_now())
        sys.exit(
            run_command(
                command,
                replace(request, start=start, is_for_process=True),
                kill_after=kill_after,
                time_limit=time_limit,
                jitter=jitter,
                on_skip_exit=on_skip_exit,
                stderr=self.stderr,
                verbosity=verbosity,
            )
        )
