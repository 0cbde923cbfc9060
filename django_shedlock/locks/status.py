"""What is known of a lock: its state, its status, its holder, the outcome of a run."""

import signal
from asyncio import CancelledError
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Generic, Self, TypeVar

from django_shedlock.clocks import aware, host_now
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.inherited import inherited_identities
from django_shedlock.locks.pauses import FOREVER, Pause
from django_shedlock.locks.time_limits import TimeLimitExceeded
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import Decision, ScheduleState, Start, Trigger
from django_shedlock.signals import logger

Moment = TypeVar("Moment")

_logged: set[str] = set()


# Note [The state of a lock]
# The database computes the state itself, to filter, count and sort by it. So the rule
# stands twice, in the same order: in state_of(), and as SQL in conditions_of_states().
# tests/providers/database/test_states.py compares both, on each database.


class LockState(StrEnum):
    """The state of a record, by the store's clock; the most urgent first."""

    EXPIRED = "expired"
    RUNNING = "running"
    PAUSED = "paused"
    HELD_AT_LEAST = "held at least"
    FREE = "free"

    @property
    def is_held(self) -> bool:
        """Whether nobody can acquire the lock now."""
        return self.is_in_use or self is LockState.HELD_AT_LEAST

    @property
    def is_in_use(self) -> bool:
        """Whether a run or a pause holds the lock, not only ``lock_at_least_for``."""
        return self in {LockState.RUNNING, LockState.PAUSED}

    @property
    def may_still_run(self) -> bool:
        """Whether the job runs, or may still run although its lease is over."""
        return self in {LockState.RUNNING, LockState.EXPIRED}


def state_of(
    locked_by: str, *, is_held: bool, is_released: bool, has_open_run: bool
) -> LockState:
    """Return the state, by whether the lease goes on, and what became of its run."""
    # See Note [The state of a lock].
    if is_held and is_released:
        return LockState.HELD_AT_LEAST
    if is_held and Pause.parse(locked_by) is not None:
        return LockState.PAUSED
    if is_held:
        return LockState.RUNNING
    return LockState.EXPIRED if has_open_run else LockState.FREE


NOT_FREE = frozenset(LockState) - {LockState.FREE}
OVERDUE, NEEDS_LOOK = "overdue", "needs look"
URGENCY_ORDER: tuple[str, ...] = (OVERDUE, NEEDS_LOOK, *LockState)
"""What a lock is urgent for, the most urgent first: its state, if nothing else."""
LOSS_REPORT_PERIOD = timedelta(days=1)
"""How long a loss is reported, however later runs end."""
PASSED_OVER_REPORT_PERIOD = timedelta(days=1)
"""How old the newest tick may be if the ticks before it are still reported."""


@dataclass(frozen=True, kw_only=True)
class JobAccount(Generic[Moment]):
    """
    What a store keeps about the runs of a job; ``Moment`` is its type of an instant.

    ``open_run`` is the identity of the acquisition whose run is not accounted for yet:
    it still runs, or its worker died. The last run that is accounted for is
    ``last_run``, with its ``outcome``, and when it ``started_at`` and ``ended_at``. Its
    start is ``None`` if it is not known, its end while a lost run goes on. ``failures``
    counts the runs in a row that have not succeeded, ``usual`` is an estimate of a
    successful run's seconds.

    ``lost_at`` and ``lost_run`` are those of the last loss. ``unrecorded_at`` is when
    the history last could not be written. An operator ``asked_by`` asked at
    ``asked_at`` for a run, because ``asked_why``.
    """

    open_run: str | None = None
    last_run: str | None = None
    outcome: str | None = None
    started_at: Moment | None = None
    ended_at: Moment | None = None
    succeeded_at: Moment | None = None
    failures: int = 0
    usual: float | None = None
    lost_at: Moment | None = None
    lost_run: str | None = None
    unrecorded_at: Moment | None = None
    asked_at: Moment | None = None
    asked_by: str | None = None
    asked_why: str | None = None

    def was_released_by(self, locked_by: str) -> bool:
        """Return whether this acquisition's own release accounted for the last run."""
        has_ended = self.outcome in RunOutcome.of_own_release()
        return has_ended and self.last_run == locked_by


JOB_FIELDS = tuple(each.name for each in fields(JobAccount))
JOB_INSTANT_FIELDS = tuple(name for name in JOB_FIELDS if name.endswith("_at"))
JOB_TEXT_FIELDS = (
    *("open_run", "last_run", "outcome", "lost_run"),
    *("asked_by", "asked_why"),
)


