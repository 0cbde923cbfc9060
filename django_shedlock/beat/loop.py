"""The loop of a beat: what it starts, when, and how it ends."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from operator import itemgetter

from django_shedlock import conf
from django_shedlock.beat.bodies import Bodies
from django_shedlock.beat.catch_up import CatchUp, note_catch_up
from django_shedlock.beat.requests import carry_out_requests, open_requests
from django_shedlock.cli import base, terminal
from django_shedlock.clocks import aware, local_text, uptime
from django_shedlock.exceptions import LockProviderError, message_of
from django_shedlock.locks.configuration import default_duration
from django_shedlock.locks.status import LockState
from django_shedlock.providers.base import LockProvider, LockQuery
from django_shedlock.registry.discovery import named_jobs
from django_shedlock.registry.jobs import Job
from django_shedlock.registry.requests import jobs_by_name
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import Start
from django_shedlock.signals import logger


class BeatLoop:
    """
    Starts each job with a schedule at its ticks, each in a process of its own.

    It runs on any number of hosts, and none of them leads. Each host starts the job,
    and the lock's record lets one of them run the tick. Ticks come by the store's
    clock. With ``catching_up`` it also runs overdue jobs and those that operators ask
    for. It writes what it does to the ``output`` of a subcommand.
    """

    # Between two reads of the store's clock and of the overdue jobs.
    clock_interval_seconds: float = 60.0
    # Between two reads of the runs that operators ask for.
    request_interval_seconds: float = 5.0

    def __init__(
        self,
        provider: LockProvider,
        output: base.Subcommand,
        catching_up: CatchUp | None,
        *,
        verbosity: int,
    ):
        self.provider = provider
        self.output = output
        self.catching_up = catching_up
        self.verbosity = verbosity
        self.scheduled: list[tuple[Job, Schedule]] = [
            (job, job.schedule)
            for job in named_jobs(provider.alias)
            if job.schedule is not None and not job.needs_arguments
        ]
        self.by_name: Mapping[str, Job] = jobs_by_name(provider)
        self.ahead: float | None = None
        self.due: list[datetime] = []
        self.is_away: bool = False

    def run(self, jobs: int, grace: timedelta) -> None:
        """
        Run at most that many ``jobs`` at once, until SIGTERM or SIGINT.

        Then nothing more starts. The jobs get SIGTERM, and after the ``grace`` SIGKILL;
        see ``Bodies.end()``.
        """
        self.bodies: Bodies = Bodies(jobs)
        looks_at = asks_at = -math.inf
        with self.bodies.signals.handled():
            try:
                while not self.bodies.is_ending:
                    if uptime() >= asks_at:
                        asks_at = uptime() + self.request_interval_seconds
                        with self._tolerating():
                            if uptime() >= looks_at:
                                self._look()
                                looks_at = uptime() + self.clock_interval_seconds
                            if self.catching_up is not None:
                                self._ask()
                    self.bodies.wait(min(asks_at - uptime(), self._start_due()))
                self.output.write("Ending the jobs.")
            finally:
                self.bodies.end(grace)

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
        if self.catching_up is not None:
            grace = default_duration(conf.GRACE)
            # An expired lock waits for an operator.
            if is_first or any(
                status.may_catch_up(grace) and status.state is not LockState.EXPIRED
                for status in self.provider.statuses(LockQuery(overdue_by=grace))
            ):
                self.bodies.add("The beat's catch-up", self._catch_up, self.catching_up)
            note_catch_up(self.provider)

    def _catch_up(self, catching_up: CatchUp) -> None:
        catching_up.run(
            self.provider,
            include_expired=[],
            dry_run=False,
            verbosity=self.verbosity,
        )

    def _print_jobs(self) -> None:
        self.output.write(f"Starting these jobs of provider {self.provider.alias!r}:")
        jobs = zip(self.due, self.scheduled, strict=True)
        for due, (job, schedule) in sorted(jobs, key=itemgetter(0)):
            told = f"{job.full_name}: {schedule}, next at {local_text(due)}"
            self.output.write(f"  {terminal.printable(told)}")
        for job in self.by_name.values():
            if job.schedule is not None and job.needs_arguments:
                told = f"{job.full_name}: not started, because it needs arguments"
                self.output.write(f"  {terminal.printable(told)}")
        self.output.stdout.flush()  # a pod's log is a pipe

    def _start_due(self) -> float:
        """Start the jobs whose ticks have come; return the seconds to the next tick."""
        if self.ahead is None:
            return math.inf
        now = self._now()
        for index, (job, schedule) in enumerate(self.scheduled):
            if self.due[index] <= now:
                tick, self.due[index] = schedule.around(now)
                # However long the job waits for its turn, it runs for this tick.
                self.bodies.add(job.full_name, job.start, Start(asked_at=tick))
        return (min(self.due) - now).total_seconds()

    def _ask(self) -> None:
        for status in open_requests(self.provider):
            job = self.by_name.get(status.name)
            is_known = job is not None and not job.needs_arguments
            if is_known and not status.state.is_in_use:
                key = f"{status.name}, which {status.job.asked_by} asks for"
                self.bodies.add(key, self._carry_out, status.name)

    def _carry_out(self, name: str) -> None:
        for _, triggered in carry_out_requests(self.provider, [name]):
            self.output.write(terminal.printable(str(triggered)))
