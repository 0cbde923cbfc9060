"""What locks nothing: for ``SHEDLOCK_ENABLED = False``."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from django_shedlock.clocks import host_now
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockHolder, LockStatus
from django_shedlock.providers.base import ALL_LOCKS, LockProvider, LockQuery


class UnlockedProvider(LockProvider):
    """Gives each lock to each caller, and keeps no records."""

    keeps_ticks = True
    can_fence = True

    def acquire(self, lock: Lock) -> LockHolder | None:
        return None

    def extend(self, lock: Lock, *durations: timedelta) -> bool:
        return True

    def release(self, lock: Lock, *, succeeded: bool = True) -> bool:
        return True

    def account_for_loss(self, lock: Lock, *, has_ended: bool) -> None:
        return

    def note_unrecorded(self, name: str) -> None:
        return

    def request_run(self, name: str, by: str, why: str) -> None:
        return

    def withdraw_request(self, name: str, asked_at: datetime) -> bool:
        return False

    def fence(self, lock: Lock) -> bool:
        return True

    def now(self) -> datetime:
        return host_now()

    def statuses(self, query: LockQuery = ALL_LOCKS) -> Iterator[LockStatus]:
        return iter(())

    def replace(
        self, status: LockStatus, lasting: timedelta, *, locked_by: str | None = None
    ) -> bool:
        return False