class JobState(JobAccount[datetime]):
    """What the record of a lock says about the runs of its job; see JobAccount."""

    @property
    def usual_duration(self) -> timedelta | None:
        """How long a successful run usually takes."""
        return None if self.usual is None else timedelta(seconds=self.usual)

    @property
    def last_duration(self) -> timedelta | None:
        """How long the last run took; ``None`` if its start is not known."""
        if self.started_at is None or self.ended_at is None:
            return None
        return max(aware(self.ended_at) - aware(self.started_at), ZERO)

    @property
    def may_still_run(self) -> bool:
        """Whether nobody knows that the body of the last run has ended."""
        is_lost = self.outcome == RunOutcome.LOST and self.ended_at is None
        return is_lost or self.outcome == RunOutcome.ABANDONED

    @property
    def is_unrecorded(self) -> bool:
        """Whether the history lacks the last run, because it could not be written."""
        if self.unrecorded_at is None:
            return False
        ended_at = self.ended_at
        return ended_at is None or aware(self.unrecorded_at) >= aware(ended_at)


@dataclass(frozen=True)
class AbandonedRun:
    """
    A run that somebody else accounted for, since its worker did not.

    ``started_at`` is ``None`` if ShedLock acquired the lock in between.
    """

    locked_by: str
    started_at: datetime | None
    ended_at: datetime


def next_usual(usual: float | None, took: float) -> float:
    """
    Return the usual duration after a success that took so many seconds.

    It is a running estimate that one outlier hardly moves: a run counts as at least
    three quarters of the estimate, and at most as twice of it and 15 seconds.
    """
    if usual is None:
        return took
    counted = min(usual * 2 + 15, max(usual * 0.75, took))
    return usual * 0.75 + counted * 0.25


