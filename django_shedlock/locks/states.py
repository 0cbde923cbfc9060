"""What can be told of a lock: its state, its status, its holder, a run's outcome."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from operator import attrgetter
from typing import Any, Self

from django_shedlock.clocks import aware, host_now
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.pauses import FOREVER, Pause
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import Decision, ScheduleState, Start, Trigger
from django_shedlock.signals import logger
from django_shedlock.threads import outside_event_loop

MOST_LOGGED = 1000

_logged: set[str] = set()


class LockState(StrEnum):
    """The state of a record, by the store's clock."""

    RUNNING = "running"
    PAUSED = "paused"
    HELD_AT_LEAST = "held at least"
    EXPIRED = "expired"
    FREE = "free"

    @property
    def is_held(self) -> bool:
        """Whether nobody can acquire the lock now."""
        return self in {LockState.RUNNING, LockState.PAUSED, LockState.HELD_AT_LEAST}

    @property
    def may_run(self) -> bool:
        """Whether the job runs, or may still run although its lease is over."""
        return self in {LockState.RUNNING, LockState.EXPIRED}


def state_of(locked_by: str, *, is_held: bool, is_released: bool) -> LockState:
    """Return the state, by whether the lease goes on and somebody released it."""
    if is_released:
        return LockState.HELD_AT_LEAST if is_held else LockState.FREE
    if Pause.parse(locked_by) is not None:
        return LockState.PAUSED if is_held else LockState.FREE
    return LockState.RUNNING if is_held else LockState.EXPIRED


NOT_FREE = frozenset(LockState) - {LockState.FREE}


@dataclass(frozen=True)
class LockStatus:
    """
    One lock at one instant of the store's ``clock``.

    ``remaining`` is zero unless the lock is held. ``heartbeat_at`` is when the holder
    extended its lease last, where the store keeps that. ``unreadable`` says why the
    record can't be read: then only the name and the state are sure.
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

    def checked(self) -> Self:
        """Return it, with ticks of which all methods can make sense, or none."""
        try:
            if self.schedule is not None:
                _ = self.next_tick, self.skips_since(ZERO), self.may_catch_up(ZERO)
        except Exception as error:  # whatever a value makes of the computation
            return self.as_unreadable(f"{type(error).__name__}: {error}")
        return self

    def as_unreadable(self, reason: str) -> Self:
        """Return it without ticks, since the record can't be read; log why, once."""
        # Monitors read a record again and again.
        if self.name not in _logged and len(_logged) < MOST_LOGGED:
            _logged.add(self.name)
            logger.warning(
                "The record of lock %r can't be read: %s. Correct or delete it; "
                "`python manage.py shedlock check` says where it is.",
                self.name,
                reason,
            )
        return replace(self, schedule_state=ScheduleState(), unreadable=reason)

    def holder(self, tick: datetime | None = None) -> "LockHolder":
        """Return the holder, as a caller that did not get the lock learns of it."""
        return LockHolder(self.locked_by, self.remaining, tick)

    def refusal(self, start: Start, decision: Decision | None) -> "LockHolder | None":
        """Return the holder if this start does not get the lock, else ``None``."""
        is_kept_only = self.state is LockState.HELD_AT_LEAST
        is_by_operator = start.trigger is Trigger.OPERATOR
        is_held = self.remaining > ZERO and not (is_kept_only and is_by_operator)
        is_expired = self.state is LockState.EXPIRED
        if decision and is_expired and start.trigger is Trigger.CATCH_UP:
            return LockHolder(self.locked_by, tick=decision.tick, is_expired=True)
        if decision is None or decision.is_allowed:
            return self.holder() if is_held else None
        # Callers other than the scheduler wait for a held lock.
        if is_held and start.trigger is not Trigger.SCHEDULER:
            return self.holder()
        return self.holder(self.schedule_state.tick or decision.tick)

    @property
    def held_for(self) -> timedelta:
        """How long ago a held lock was acquired; zero if it is not held."""
        if not self.state.is_held:
            return ZERO
        return max(self.lock_until - self.locked_at - self.remaining, ZERO)

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
        if self.state in {LockState.RUNNING, LockState.PAUSED}:
            return None
        return self.schedule_state.overdue_since(aware(self.clock), grace)

    def skips_since(self, grace: timedelta) -> datetime | None:
        """Return the tick of a job that still runs, though a later one is overdue."""
        ticks = self.schedule_state
        if self.state is not LockState.RUNNING or ticks.schedule is None:
            return None
        return None if ticks.was_started(aware(self.clock), grace) else ticks.tick

    def may_catch_up(self, grace: timedelta) -> bool:
        """Return whether a catch-up would run the job, as far as its ticks decide."""
        ticks, start = self.schedule_state, Start(Trigger.CATCH_UP)
        if ticks.schedule is None:
            return False
        now = aware(self.clock)
        return ticks.decide(start, ticks.schedule, grace, now).is_allowed

    def registered(self, schedule: Schedule) -> ScheduleState:
        """Return the state of the ticks if this schedule is registered now."""
        now, locked_at = aware(self.clock), aware(self.locked_at)
        return self.schedule_state.registered(schedule, now, locked_at)

    @property
    def schedule(self) -> Schedule | None:
        """The schedule that the lock had last, with a time zone."""
        return self.schedule_state.schedule

    @property
    def next_tick(self) -> datetime | None:
        """The tick to be run next; ``None`` without a schedule."""
        return self.schedule_state.next_tick(aware(self.clock))


