"""The provider of ``SHEDLOCK_ENABLED = False``: nothing is locked."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.utils import timezone

from django_shedlock.locks.lock import Lock
from django_shedlock.locks.states import LockHolder, LockStatus
from django_shedlock.providers.base import ALL_LOCKS, LockProvider, LockQuery


class UnlockedProvider(LockProvider):
    """Gives every lock to everybody."""

    keeps_ticks = True
    can_fence = True

    def acquire(self, lock: Lock) -> LockHolder | None:
        return None

    def extend(self, *arguments: Any, **options: Any) -> bool:
        return True

    def release(self, lock: Lock, *, succeeded: bool = True) -> bool:
        return True

    def fence(self, lock: Lock) -> bool:
        return True

    def now(self) -> datetime:
        return timezone.now()

    def statuses(self, query: LockQuery = ALL_LOCKS) -> Iterator[LockStatus]:
        return iter(())

    def replace(self, *arguments: Any, **options: Any) -> bool:
        return False