@dataclass(frozen=True)
class LockStatus:
    """
    One lock at one instant of the store's ``clock``.

    ``remaining`` is zero unless the lock is held. ``heartbeat_at`` is when the holder
    extended its lease last, where the store keeps that. A store that keeps it apart
    from ``lock_until`` gives ``released_at``, when the last acquisition was released.
    ``unreadable`` says why the record can't be read: then only the name and the state
    are sure.
    """

    name: str
    state: LockState
    locked_by: str
    locked_at: datetime
    lock_until: datetime
    remaining: timedelta
    clock: datetime = field(default_factory=host_now)
    schedule_state: ScheduleState = field(default_factory=ScheduleState)
    fencing_token: int = 0
    unreadable: str = ""
    heartbeat_at: datetime | None = None
    job: JobState = field(default_factory=JobState)
    released_at: datetime | None = None

    def as_unreadable(self, reason: str) -> Self:
        """Return it without ticks, since the record can't be read; log why, once."""
        # Monitors read a record again and again.
        if self.name not in _logged and len(_logged) < 1000:
            _logged.add(self.name)
            logger.warning(
                "The record of lock %r can't be read: %s. `python manage.py shedlock "
                "show` says where it is.",
                self.name,
                reason,
            )
        return replace(self, schedule_state=ScheduleState(), unreadable=reason)

    def holder(self, tick: datetime | None = None) -> "LockHolder":
        """Return the holder, for a caller that did not get the lock."""
        has_ended = self.state is LockState.HELD_AT_LEAST
        return LockHolder(self.locked_by, self.remaining, tick, has_ended=has_ended)

    def refusal(self, start: Start, decision: Decision | None) -> "LockHolder | None":
        """Return the holder if this start does not get the lock, else ``None``."""
        is_kept_only = self.state is LockState.HELD_AT_LEAST
        is_by_operator = start.trigger is Trigger.OPERATOR
        is_held = self.remaining > ZERO and not (is_kept_only and is_by_operator)
        is_expired = self.state is LockState.EXPIRED
        if decision and is_expired and start.trigger is Trigger.CATCH_UP:
            # ShedLock may have acquired the lock since.
            suspect = self.job.open_run or self.locked_by
            return LockHolder(suspect, tick=decision.tick, is_expired=True)
        if decision is None or decision.is_allowed:
            return self.holder() if is_held else None
        # Callers other than the scheduler wait for a held lock.
        if is_held and start.trigger is not Trigger.SCHEDULER:
            return self.holder()
        return self.holder(self.ticks.tick or decision.tick)

    @property
    def held_for(self) -> timedelta:
        """How long ago a held lock was acquired; zero if it is not held."""
        if not self.state.is_held:
            return ZERO
        return max(self.lock_until - self.locked_at - self.remaining, ZERO)

    @property
    def has_recent_loss(self) -> bool:
        """Whether a run lost its lock not long ago."""
        lost_at = self.job.lost_at
        if lost_at is None:
            return False
        return aware(self.clock) - aware(lost_at) < LOSS_REPORT_PERIOD

    @property
    def needs_look(self) -> bool:
        """Whether its last run is bad or not in the history, or a loss is recent."""
        is_bad = self.job.outcome not in {None, RunOutcome.SUCCEEDED}
        return is_bad or self.has_recent_loss or self.job.is_unrecorded

    def urgency(self, grace: timedelta | None) -> int:
        """
        Return the lock's place in ``URGENCY_ORDER``: 0 is the most urgent.

        Without a ``grace`` no job counts as overdue. In SQL the same places are in
        ``LockRecordQuerySet.by_urgency()``.
        """
        reason: str = NEEDS_LOOK if self.needs_look else self.state
        if grace is not None and self.overdue_since(grace) is not None:
            reason = OVERDUE
        return URGENCY_ORDER.index(reason)

    @property
    def unreported_run(self) -> str:
        """The open run that does not hold the lock; empty if there is none."""
        run = self.job.open_run or ""
        # ShedLock may have acquired the lock since.
        return "" if self.state.is_held and self.locked_by == run else run

    @property
    def holder_may_run(self) -> bool:
        """Whether the job of the last acquisition runs, or may still run."""
        if self.state is LockState.EXPIRED:
            # ShedLock may have acquired the lock since, and let its lease end.
            return self.job.open_run == self.locked_by
        return self.state is LockState.RUNNING

    @property
    def pause(self) -> Pause | None:
        """Who paused the job, and why; ``None`` if it is not paused."""
        return Pause.parse(self.locked_by) if self.state is LockState.PAUSED else None

    @property
    def is_endless(self) -> bool:
        """Whether it is a pause without an end."""
        # The store reads its clock twice, for the lease and for its end.
        lease = self.lock_until - self.locked_at
        return self.pause is not None and lease > FOREVER - timedelta(days=1)

    def overdue_since(self, grace: timedelta) -> datetime | None:
        """Return the first tick that should have succeeded, unless it can't now."""
        if self.state.is_in_use:
            return None
        return self.ticks.overdue_since(aware(self.clock), grace)

    def skips_since(self, grace: timedelta) -> datetime | None:
        """Return the tick of a job that still runs, though a later one is overdue."""
        ticks = self.ticks
        if self.state is not LockState.RUNNING or ticks.schedule is None:
            return None
        return None if ticks.was_started(aware(self.clock), grace) else ticks.tick

    @property
    def passed_over(self) -> list[datetime]:
        """
        The ticks that the newest acquisition passed over, unless that is long ago.

        No tick that came during a pause is among them. See
        ``ScheduleState.passed_over()``.
        """
        ticks = self.ticks
        if ticks.tick is None:
            return []
        age = aware(self.clock) - ticks.tick
        return ticks.passed_over() if age < PASSED_OVER_REPORT_PERIOD else []

    def may_catch_up(self, grace: timedelta) -> bool:
        """Return whether a catch-up would run the job, as far as its ticks decide."""
        schedule, start = self.schedule, Start(Trigger.CATCH_UP)
        if schedule is None:
            return False
        return self.decide(start, schedule, grace).is_allowed

    @property
    def ticks(self) -> ScheduleState:
        """What the lock's schedule owes now: no tick that came during a pause."""
        return self._ticks_by(self.schedule)

    def _ticks_by(self, schedule: Schedule | None) -> ScheduleState:
        if Pause.parse(self.locked_by) is None:
            return self.schedule_state
        # Nothing was begun since: the pause is the last acquisition.
        now = aware(self.clock)
        end = min(aware(self.released_at or self.lock_until), now)
        return self.schedule_state.paused_until(end, schedule, now)

    def decide(self, start: Start, schedule: Schedule, grace: timedelta) -> Decision:
        """Decide about a start now; see ``ScheduleState.decide()``."""
        ticks = self._ticks_by(schedule)
        return ticks.decide(start, schedule, grace, aware(self.clock))

    def owed_tick(
        self, schedule: Schedule, grace: timedelta, since: datetime
    ) -> datetime | None:
        """
        Return the tick that a scheduler has to begin now; ``None`` if none is.

        A lock that is held owes none. See ``ScheduleState.owed_tick()``.
        """
        if self.state.is_held:
            return None
        now, ticks = aware(self.clock), self._ticks_by(schedule)
        return ticks.owed_tick(schedule, grace, now, since)

    def registered(
        self, schedule: Schedule, since: datetime | None = None
    ) -> ScheduleState:
        """
        Return the state of the ticks if this schedule is registered now.

        See ``ScheduleState.registered()``.
        """
        now, locked_at = aware(self.clock), aware(self.locked_at)
        if self.schedule == schedule:
            return self.schedule_state
        state = self.ticks.registered(schedule, now, locked_at, since)
        return replace(self, schedule_state=state).ticks

    @property
    def schedule(self) -> Schedule | None:
        """The schedule that the lock had last, with a time zone."""
        return self.schedule_state.schedule

    @property
    def next_tick(self) -> datetime | None:
        """The tick to be run next; ``None`` without a schedule."""
        return self.ticks.next_tick(aware(self.clock))


