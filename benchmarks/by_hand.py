"""What people write with Django alone: all goals are ratios to this."""

from __future__ import annotations

from datetime import timedelta

from django.db.models.functions import Now
from django.utils import timezone

from benchmarks.models import HandWrittenLock, HandWrittenRun

LEASE = timedelta(minutes=1)


class HandWritten:
    """
    Locks by ``.filter(...).update(...)`` on the database of this alias.

    They use the database's clock, since hosts disagree about the time. A lock's record
    has to be there before its first acquisition.
    """

    def __init__(self, alias: str, me: str = "me"):
        self._locks = HandWrittenLock.objects.db_manager(alias)
        self._runs = HandWrittenRun.objects.db_manager(alias)
        self._me = me

    def acquire(self, name: str) -> bool:
        """Return whether the lock was free. It is one statement."""
        free = self._locks.filter(name=name, lock_until__lte=Now())
        acquired = free.update(
            lock_until=Now() + LEASE, locked_at=Now(), locked_by=self._me
        )
        return bool(acquired)

    def release(self, name: str) -> None:
        """Release the lock, if it is still ours."""
        self._locks.filter(name=name, locked_by=self._me).update(lock_until=Now())

    def pair(self, name: str) -> bool:
        """Acquire and release; return whether the lock was free."""
        is_acquired = self.acquire(name)
        if is_acquired:
            self.release(name)
        return is_acquired

    def pair_with_history(self, name: str) -> None:
        """Acquire and release, and write a run: four statements."""
        if self.acquire(name):
            run = self._runs.create(
                name=name, locked_by=self._me, started=timezone.now()
            )
            self.release(name)
            self._runs.filter(pk=run.pk).update(
                finished=timezone.now(), outcome="succeeded"
            )
