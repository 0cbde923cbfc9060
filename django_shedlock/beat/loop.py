"""The loop of a beat: when it looks, and what it does then."""

import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django_shedlock import conf
from django_shedlock.beat.catch_up import note_catch_up
from django_shedlock.beat.children import StartedJob, StartedJobs
from django_shedlock.beat.ending import OrderlyEnd
from django_shedlock.beat.looks import (
    BEAT_LOOK_INTERVAL,
    FIRST_PAUSE,
    BeatJobs,
    ChildEnd,
    DueStart,
    EndTimes,
    Look,
    pause_after,
)
from django_shedlock.beat.presence import BeatPresence
from django_shedlock.beat.reporting import Reporter
from django_shedlock.beat.requests import open_requests
from django_shedlock.cli import base, terminal
from django_shedlock.clocks import aware, local_text, uptime
from django_shedlock.durations import format_duration
from django_shedlock.exceptions import LockProviderError, message_of
from django_shedlock.locks.configuration import default_duration
from django_shedlock.locks.status import LockStatus
from django_shedlock.processes.child import BODY_SIGNALS, reap_orphans
from django_shedlock.processes.process_signals import ProcessSignals
from django_shedlock.providers.base import LockProvider, LockQuery
from django_shedlock.registry.discovery import named_jobs
from django_shedlock.registry.jobs import Job
from django_shedlock.registry.requests import jobs_by_name
from django_shedlock.schedules.cron import Schedule
from django_shedlock.signals import logger

REGISTRATION_PAUSE_SECONDS = 60.0
"""How long a beat waits before it tries again to register a schedule."""


@dataclass(frozen=True)
class BeatOptions:
    """
    How a beat works.

    It runs at most so many ``jobs`` at once. ``catches_up`` says whether it starts
    overdue jobs, and those that operators ask for. ``end`` says how it ends.
    """

    jobs: int = 4
    catches_up: bool = True
    end: EndTimes = field(default_factory=EndTimes)


@dataclass(frozen=True)
class TryAgain:
    """When to start a job again that did not begin, by ``uptime()``."""

    at: float
    attempts: int
    since: datetime
    """Since when the start was owed. After a skip, only that one has to wait."""


def find_beat_jobs(provider: LockProvider) -> BeatJobs:
    """Return the jobs that a beat with this provider can start."""
    scheduled: dict[str, dict[Schedule, Job]] = defaultdict(dict)
    for job in named_jobs(provider.alias):
        schedule = job.schedule
        # A call that only looks is no run, so no record could say that it has begun.
        if schedule is not None and not job.needs_arguments and not job.only_looks:
            scheduled[job.full_name][schedule] = job
    known = jobs_by_name(provider)
    startable = {
        name: job
        for name, job in known.items()
        if not job.needs_arguments and not job.only_looks
    }
    return BeatJobs(scheduled, startable)