@dataclass(frozen=True)
class LockHolder:
    """
    The holder of a lock that we did not get, and what is left of its lease.

    With ``tick``, that tick of the schedule was run, is running, or must not run now:
    waiting is useless. ``is_expired`` means that its lease is over without a release,
    so that a catch-up does not run next to a job that may still run. ``has_ended``
    means that its run is over, and ``lock_at_least_for`` keeps the lock.
    """

    locked_by: str
    remaining: timedelta = ZERO
    tick: datetime | None = None
    is_expired: bool = False
    has_ended: bool = False

    @property
    def is_inherited(self) -> bool:
        """Whether it is running, and this process was started in its run."""
        is_running = self.remaining > ZERO and not self.has_ended
        return is_running and self.locked_by in inherited_identities()

    @property
    def is_endless(self) -> bool:
        """Whether it is a pause without an end; its lease began some time ago."""
        return Pause.parse(self.locked_by) is not None and self.remaining > FOREVER / 2

    @property
    def has_run_tick(self) -> bool:
        """Whether it holds the lock no longer, but the tick was run."""
        return self.tick is not None and not self.remaining and not self.is_expired

    @property
    def reason(self) -> str:
        """Why we did not get the lock."""
        if self.is_expired:
            return f"its lease is over, but {self.locked_by} never released it"
        if self.tick is None or not self.has_run_tick:
            if Pause.parse(self.locked_by) is not None:
                return self.locked_by
            remark = ", a run that this process belongs to" if self.is_inherited else ""
            return f"held by {self.locked_by}{remark}"
        tick = self.tick.isoformat(sep=" ", timespec="minutes")
        if not self.locked_by:
            return f"its tick of {tick} came before its schedule was registered"
        if Pause.parse(self.locked_by) is not None:
            return f"its tick of {tick} came before its pause ended"
        return f"its tick of {tick} is done, last run by {self.locked_by}"

    def __str__(self) -> str:
        return self.locked_by


CONTENDED = LockHolder("another worker that came first")
"""The holder, if the store refused us in a race and did not say who won."""


def is_success(exception: BaseException | None) -> bool:
    """Return whether a body that ended so has done its work."""
    return exception is None or (
        isinstance(exception, SystemExit) and exception.code in (None, 0)
    )


class InterruptedBodyError(Exception):
    """The body of a job did not end by itself: its process was ended or has died."""


def is_interruption(exception: BaseException | None) -> bool:
    """
    Return whether something else than the job has ended its body.

    That is a signal, whose handler raises ``KeyboardInterrupt`` or an exit with the
    status of that signal; a cancellation of an async job; or the death of its process.
    An ordinary error of the job is a failure, and no interruption.
    """
    if isinstance(exception, SystemExit):
        # An exit may have any object as its code.
        return isinstance(exception.code, int) and exception.code in ENDING_STATUSES
    interruptions = KeyboardInterrupt, CancelledError, InterruptedBodyError
    return isinstance(exception, interruptions)


ENDING_STATUSES = frozenset(128 + number for number in (signal.SIGINT, signal.SIGTERM))
"""The exit statuses of a process that ends because of such a signal."""


class RunOutcome(StrEnum):
    """
    The outcome of a run; the most urgent first.

    ``TIMED_OUT`` is a run that its time limit ended, however its body ends then.
    ``LOST`` is a run that lost its lock before it ended, however its body ends.
    ``ABANDONED`` is a run that has not reported its end, and somebody else accounted
    for: its worker died, or its job still runs.
    """

    FAILED = "failed"
    TIMED_OUT = "timed out"
    LOST = "lost"
    ABANDONED = "abandoned"
    SUCCEEDED = "succeeded"

    @classmethod
    def of(cls, exception: BaseException | None, *, released: bool) -> "RunOutcome":
        """
        Return the outcome of a body that ended so.

        ``released`` says whether it still held its lock then.
        """
        if not released:
            return cls.LOST
        if isinstance(exception, TimeLimitExceeded):
            return cls.TIMED_OUT
        return cls.SUCCEEDED if is_success(exception) else cls.FAILED

    @classmethod
    def of_own_release(cls) -> "frozenset[RunOutcome]":
        """Return the outcomes that only the release of a run itself writes."""
        return frozenset({cls.SUCCEEDED, cls.FAILED, cls.TIMED_OUT})

    @property
    def is_bad(self) -> bool:
        """Whether somebody should have a look."""
        return self is not RunOutcome.SUCCEEDED
