"""What a beat decides from one look at the records: nothing is read or started here."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from django_shedlock.clocks import aware
from django_shedlock.locks.status import InterruptedBodyError, LockState, LockStatus
from django_shedlock.locks.time_limits import TimeLimitExceeded
from django_shedlock.registry.jobs import Job
from django_shedlock.registry.requests import asked_at, has_request, has_to_wait
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import Start, Trigger

BEAT_LOOK_INTERVAL = timedelta(seconds=5)
"""A beat looks at least this often."""
LONGEST_WAIT_FOR_ROOM = timedelta(seconds=30)
"""An owed tick that waits longer for other jobs is reported."""
FIRST_PAUSE = timedelta(seconds=5)
"""How long a beat waits before it starts a job again whose body did not begin."""
LONGEST_PAUSE = timedelta(minutes=5)
"""A pause is twice as long as the one before, but not longer than this."""


class ReportKind(StrEnum):
    """What a beat reports about a tick that has not begun."""

    RUNS_ON = "runs on"
    WAITS = "waits for room"
    TOO_OLD = "too old"
    PASSED_OVER = "passed over"
    EXPIRED = "expired"


@dataclass(frozen=True)
class BeatReport:
    """
    A tick of a lock's job that has not begun, and why.

    ``holder`` is the identity of the run that the tick waits for, if it waits for one.
    """

    kind: ReportKind
    name: str
    tick: datetime
    holder: str = ""


@dataclass(frozen=True)
class DueStart:
    """A job to start, what starts it, and since when it is owed, requested, or late."""

    job: Job
    start: Start
    since: datetime

    @property
    def name(self) -> str:
        """The full name of the job's lock."""
        return self.job.full_name


@dataclass(frozen=True)
class RunningJob:
    """
    A job that the beat has started, and that still runs.

    ``since`` is the ``since`` of its ``DueStart``. ``locked_by`` is its identity.
    """

    since: datetime
    locked_by: str


@dataclass(frozen=True)
class BeatJobs:
    """
    The jobs of a beat.

    ``scheduled`` has those with a schedule, by the full names of their locks. Entries
    of ``CRONJOBS`` may share a lock, so a lock may have several. ``startable`` has
    those that an operator may ask for.
    """

    scheduled: Mapping[str, Mapping[Schedule, Job]]
    startable: Mapping[str, Job]

    @property
    def names(self) -> Collection[str]:
        """The names of the locks whose records a beat reads."""
        return self.scheduled.keys() | self.startable.keys()

    def next_tick(self, now: datetime) -> datetime | None:
        """Return the next tick of any of them."""
        schedules = (each for of_lock in self.scheduled.values() for each in of_lock)
        return min((each.around(now)[1] for each in schedules), default=None)