@dataclass(frozen=True)
class LockHolder:
    """
    The holder of a lock that we did not get, and what is left of its lease.

    With ``tick``, that tick of the schedule was run, is running, or must not run now:
    waiting is useless. ``is_expired`` tells that its lease is over without a release,
    so that a catch-up does not run next to a job that may still run.
    """

    locked_by: str
    remaining: timedelta = ZERO
    tick: datetime | None = None
    is_expired: bool = False

    @property
    def reason(self) -> str:
        """Why we did not get the lock."""
        if self.is_expired:
            return f"its lease is over, but {self.locked_by} never released it"
        if self.tick is None or self.remaining:
            is_paused = Pause.parse(self.locked_by) is not None
            return self.locked_by if is_paused else f"held by {self.locked_by}"
        tick = self.tick.isoformat(sep=" ", timespec="minutes")
        return f"its tick of {tick} is done, last run by {self.locked_by}"

    def __str__(self) -> str:
        return self.locked_by


class UnreadHolder(LockHolder):
    """A holder that is read from the store when somebody asks for it."""

    _read: Callable[[], LockHolder]

    def __init__(self, read: Callable[[], LockHolder]):
        object.__setattr__(self, "_read", read)

    @cached_property
    def _known(self) -> LockHolder:
        return outside_event_loop(self._read)

    locked_by: Any = property(attrgetter("_known.locked_by"))
    remaining: Any = property(attrgetter("_known.remaining"))
    tick: Any = property(attrgetter("_known.tick"))


CONTENDED = LockHolder("another worker that came first")
"""The holder, if the store refused us in a race and did not say who won."""


def is_success(exception: BaseException | None) -> bool:
    """Return whether a body that ended so has done its work."""
    return exception is None or (
        isinstance(exception, SystemExit) and exception.code in (None, 0)
    )


class RunOutcome(StrEnum):
    """
    The outcome of a run.

    ``LOST`` is a run that lost its lock before it ended, however its body ends.
    ``ABANDONED`` is a run that has not reported its end, and does not hold its lock any
    more: its worker died, or its job still runs.
    """

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LOST = "lost"
    ABANDONED = "abandoned"

    @classmethod
    def of(cls, exception: BaseException | None) -> "RunOutcome":
        """Return the outcome of a body that ended so, and still held its lock."""
        return cls.SUCCEEDED if is_success(exception) else cls.FAILED

    @property
    def is_bad(self) -> bool:
        """Whether somebody should have a look."""
        return self in {RunOutcome.FAILED, RunOutcome.LOST, RunOutcome.ABANDONED}
