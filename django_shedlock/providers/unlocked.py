"""The provider of ``SHEDLOCK_ENABLED = False``: nothing is locked."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.utils import timezone

from django_shedlock.locks.lock import Lock
from django_shedlock.locks.states import LockHolder, LockStatus
from django_shedlock.providers.base import LockProvider


class UnlockedProvider(LockProvider):
    """Gives every lock to everybody."""

    keeps_ticks = True

    def take(self, lock: Lock) -> LockHolder | None:
        """See LockProvider.take()."""
        return None

    def extend(
        self,
        lock: Lock,
        lock_at_most_for: timedelta,
        lock_at_least_for: timedelta | None = None,
    ) -> bool:
        """See LockProvider.extend()."""
        return True

    def release(self, lock: Lock, *, succeeded: bool = True) -> bool:
        """See LockProvider.release()."""
        return True

    def fencing_token(self, lock: Lock) -> int | None:
        """See LockProvider.fencing_token()."""
        return 0

    def fence(self, lock: Lock) -> bool:
        """See LockProvider.fence()."""
        return True

    def now(self) -> datetime:
        """See LockProvider.now(). It is this process's clock."""
        return timezone.now()

    def statuses(self, name: str | None = None) -> Sequence[LockStatus]:
        """See LockProvider.statuses()."""
        return []

    def force_release(
        self, name: str, *, running: bool = False, locked_by: str | None = None
    ) -> bool:
        """See LockProvider.force_release()."""
        return False

    def force_extend(
        self, name: str, lock_at_most_for: timedelta, *, locked_by: str | None = None
    ) -> bool:
        """See LockProvider.force_extend()."""
        return False
