"""The time of locks in memory, without waiting for it."""

from __future__ import annotations

import time

from django_shedlock import Lock
from django_shedlock.providers.memory import MemoryLockProvider


def end_lease(lock: Lock) -> None:
    """Let the lease be over now, in the store and by its holder's own count."""
    provider = lock.provider
    assert isinstance(provider, MemoryLockProvider)
    provider._entries[lock.name].lock_until = time.monotonic()
    end_own_count(lock)


def end_own_count(lock: Lock) -> None:
    """Let the holder believe that the lease is over, as if an operator extended it."""
    lock._deadline = time.monotonic()
