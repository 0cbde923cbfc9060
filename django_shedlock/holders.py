"""Who holds a lock that we did not get."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django_shedlock.configuration import ZERO


@dataclass(frozen=True)
class LockHolder:
    """
    Who holds a lock that we did not get, and for how long by the store's clock.

    With ``tick`` this tick of its schedule has been run, or is running, or is not to be
    run now: waiting is of no use.
    """

    locked_by: str
    remaining: timedelta = ZERO
    tick: datetime | None = None

    @property
    def reason(self) -> str:
        """Why we did not get the lock."""
        if self.tick is None or self.remaining:
            return f"held by {self.locked_by}"
        tick = self.tick.isoformat(sep=" ", timespec="minutes")
        return f"its tick of {tick} is done, last run by {self.locked_by}"

    def __str__(self) -> str:
        return self.locked_by


CONTENDED = LockHolder("another worker that came first")
"""The holder, where the store refused us in a race and did not say who won."""