class BeatLoop:
    """
    Starts each job with a schedule at its ticks, each in a process of its own.

    It runs on any number of hosts, and none of them leads. It *looks* at each tick,
    after the end of each job, and at least every five seconds: it reads the records of
    its jobs and starts what is owed, as long as there is room. The records decide, so
    it needs no memory, and no queue. Ticks come by the store's clock. It writes what it
    does to the ``output`` of a subcommand.
    """

    # Between two notes that a catch-up was seen.
    catch_up_interval_seconds: float = 60.0

    def __init__(
        self, provider: LockProvider, output: base.Subcommand, options: BeatOptions
    ):
        self.provider = provider
        self.output = output
        self.options = options
        self.grace: timedelta = default_duration(conf.GRACE)
        self.jobs: BeatJobs = find_beat_jobs(provider)
        self.signals: ProcessSignals = ProcessSignals(BODY_SIGNALS)
        self.children: StartedJobs = StartedJobs(
            provider, options.jobs, options.end.kill_after
        )
        self.presence: BeatPresence = BeatPresence(provider)
        self.reporter: Reporter = Reporter()
        self.since: datetime | None = None
        """When its first look was, by the store's clock."""
        self.is_away: bool = False
        self._waits: dict[str, TryAgain] = {}
        self._registered: set[str] = set()
        """Locks whose records have had the schedule of this beat."""
        self._registers_at: dict[str, float] = {}
        """When to try again to register a lock's schedule, by ``uptime()``."""
        self._looks_at = self._notes_at = -math.inf

    @property
    def is_ending(self) -> bool:
        """Whether a signal has come."""
        return bool(self.signals.received)

    def run(self) -> None:
        """
        Look and start jobs, until SIGTERM or SIGINT.

        Then nothing more starts, and the jobs may finish: see ``OrderlyEnd``.
        """
        self._began_at = uptime()
        with self.signals.handled():
            try:
                while not self.is_ending:
                    self._look_after_children()
                    if uptime() >= self._looks_at:
                        with self._tolerating():
                            self._look()
                    if not self.is_ending:
                        self.signals.wait(self._seconds_to_wait())
            finally:
                end = OrderlyEnd(
                    self.children, self.signals, self.options.end, self._write
                )
                if end.run():  # else it would wait for the store once more
                    self.presence.end()

    def _seconds_to_wait(self) -> float:
        return min(self._looks_at - uptime(), self.children.look_within_seconds)

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
            if self.is_away:
                logger.warning("The store answers again.")
            self.is_away = False

    def _write(self, text: str) -> None:
        with suppress(OSError):  # the reader of a pipe may be gone
            self.output.write(terminal.printable(text))
            self.output.stdout.flush()  # a pod's log is a pipe

    def _look_after_children(self) -> None:
        for started, end in self.children.look():
            self._looks_at = -math.inf
            self._note_end(started, end)
        reap_orphans([started.child for started in self.children.running.values()])

    def _note_end(self, started: StartedJob, end: ChildEnd) -> None:
        before = self._waits.pop(started.name, None)
        if end.has_begun:
            return
        attempts, pause = 0, FIRST_PAUSE
        if not started.was_skipped:
            attempts = 1 if before is None else before.attempts + 1
            pause = pause_after(attempts)
            logger.info(
                "The job of lock %r did not begin. It is started again in %s, if it is "
                "still owed.",
                started.name,
                format_duration(pause),
            )
        at = uptime() + pause.total_seconds()
        self._waits[started.name] = TryAgain(at, attempts, started.due.since)

    def _look(self) -> None:
        """Read the records, tidy up after dead children, and start what is owed."""
        began = uptime()
        self._looks_at = began + BEAT_LOOK_INTERVAL.total_seconds()
        records = {
            status.name: status
            for status in self.provider.statuses(LockQuery(names=self.jobs.names))
        }
        clock = self._clock(records)
        is_first = self.since is None
        if self.since is None:
            # The store may have been away at first.
            self.since = clock - timedelta(seconds=uptime() - self._began_at)
        look = Look(
            jobs=self.jobs,
            records=records,
            clock=clock,
            since=self.since,
            grace=self.grace,
            catches_up=self.options.catches_up,
        )
        if is_first:
            self._print_jobs(clock)
        next_tick = self.jobs.next_tick(clock)
        if next_tick is not None:
            until_tick = (next_tick - clock).total_seconds()
            self._looks_at = min(self._looks_at, uptime() + until_tick)
        has_changed = self.children.release_dead(records)
        has_changed |= self._register(look)
        if has_changed:
            self._looks_at = -math.inf
        self._report(look)
        self._start(look)
        self._note_presence()

    def _clock(self, records: dict[str, LockStatus]) -> datetime:
        # All were read by one statement, but perhaps in several pages.
        clocks = [aware(status.clock) for status in records.values()]
        return max(clocks) if clocks else aware(self.provider.now())

    def _register(self, look: Look) -> bool:
        self._registered.update(look.registered())
        has_changed = False
        for name, schedule in look.unregistered():
            is_known = name in self._registered
            # While two versions run side by side, each registers its schedule once.
            if is_known and name in look.records:
                continue
            if uptime() < self._registers_at.get(name, 0.0):
                continue
            # Ticks before a record was deleted have been begun, or reported.
            since = None if is_known else look.since
            try:
                self.provider.register(name, schedule, since=since)
            except LockProviderError as error:
                self._registers_at[name] = uptime() + REGISTRATION_PAUSE_SECONDS
                text = "The schedule of lock %r could not be registered: %s"
                logger.error(text, name, message_of(error))
                if not error.is_blocked:
                    break
                continue
            self._registered.add(name)
            has_changed = True
        return has_changed

    def _busy(self) -> set[str]:
        waiting = {
            name
            for name, wait in self._waits.items()
            if wait.attempts and uptime() < wait.at
        }
        return {*self.children.names, *waiting}

    def _report(self, look: Look) -> None:
        children = self.children
        reports = look.reports(self._busy(), children.room, children.own_jobs)
        self.reporter.report(reports, self.options.jobs)

    def _start(self, look: Look) -> None:
        for due in look.due(self._busy()):
            if self.children.room <= 0 or self.is_ending:
                return
            if not self._must_wait(due) and not self.children.start(due, self._write):
                return

    def _must_wait(self, due: DueStart) -> bool:
        wait = self._waits.get(due.name)
        return wait is not None and wait.since == due.since and uptime() < wait.at

    def _note_presence(self) -> None:
        self.presence.show()
        if self.options.catches_up and uptime() >= self._notes_at:
            self._notes_at = uptime() + self.catch_up_interval_seconds
            open_requests(self.provider)  # closes those that have expired
            note_catch_up(self.provider)

    def _print_jobs(self, clock: datetime) -> None:
        self._write(f"Starting these jobs of provider {self.provider.alias!r}:")
        jobs = (
            (schedule.around(clock)[1], name, schedule)
            for name, schedules in self.jobs.scheduled.items()
            for schedule in schedules
        )
        for due, name, schedule in sorted(jobs, key=_instant_and_name):
            self._write(f"  {name}: {schedule}, next at {local_text(due)}")
        for job in named_jobs(self.provider.alias):
            if job.schedule is not None and job.needs_arguments:
                self._write(
                    f"  {job.full_name}: not started, because it needs arguments"
                )
            elif job.schedule is not None and job.only_looks:
                self._write(
                    f"  {job.full_name}: not started, because a call with these "
                    "arguments only looks, so it has no lock"
                )


def _instant_and_name(due: tuple[datetime, str, Schedule]) -> tuple[datetime, str]:
    return due[:2]
