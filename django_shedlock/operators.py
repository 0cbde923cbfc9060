"""What an operator does to somebody else's lock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django_shedlock.providers.base import LockProvider
from django_shedlock.signals import lock_force_extended, lock_force_released


@dataclass(frozen=True)
class OperatorAction:
    """
    An action on a lock: which lock, which operator, and why.

    With ``locked_by``, the action is for that acquisition only. ``operator`` is a name
    for people, ``reason`` any text. The methods return whether they succeeded; if so,
    they send a signal. They raise ``LockProviderError`` if the store failed.
    """

    provider: LockProvider
    name: str
    locked_by: str | None = None
    operator: str = ""
    reason: str = ""

    def release(self, *, running: bool = False) -> bool:
        """Release the lock; with ``running``, even while its job runs."""
        released = self.provider.force_release(
            self.name, running=running, locked_by=self.locked_by
        )
        if released:
            lock_force_released.send_robust(type(self.provider), action=self)
        return released

    def extend(self, lock_at_most_for: timedelta) -> bool:
        """Extend the lease of a held lock from now; never shorten it."""
        extended = self.provider.force_extend(
            self.name, lock_at_most_for, locked_by=self.locked_by
        )
        if extended:
            lock_force_extended.send_robust(
                type(self.provider), action=self, lock_at_most_for=lock_at_most_for
            )
        return extended
