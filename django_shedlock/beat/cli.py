"""``manage.py shedlock beat`` and ``catch-up``."""

import math
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from operator import itemgetter

from django.core.management.base import CommandError

from django_shedlock import conf
from django_shedlock.beat.catch_up import Result, catch_up, note_catch_up
from django_shedlock.beat.forks import Forks
from django_shedlock.beat.requests import carry_out_requests, open_requests
from django_shedlock.cli import base, terminal
from django_shedlock.clocks import aware, local_text, uptime
from django_shedlock.exceptions import LockProviderError, described, message_of
from django_shedlock.execution.operators import OperatorAction, force_release
from django_shedlock.locks.configuration import default_duration
from django_shedlock.locks.patterns import matches_any
from django_shedlock.locks.status import LockState, LockStatus
from django_shedlock.providers.base import LockProvider, LockQuery
from django_shedlock.registry.discovery import named_jobs
from django_shedlock.registry.jobs import Job
from django_shedlock.registry.requests import (
    find_requests,
    has_request,
    jobs_by_name,
)
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import Start
from django_shedlock.signals import logger


class CatchUp(base.Subcommand):
    """Runs overdue jobs, and those that an operator asked for."""

    name = "catch-up"
    help = (
        "run the jobs that operators asked for in the admin, and each overdue job "
        "once, under its lock, for its newest tick only"
    )

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--include-expired",
            metavar="PATTERN",
            action="append",
            default=[],
            help="also run jobs whose lock has expired without a release, if its name "
            'matches, as in "import:*"; their last run may still go on, so make sure '
            "that its worker is dead; may be repeated",
        )
        base.add_switch(parser, "--dry-run", "run nothing, and say what would run")

    def run(
        self,
        provider: LockProvider,
        *,
        include_expired: list[str],
        dry_run: bool,
        verbosity: int,
        **options: object,
    ) -> None:
        overdue = failed = 0
        if dry_run:
            known = jobs_by_name(provider)
            for status in filter(has_request, find_requests(provider)):
                if status.name in known:
                    job = status.job
                    asked = f"{job.asked_by} asked for a run: {job.asked_why}"
                    self.stdout.write(
                        terminal.printable(f"Lock {status.name!r}: {asked}")
                    )
        else:
            for status, triggered in carry_out_requests(provider):
                by = f"{status.job.asked_by} asked for it: {status.job.asked_why}"
                if verbosity:
                    self.stdout.write(terminal.printable(f"{triggered} {by}"))
                failed += triggered.has_failed

        def release_expired(status: LockStatus) -> bool:
            is_included = matches_any(status.name, include_expired)
            if is_included and not dry_run:
                why = "its job is overdue, and --include-expired matches this lock"
                action = OperatorAction(
                    provider, status.name, status.locked_by, base.operator(), why
                )
                force_release(action, status)
            return is_included

        for caught_up in catch_up(
            provider, release_expired=release_expired, dry_run=dry_run
        ):
            overdue += 1
            failed += caught_up.result is Result.FAILED
            if verbosity:
                since = local_text(caught_up.overdue_since)
                told = f"Lock {caught_up.name!r}, overdue since {since}: "
                told += caught_up.result.value
                if caught_up.error is not None:
                    told += f" with {terminal.printable(described(caught_up.error))}"
                self.stdout.write(told if caught_up.error else f"{told}.")
        if dry_run and not overdue:
            self.stdout.write(
                "No job is overdue."
                if provider.keeps_ticks
                else f"The provider {provider.alias!r} keeps no ticks, so it can't "
                "tell which jobs are overdue."
            )
        if failed:
            message = f"Jobs that failed: {failed}."
            raise CommandError(message, returncode=base.ExitStatus.FAILED)


