"""What an operator does to somebody else's lock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django_shedlock.providers.base import LockProvider
from django_shedlock.signals import lock_force_extended, lock_force_released


@dataclass(frozen=True)
class Intervention:
    """
    Whose lock is meant, who intervenes, and why.

    With ``locked_by`` it is for that very acquisition: if another one followed,
    nothing happens. ``operator`` is a name for people, ``reason`` any text.
    """

    provider: LockProvider
    name: str
    locked_by: str | None = None
    operator: str = ""
    reason: str = ""

    def release(self, *, running: bool = False) -> bool:
        """
        Free the lock, with ``running`` also while its job runs; tell who listens.

        Return whether it was freed. Raises ``LockProviderError`` if the store failed.
        """
        freed = self.provider.force_release(
            self.name, running=running, locked_by=self.locked_by
        )
        if freed:
            lock_force_released.send_robust(type(self.provider), intervention=self)
        return freed

    def extend(self, lock_at_most_for: timedelta) -> bool:
        """
        Lengthen the lease, which then counts from now; tell who listens.

        Return whether the lock was held. Raises ``LockProviderError`` if the store
        failed.
        """
        extended = self.provider.force_extend(
            self.name, lock_at_most_for, locked_by=self.locked_by
        )
        if extended:
            lock_force_extended.send_robust(
                type(self.provider),
                intervention=self,
                lock_at_most_for=lock_at_most_for,
            )
        return extended
