"""Who holds a lock that we did not get."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django_shedlock.configuration import ZERO


@dataclass(frozen=True)
class LockHolder:
    """Who holds a lock that we did not get, and for how long by the store's clock."""

    locked_by: str
    remaining: timedelta = ZERO

    def __str__(self) -> str:
        return self.locked_by


CONTENDED = LockHolder("another worker that came first")
"""The holder, where the store refused us in a race and did not say who won."""