class Beat(base.Subcommand):
    """
    Starts each job with a schedule at its ticks, each in a process of its own.

    It runs on any number of hosts, and none of them leads. Each host starts the job,
    and the lock's record lets one of them run the tick. Ticks come by the store's
    clock.
    """

    name = "beat"
    help = "start each job with a schedule at its ticks, where there is no cron"

    # Between two reads of the store's clock and of the overdue jobs.
    clock_interval_seconds: float = 60.0
    # Between two reads of the runs that operators ask for.
    request_interval_seconds: float = 5.0

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
        self.provider: LockProvider = provider
        self.catches_up: bool = not no_catch_up
        self.verbosity: int = verbosity
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
                        asks_at = uptime() + self.request_interval_seconds
                        with self._tolerating():
                            if uptime() >= looks_at:
                                self._look()
                                looks_at = uptime() + self.clock_interval_seconds
                            if self.catches_up:
                                self._ask()
                    self.forks.wait(min(asks_at - uptime(), self._start_due()))
                self.write("Ending the jobs.")
            finally:
                self.forks.end(grace)

    @contextmanager
    def _tolerating(self) -> Iterator[None]:
        """Go on if the store fails in the body; log the failure once."""
        try:
            yield
        except LockProviderError as error:
            if not self.is_away:
                text = "The store failed. The beat keeps trying: %s"
                logger.error(text, message_of(error))
            self.is_away = True
        else:
            self.is_away = False

    def _now(self) -> datetime:
        """Return the store's clock, as far as this host knows it."""
        return datetime.fromtimestamp(uptime() + (self.ahead or 0), UTC)

    def _look(self) -> None:
        is_first = self.ahead is None
        self.ahead = aware(self.provider.now()).timestamp() - uptime()
        now = self._now()
        following = [schedule.around(now)[1] for _, schedule in self.scheduled]
        # A tick is sooner than before if the store's clock was set back.
        self.due = list(map(min, self.due or following, following))
        if is_first:
            self._print_jobs()
        if self.catches_up:
            grace = default_duration(conf.GRACE)
            # An expired lock waits for an operator.
            if is_first or any(
                status.may_catch_up(grace) and status.state is not LockState.EXPIRED
                for status in self.provider.statuses(LockQuery(overdue_by=grace))
            ):
                self.forks.add("The beat's catch-up", self._catch_up)
            note_catch_up(self.provider)

    def _catch_up(self) -> None:
        command = CatchUp(self.stdout, self.stderr, self.style)
        command.run(
            self.provider,
            include_expired=[],
            verbosity=self.verbosity,
            dry_run=False,
        )

    def _print_jobs(self) -> None:
        self.write(f"Starting these jobs of provider {self.provider.alias!r}:")
        jobs = zip(self.due, self.scheduled, strict=True)
        for due, (job, schedule) in sorted(jobs, key=itemgetter(0)):
            told = f"{job.full_name}: {schedule}, next at {local_text(due)}"
            self.write(f"  {terminal.printable(told)}")
        for job in self.by_name.values():
            if job.schedule is not None and job.needs_arguments:
                told = f"{job.full_name}: not started, because it needs arguments"
                self.write(f"  {terminal.printable(told)}")
        self.stdout.flush()  # a pod's log is a pipe

    def _start_due(self) -> float:
        """Start the jobs whose ticks have come; return the seconds to the next tick."""
        if self.ahead is None:
            return math.inf
        now = self._now()
        for index, (job, schedule) in enumerate(self.scheduled):
            if self.due[index] <= now:
                tick, self.due[index] = schedule.around(now)
                # However long the job waits for its turn, it runs for this tick.
                self.forks.add(job.full_name, job.start, Start(asked_at=tick))
        return (min(self.due) - now).total_seconds()

    def _ask(self) -> None:
        for status in open_requests(self.provider):
            job = self.by_name.get(status.name)
            is_known = job is not None and not job.needs_arguments
            if is_known and not status.state.is_in_use:
                key = f"{status.name}, which {status.job.asked_by} asks for"
                self.forks.add(key, self._carry_out, status.name)

    def _carry_out(self, name: str) -> None:
        for _, triggered in carry_out_requests(self.provider, [name]):
            self.write(terminal.printable(str(triggered)))