@dataclass(frozen=True, kw_only=True)
class Look:
    """
    The records of the jobs' locks, at one instant of the store's ``clock``.

    ``since`` is when the beat's first look was. ``grace`` is that of the settings.
    ``catches_up`` says whether the beat starts overdue jobs and requested runs.
    """

    jobs: BeatJobs
    records: Mapping[str, LockStatus]
    clock: datetime
    since: datetime
    grace: timedelta
    catches_up: bool = True

    def registered(self) -> Iterator[str]:
        """Return the locks whose records have the schedule of one of their jobs."""
        for name, schedules in self.jobs.scheduled.items():
            status = self.records.get(name)
            before = None if status is None else status.schedule
            # See Note [Other time zones].
            if before is not None and any(map(before.has_ticks_of, schedules)):
                yield name

    def unregistered(self) -> Iterator[tuple[str, Schedule]]:
        """Return the locks whose records lack their schedule, with that schedule."""
        registered = set(self.registered())
        for name, schedules in self.jobs.scheduled.items():
            status = self.records.get(name)
            if status is not None and (status.unreadable or status.state.is_in_use):
                continue
            if name not in registered:
                yield name, list(schedules)[-1]

    def due(self, busy: Collection[str] = ()) -> list[DueStart]:
        """
        Return all that is to be started, in this order.

        Owed ticks and requested runs come first, the oldest of them at the front. Then
        come overdue jobs. Those whose locks are ``busy`` are left out: the beat has
        just started them, or waits before it tries them again.
        """
        owed = [*self._owed()]
        overdue: list[DueStart] = []
        if self.catches_up:
            owed += self._requested()
            overdue += self._overdue()
        found: dict[str, DueStart] = {}
        for group in (owed, overdue):
            for each in sorted(group, key=_age_and_name):
                if each.name not in busy:
                    found.setdefault(each.name, each)
        return list(found.values())

    def _owed(self) -> Iterator[DueStart]:
        for name, schedules in self.jobs.scheduled.items():
            status = self.records.get(name)
            if status is None or status.state.is_held:
                continue
            for schedule, job in schedules.items():
                tick = status.owed_tick(schedule, self.grace, self.since)
                if tick is not None:
                    # However late the job starts, it runs for this tick.
                    yield DueStart(job, Start(asked_at=tick), tick)

    def _requested(self) -> Iterator[DueStart]:
        for name, job in self.jobs.startable.items():
            status = self.records.get(name)
            if status is None or has_to_wait(status) or not has_request(status):
                continue
            start = Start(
                Trigger.OPERATOR,
                operator=status.job.asked_by or "",
                reason=status.job.asked_why or "",
                request=asked_at(status),
            )
            yield DueStart(job, start, asked_at(status))

    def _overdue(self) -> Iterator[DueStart]:
        for name, schedules in self.jobs.scheduled.items():
            status = self.records.get(name)
            # An expired lock waits for an operator: see Note [Expired locks].
            if status is None or status.state is LockState.EXPIRED:
                continue
            job = job_of_ticks(status, schedules)
            if job is not None and self._may_catch_up(status):
                since = status.overdue_since(self.grace)
                if since is not None:
                    yield DueStart(job, Start(Trigger.CATCH_UP), since)

    def _may_catch_up(self, status: LockStatus) -> bool:
        return not status.state.is_held and status.may_catch_up(self.grace)

    def reports(
        self, busy: Collection[str], room: int, running: Mapping[str, RunningJob]
    ) -> list[BeatReport]:
        """
        Return which ticks have not begun in time, and why: see ``ReportKind``.

        ``busy`` is that of ``due()``, and ``room`` the number of jobs that can start.
        ``running`` has the jobs that this beat still runs, by the names of their locks.
        A job may outlast its lease, and then its record does not say that it runs.
        """
        patience = min(LONGEST_WAIT_FOR_ROOM, self.grace / 4)
        found = [
            BeatReport(ReportKind.WAITS, each.name, each.since)
            for each in self.due(busy)[room:]
            if each.start.trigger is Trigger.SCHEDULER
            and self.clock - each.since >= patience
        ]
        for name, schedules in self.jobs.scheduled.items():
            status = self.records.get(name)
            if status is None or status.unreadable:
                continue
            for schedule in schedules:
                found += self._reports_of(status, schedule, running.get(name))
        return found

    def _reports_of(
        self, status: LockStatus, schedule: Schedule, own: RunningJob | None
    ) -> Iterator[BeatReport]:
        name, known = status.name, status.ticks
        if status.state is LockState.PAUSED or known.tick is None:
            return
        newest, following = schedule.around(self.clock)
        age = self.clock - newest
        if known.tick < newest and self._was_owed(newest):
            slack = min(BEAT_LOOK_INTERVAL, (following - newest) / 4)
            holder = ""
            if status.state is LockState.RUNNING:
                holder = status.locked_by
            elif own is not None and own.since < newest:
                holder = own.locked_by
            if holder and age >= slack:
                yield BeatReport(ReportKind.RUNS_ON, name, newest, holder)
            if age >= self.grace:
                yield BeatReport(ReportKind.TOO_OLD, name, newest)
        # A start belongs to the newest past tick, so an older one never begins.
        for later, begun in ((newest, known.tick), (known.tick, known.former_tick)):
            if begun is not None and begun < later:
                older = tick_before(schedule, later)
                was_begun = older <= begun or older == known.repeated_tick
                if not was_begun and self._was_owed(older):
                    yield BeatReport(ReportKind.PASSED_OVER, name, older)
        if status.state is LockState.EXPIRED and status.may_catch_up(self.grace):
            late = status.overdue_since(self.grace)
            if late is not None:
                yield BeatReport(ReportKind.EXPIRED, name, late, status.locked_by)

    def _was_owed(self, tick: datetime) -> bool:
        # At its first look the beat starts a tick that is not yet too old.
        return tick > self.since - self.grace


