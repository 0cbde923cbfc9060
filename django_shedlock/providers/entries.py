"""
The record of a lock as a value, and what each step makes of it.

A store that can compare and set a value needs nothing else to keep locks.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta

from django_shedlock.clocks import EARLIEST, LATEST
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.states import (
    LockHolder,
    LockState,
    LockStatus,
    log_unreadable,
    state_of,
)
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import from_text, to_text


@dataclass(frozen=True)
class Entry:
    """
    What a store keeps of a lock. Instants are seconds of the store's clock.

    ``ticks`` is the text of ``schedules.state``. ``extended_at`` is when the holder
    extended its lease last.
    """

    locked_by: str
    locked_at: float
    lock_until: float
    lock_at_least_until: float
    fencing_token: int = 0
    is_released: bool = False
    extended_at: float | None = None
    ticks: str = ""

    @classmethod
    def free(cls, now: float) -> Entry:
        """Return the entry of a lock that nobody ever held."""
        return cls("", now, now, now, is_released=True)

    @classmethod
    def from_json(cls, text: str) -> Entry:
        """Return the entry of ``to_json()``; ``ValueError`` if it is none."""
        try:
            entry = cls(**json.loads(text))
        except TypeError as error:
            raise ValueError(f"{text!r} is no record of a lock: {error}") from error
        entry._refuse_other_types()
        return entry

    def to_json(self) -> str:
        """Return the entry as a text that other programs can read, too."""
        return json.dumps(asdict(self), ensure_ascii=False)

    def belongs_to(self, lock: Lock) -> bool:
        """Return whether ``lock`` was acquired last, and is not released."""
        return self.locked_by == lock.locked_by and not self.is_released

    def is_held(self, now: float) -> bool:
        """Return whether nobody can acquire the lock."""
        return self.lock_until > now

    def state(self, now: float) -> LockState:
        """Return the state at ``now``."""
        return state_of(
            self.locked_by, is_held=self.is_held(now), is_released=self.is_released
        )

    def taken(self, lock: Lock, now: float, clock: datetime) -> Entry | LockHolder:
        """
        Return the entry if ``lock`` is acquired now, or the holder that is in its way.

        ``clock`` is the wall clock at ``now``, for the schedule. Sets ``lock.tick``.
        """
        wanted = lock.configuration
        start, schedule, decision = wanted.start, wanted.schedule, None
        status = self.status(lock.name, now, clock)
        if schedule is not None:
            known = status.schedule_state
            decision = known.decide(start, schedule, wanted.grace, clock)
        refusal = status.refusal(start, decision)
        if refusal is not None:
            return refusal
        lock.tick = decision.tick if decision else None
        ticks = to_text(decision.state) if decision else self.ticks
        durations = lock.configuration.lock_at_most_for, lock.lock_at_least_for
        return replace(self.acquired(lock.locked_by, now, *durations), ticks=ticks)

    def acquired(
        self,
        locked_by: str,
        now: float,
        lock_at_most_for: timedelta,
        lock_at_least_for: timedelta = ZERO,
    ) -> Entry:
        """Return the entry of the acquisition that follows this one."""
        return Entry(
            locked_by=locked_by,
            locked_at=now,
            lock_until=now + lock_at_most_for.total_seconds(),
            lock_at_least_until=now + lock_at_least_for.total_seconds(),
            fencing_token=self.fencing_token + 1,
            ticks=self.ticks,
        )

    def extended(
        self, now: float, lock_at_most_for: timedelta, at_least: timedelta | None = None
    ) -> Entry:
        """Return the entry after its holder extended its lease."""
        kept_until = self.lock_at_least_until
        if at_least is not None:
            kept_until = now + at_least.total_seconds()
        longer = self.lengthened(now, lock_at_most_for)
        return replace(longer, lock_at_least_until=kept_until, extended_at=now)

    def lengthened(self, now: float, lock_at_most_for: timedelta) -> Entry:
        """Return the entry with a lease that is longer, or as long as it was."""
        lease_end = now + lock_at_most_for.total_seconds()
        return replace(self, lock_until=max(self.lock_until, lease_end))

    def released(self, lock: Lock, now: float, *, succeeded: bool) -> Entry:
        """Return the entry after the job of ``lock``."""
        # If the clock was set back, keep the lock no longer than if acquired now.
        longest = now + lock.lock_at_least_for.total_seconds()
        kept_until = max(now, min(self.lock_at_least_until, longest))
        ticks = self.ticks
        if succeeded and lock.tick is not None:
            ticks = to_text(from_text(ticks).after_success())
        return replace(self, lock_until=kept_until, is_released=True, ticks=ticks)

    def force_released(self, now: float) -> Entry:
        """Return the entry of a lock that an operator released."""
        return replace(self, lock_until=now, lock_at_least_until=now, is_released=True)

    def registered(
        self, name: str, schedule: Schedule, now: float, clock: datetime
    ) -> Entry:
        """Return the entry with this schedule, if the lock's job does not run."""
        if self.is_held(now) and not self.is_released:
            return self
        ticks = self.status(name, now, clock).registered(schedule)
        return replace(self, ticks=to_text(ticks))

    def status(self, name: str, now: float, clock: datetime) -> LockStatus:
        """
        Return the status at ``now``, when the wall clock was ``clock``.

        A record that can't be read gives one that says so.
        """
        try:
            ticks = from_text(self.ticks)
        except ValueError as error:
            return unreadable_status(name, str(error), clock)
        beat = self.extended_at
        return LockStatus(
            name=name,
            state=self.state(now),
            locked_by=self.locked_by,
            locked_at=_wall_time(clock, self.locked_at - now),
            lock_until=_wall_time(clock, self.lock_until - now),
            remaining=timedelta(seconds=max(0.0, self.lock_until - now)),
            clock=clock,
            schedule_state=ticks,
            fencing_token=self.fencing_token,
            heartbeat_at=None if beat is None else _wall_time(clock, beat - now),
        )

    def _refuse_other_types(self) -> None:
        texts = (self.locked_by, self.ticks)
        numbers = (self.locked_at, self.lock_until, self.lock_at_least_until)
        if all(isinstance(text, str) for text in texts) and all(
            isinstance(number, int | float) for number in (*numbers, self.fencing_token)
        ):
            return
        raise ValueError(f"{self!r} is no record of a lock")


def unreadable_status(name: str, reason: str, clock: datetime) -> LockStatus:
    """Return the status of a record that can't be read, and log why, once."""
    log_unreadable(name, reason)
    none = timedelta(0)
    return LockStatus(
        name, LockState.FREE, "", clock, clock, none, clock, unreadable=reason
    )


def wall_clock(seconds: float) -> datetime:
    """Return the instant so many seconds after 1970."""
    return datetime.fromtimestamp(seconds, UTC)


def _wall_time(clock: datetime, after: float) -> datetime:
    try:
        return min(max(clock + timedelta(seconds=after), EARLIEST), LATEST)
    except OverflowError:
        return LATEST if after > 0 else EARLIEST
