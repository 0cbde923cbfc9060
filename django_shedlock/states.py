"""What an operator sees of a lock."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from django_shedlock.clocks import aware, host_now
from django_shedlock.progress import Progress
from django_shedlock.schedules import Schedule

UNUSUAL = 3
"""A job that runs so many times as long as it usually does may be stuck."""
SOON = timedelta(minutes=1)
"""Nobody need look at a job that has not run for so long yet."""


class LockState(StrEnum):
    """The state of a record, by the store's clock."""

    RUNNING = "running"
    HELD_AT_LEAST = "held at least"
    EXPIRED = "expired"
    FREE = "free"

    @property
    def is_held(self) -> bool:
        """Whether nobody can acquire the lock now."""
        return self in {LockState.RUNNING, LockState.HELD_AT_LEAST}

    @property
    def is_running(self) -> bool:
        """Whether the job's lease is valid, and it has not given the lock back."""
        return self is LockState.RUNNING


@dataclass(frozen=True)
class LockStatus:
    """
    One lock at one instant of the store's ``clock``; else it is this process's.

    ``remaining`` is zero unless the lock is held.
    """

    name: str
    state: LockState
    locked_by: str
    locked_at: datetime
    lock_until: datetime
    remaining: timedelta
    clock: datetime = field(default_factory=host_now)
    progress: Progress = field(default_factory=Progress)

    @property
    def held_for(self) -> timedelta:
        """How long ago a held lock was taken; zero if it is not held."""
        if not self.state.is_held:
            return timedelta(0)
        age = self.lock_until - self.locked_at - self.remaining
        return max(age, timedelta(0))

    def overdue_since(self, grace: timedelta) -> datetime | None:
        """Return the first tick that should have succeeded, unless the job runs."""
        if self.state.is_running:
            return None
        return self.progress.overdue_since(aware(self.clock), grace)

    def overdue_for(self, grace: timedelta) -> timedelta:
        """Return how long ago that tick was; zero if none is late."""
        since = self.overdue_since(grace)
        return timedelta(0) if since is None else aware(self.clock) - since

    def skips_since(self, grace: timedelta) -> datetime | None:
        """Return the tick of a job that still runs, though a later one is overdue."""
        progress = self.progress
        if not self.state.is_running or progress.schedule is None:
            return None
        is_on_time = progress.was_started(aware(self.clock), grace)
        return None if is_on_time else progress.tick

    @property
    def schedule(self) -> Schedule | None:
        """The schedule that the lock had last, with a time zone."""
        return self.progress.schedule

    @property
    def next_tick(self) -> datetime | None:
        """The tick to be run next; ``None`` without a schedule."""
        return self.progress.next_tick(aware(self.clock))


def is_unusual(state: LockState, age: timedelta, usual: timedelta | None) -> bool:
    """Return whether a job that began so long ago runs for much longer than usual."""
    if not state.is_running or usual is None:
        return False
    return age > max(SOON, UNUSUAL * usual)