def _age_and_name(due: DueStart) -> tuple[datetime, str]:
    return due.since, due.name


def tick_before(schedule: Schedule, tick: datetime) -> datetime:
    """Return the newest tick before this one."""
    return next(schedule.ticks_until(tick - timedelta(microseconds=1)))


def job_of_ticks(status: LockStatus, jobs: Mapping[Schedule, Job]) -> Job | None:
    """
    Return which of the lock's jobs has the ticks that its record counts.

    ``None`` if none has, or if its ticks are counted here in another time zone: see
    Note [Other time zones].
    """
    counted = status.schedule
    if counted is None:
        return None
    # Hosts may use two names for one time zone, such as UTC and Etc/UTC.
    now = aware(status.clock)
    newest = next(counted.ticks_until(now))
    for schedule, job in jobs.items():
        if schedule.has_ticks_of(counted) and next(schedule.ticks_until(now)) == newest:
            return job
    return None


def pause_after(attempts: int) -> timedelta:
    """Return how long to wait after so many attempts whose body did not begin."""
    doublings = min(max(attempts, 1) - 1, 10)
    return min(FIRST_PAUSE * (1 << doublings), LONGEST_PAUSE)


class KilledBodyError(InterruptedBodyError):
    """What ended a body whose process could not report it: a signal, or its exit."""

    def __init__(self, signal: int | None, status: int | None = None):
        self.signal = signal
        self.status = status
        how = f"was killed by signal {signal}"
        if signal is None:
            how = f"ended with exit status {status}"
        super().__init__(f"The job's process {how} before its job had ended.")


class FailedBodyError(Exception):
    """What ended a body that failed by itself, and whose process did not release."""

    def __init__(self) -> None:
        super().__init__("The job failed, and its process could not release its lock.")


@dataclass(frozen=True)
class ChildEnd:
    """
    How the process of a job has ended.

    ``has_begun`` says whether the body began. ``has_succeeded`` is ``None`` if the body
    had not ended before, or was interrupted. ``killed_by`` is the signal that ended the
    process, if one did, and ``status`` its exit status. ``time_limit`` is that of the
    job, if it was over, so that the beat ended the process. ``has_returned`` says
    whether the job had returned before.
    """

    has_begun: bool
    has_succeeded: bool | None
    killed_by: int | None
    status: int | None
    time_limit: timedelta | None = None
    has_returned: bool = False

    @property
    def is_orderly(self) -> bool:
        """Whether the process had the answers to all its statements."""
        return self.has_returned and self.status == 0

    @property
    def exception(self) -> BaseException | None:
        """What ended the body, for the release that its process did not get to."""
        if self.has_succeeded:
            return None
        if self.time_limit is not None:
            return TimeLimitExceeded(self.time_limit)
        if self.has_succeeded is False:
            return FailedBodyError()
        return KilledBodyError(self.killed_by, self.status)


def still_holds(status: LockStatus | None, identity: str) -> bool:
    """Return whether this acquisition has not been released, or its run is open."""
    if status is None or status.unreadable:
        return False
    is_holder = status.locked_by == identity and status.state is LockState.RUNNING
    return is_holder or status.job.open_run == identity


@dataclass(frozen=True)
class EndTimes:
    """
    How long the jobs of a beat that ends may go on.

    They get SIGTERM after ``stop_timeout``, and SIGKILL at most ``kill_after`` later.
    The last part of that is for the beat's own releases.
    """

    stop_timeout: timedelta = timedelta(seconds=20)
    kill_after: timedelta = timedelta(seconds=5)

    @property
    def for_releases(self) -> timedelta:
        """How long the beat's own releases may take at the end."""
        return min(timedelta(seconds=1), self.kill_after / 5)

    @property
    def until_killed(self) -> timedelta:
        """The time between SIGTERM and SIGKILL when the beat ends."""
        return self.kill_after - self.for_releases
