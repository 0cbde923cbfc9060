"""``manage.py shedlock beat``."""

from argparse import ArgumentParser
from datetime import timedelta

from django_shedlock import conf
from django_shedlock.beat.catch_up import CatchUp
from django_shedlock.beat.loop import BeatLoop
from django_shedlock.cli import base
from django_shedlock.providers.base import LockProvider


class Beat(base.Subcommand):
    """Starts each job with a schedule at its ticks; see ``BeatLoop``."""

    name = "beat"
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
            "--grace",
            "time between SIGTERM and SIGKILL at the end; 25s by default",
            timedelta(seconds=25),
        )

    def run(
        self,
        provider: LockProvider,
        *,
        jobs: int,
        no_catch_up: bool,
        grace: timedelta,
        verbosity: int,
        **options: object,
    ) -> None:
        if not conf.ENABLED.value:
            raise base.WrongCall(
                "With SHEDLOCK_ENABLED = False each host would run each job."
            )
        catching_up = None
        if not no_catch_up:
            catching_up = CatchUp(self.stdout, self.stderr, self.style)
        loop = BeatLoop(provider, self, catching_up, verbosity=verbosity)
        if not loop.scheduled:
            raise base.WrongCall(
                f"No job of provider {provider.alias!r} has a schedule, so there is "
                "nothing to start."
            )
        loop.run(jobs, grace)
