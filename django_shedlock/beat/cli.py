"""``manage.py shedlock beat``."""

from argparse import ArgumentParser
from datetime import timedelta

from django_shedlock import conf
from django_shedlock.beat.looks import BEAT_LOOK_INTERVAL, EndTimes
from django_shedlock.beat.loop import BeatLoop, BeatOptions
from django_shedlock.cli import base
from django_shedlock.durations import format_duration
from django_shedlock.locks.configuration import default_duration
from django_shedlock.providers.base import LockProvider

END_TIMES = EndTimes()
"""The defaults of the options."""


class Beat(base.Subcommand):
    """Starts each job with a schedule at its ticks; see ``BeatLoop``."""

    name = "beat"
    group = base.Group.RUN
    example = "beat --jobs 8"
    help = "start each job with a schedule at its ticks, where there is no cron"

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--jobs",
            metavar="NUMBER",
            type=base.positive,
            default=4,
            help="how many jobs run here at once; 4 by default",
        )
        base.add_switch(
            parser,
            "--no-catch-up",
            "neither run overdue jobs nor those that operators ask for",
        )
        base.add_duration(
            parser,
            "--stop-timeout",
            "how long running jobs may go on after SIGTERM to the beat; 20s by default",
            END_TIMES.stop_timeout,
        )
        base.add_duration(
            parser,
            "--kill-after",
            "time between SIGTERM and SIGKILL to a job; 5s by default",
            END_TIMES.kill_after,
        )

    def run(
        self,
        provider: LockProvider,
        *,
        jobs: int,
        no_catch_up: bool,
        stop_timeout: timedelta,
        kill_after: timedelta,
        **options: object,
    ) -> None:
        if not conf.ENABLED.value:
            raise base.WrongCall(
                "With SHEDLOCK_ENABLED = False each host would run each job."
            )
        base.refuse_own_memory(provider, self.name)
        if not provider.keeps_ticks:
            raise base.WrongCall(
                f"The provider {provider.alias!r} keeps no ticks, so each host would "
                "run each job."
            )
        grace = default_duration(conf.GRACE)
        if grace < BEAT_LOOK_INTERVAL:
            raise base.WrongCall(
                f"SHEDLOCK_GRACE ({format_duration(grace)}) must be at least "
                f"{format_duration(BEAT_LOOK_INTERVAL)}: a beat looks that often, and "
                "starts no tick that is older than SHEDLOCK_GRACE."
            )
        end = EndTimes(stop_timeout, kill_after)
        loop = BeatLoop(provider, self, BeatOptions(jobs, not no_catch_up, end))
        if not loop.jobs.scheduled:
            raise base.WrongCall(
                f"No job of provider {provider.alias!r} has a schedule, so there is "
                "nothing to start."
            )
        loop.run()
