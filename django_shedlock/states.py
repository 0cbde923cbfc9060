"""What an operator sees of a lock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

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


@dataclass(frozen=True)
class LockStatus:
    """One lock at one instant; ``remaining`` is zero unless the lock is held."""

    name: str
    state: LockState
    locked_by: str
    locked_at: datetime
    lock_until: datetime
    remaining: timedelta

    @property
    def held_for(self) -> timedelta:
        """How long ago a held lock was taken; zero if it is not held."""
        if not self.state.is_held:
            return timedelta(0)
        age = self.lock_until - self.locked_at - self.remaining
        return max(age, timedelta(0))


def is_unusual(state: LockState, age: timedelta, usual: timedelta | None) -> bool:
    """Return whether a job that began so long ago runs for much longer than usual."""
    if state is not LockState.RUNNING or usual is None:
        return False
    return age > max(SOON, UNUSUAL * usual)
