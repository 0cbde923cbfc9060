"""What an operator sees of a lock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum


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
