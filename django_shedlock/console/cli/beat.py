"""``manage.py shedlock beat``."""

import math
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from django_shedlock import conf
from django_shedlock.clocks import aware, local_text, uptime
from django_shedlock.console.cli import base
from django_shedlock.console.cli.operators import CatchUp
from django_shedlock.console.cli.terminal import printable
from django_shedlock.console.operators.requests import (
    MAY_START,
    carry_out_requests,
    jobs_by_name,
    open_requests,
)
from django_shedlock.exceptions import LockProviderError, message_of
from django_shedlock.locks.configuration import default_duration
from django_shedlock.locks.status import LockState
from django_shedlock.processes.forks import Forks
from django_shedlock.providers.base import LockProvider, LockQuery
from django_shedlock.registry.catch_up import note_catch_up
from django_shedlock.registry.discovery import named_jobs
from django_shedlock.registry.jobs import Job
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import Start
from django_shedlock.signals import logger

LOOK = 60.0
"""Seconds between two looks at the store's clock and at what is overdue."""
ASK = 5.0
"""Seconds between two looks for runs that operators ask for."""


class Beat(base.Subcommand):
    """
    Starts each job with a schedule at its ticks, each in a process of its own.

    It runs on as many hosts as there are, and no one leads: each starts the job, and
    the lock's record lets one of them run the tick. It starts by the store's clock.
    """

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
        **options: Any,
    ) -> None:
        if not conf.ENABLED.value:
            raise base.WrongCall(
                "With SHEDLOCK_ENABLED = False each host would run each job."
            )
        self.provider: LockProvider = provider
        self.catch_up: Any = not no_catch_up and partial(
            CatchUp(self.stdout, self.stderr, self.style).run,
            provider,
            include_expired=[],
            verbosity=verbosity,
            dry_run=False,
        )
        self.scheduled: list[tuple[Job, Schedule]] = [
            (job, job.schedule)
            for job in named_jobs(provider.alias)
            if job.schedule is not None and not job.needs_arguments
        ]
        if not self.scheduled:
            raise base.WrongCall(
                f"No job of provider {provider.alias!r} has a schedule, so there is "
                "nothing to start."
            )
        self.by_name: Mapping[str, Job] = jobs_by_name(provider)
        self.ahead: float | None = None
        self.due: list[datetime] = []
        self.is_away: bool = False
        self.forks: Forks = Forks(jobs)
        looks_at = asks_at = -math.inf
        with self.forks.handling_signals():
            try:
                while not self.forks.is_ending:
                    if uptime() >= asks_at:
                        asks_at = uptime() + ASK
                        with self._tolerating():
                            if uptime() >= looks_at:
                                self._look()
                                looks_at = uptime() + LOOK
                            if self.catch_up:
                                self._ask()
                    self.forks.wait(min(asks_at - uptime(), self._start_due()))
                self.write("Ends its jobs.")
            finally:
                self.forks.end(grace)

    @contextmanager
    def _tolerating(self) -> Iterator[None]:
        """Go on if the store fails in the body, and log it once."""
        try:
            yield
        except LockProviderError as error:
            if not self.is_away:
                text = "The store failed, and is asked again and again: %s"
                logger.error(text, message_of(error))
            self.is_away = True
        else:
            self.is_away = False

    def _now(self) -> datetime:
        """Return the store's clock, as far as this host knows."""
        return datetime.fromtimestamp(uptime() + (self.ahead or 0), UTC)

    def _look(self) -> None:
        is_first = self.ahead is None
        self.ahead = aware(self.provider.now()).timestamp() - uptime()
        now = self._now()
        following = [schedule.around(now)[1] for _, schedule in self.scheduled]
        # Sooner than before, if the store's clock was set back.
        self.due = list(map(min, self.due or following, following))
        if is_first:
            self._tell()
        if self.catch_up:
            grace = default_duration(conf.GRACE)
            # What has expired waits for an operator.
            if is_first or any(
                status.may_catch_up(grace) and status.state is not LockState.EXPIRED
                for status in self.provider.statuses(LockQuery(overdue_by=grace))
            ):
                self.forks.add("The beat's catch-up", self.catch_up)
            note_catch_up(self.provider)

    def _tell(self) -> None:
        self.write(f"Starts these jobs of provider {self.provider.alias!r}:")
        jobs = zip(self.due, self.scheduled, strict=True)
        for due, (job, schedule) in sorted(jobs, key=lambda each: each[0]):
            told = f"{job.full_name}: {schedule}, next at {local_text(due)}"
            self.write(f"  {printable(told)}")
        for job in self.by_name.values():
            if job.schedule is not None and job.needs_arguments:
                told = f"{job.full_name}: not started, since it needs arguments"
                self.write(f"  {printable(told)}")
        self.stdout.flush()  # a pod's log is a pipe

    def _start_due(self) -> float:
        """Let the jobs start whose ticks have come; return the seconds to the next."""
        if self.ahead is None:
            return math.inf
        now = self._now()
        for index, (job, schedule) in enumerate(self.scheduled):
            if self.due[index] <= now:
                tick, self.due[index] = schedule.around(now)
                # However long it waits for its turn, it is for this tick.
                self.forks.add(job.full_name, partial(job.start, Start(asked_at=tick)))
        return (min(self.due) - now).total_seconds()

    def _ask(self) -> None:
        for status in open_requests(self.provider):
            job = self.by_name.get(status.name)
            is_known = job is not None and not job.needs_arguments
            if is_known and status.state in MAY_START:
                key = f"{status.name}, which {status.job.asked_by} asks for"
                self.forks.add(key, partial(self._carry_out, status.name))

    def _carry_out(self, name: str) -> None:
        for _, answer in carry_out_requests(self.provider, [name]):
            self.write(printable(answer.detail))
