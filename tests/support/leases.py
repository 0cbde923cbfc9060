"""The time of leases and of their heartbeat, without waiting for it."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any
from unittest.mock import patch

from django_shedlock import Lock, keepalive
from django_shedlock.keepalive import heartbeat
from django_shedlock.providers.memory import MemoryLockProvider
from tests.support.locks import expire
from tests.support.processes import wait_for

OFTEN = 0.3
"""Seconds between two beats of a heartbeat that beats often."""


def end_lease(lock: Lock) -> None:
    """Let the lease be over now, in the store and by its holder's own count."""
    if isinstance(lock.provider, MemoryLockProvider):
        _entry(lock).lock_until = time.monotonic()
    else:
        expire(lock.name)
    end_own_count(lock)


def end_own_count(lock: Lock) -> None:
    """Let the holder believe that the lease is over, as if an operator extended it."""
    lock._deadline = time.monotonic()


def pass_time(by: timedelta, *locks: Lock) -> None:
    """Let these locks in memory be that much older, and wait for the beats then due."""
    with heartbeat._changed:
        for lock in locks:
            _shift(lock, by.total_seconds())
        heartbeat._changed.notify()
    wait_for(lambda: not any(map(_is_due, locks)))


def beat_now(lock: Lock) -> None:
    """Let the next beat of the lock be due."""
    with heartbeat._changed:
        heartbeat._beats[lock].due = 0
        heartbeat._changed.notify()


def beat_often() -> None:
    """Let this process extend its locks all the time, so that no lease can be short."""
    make = keepalive._Beat.__init__

    def make_quick(beat: keepalive._Beat, lock: Lock) -> None:
        make(beat, lock)
        beat._interval = OFTEN
        beat.due = time.monotonic() + OFTEN

    patch.object(keepalive._Beat, "__init__", make_quick).start()


def _entry(lock: Lock) -> Any:
    assert isinstance(lock.provider, MemoryLockProvider)
    return lock.provider._entries[lock.name]


def _shift(lock: Lock, seconds: float) -> None:
    entry, beat = _entry(lock), heartbeat._beats.get(lock)
    entry.locked_at -= seconds
    entry.lock_until -= seconds
    entry.lock_at_least_until -= seconds
    lock._deadline -= seconds
    if beat is not None:
        beat.due -= seconds


def _is_due(lock: Lock) -> bool:
    beat = heartbeat._beats.get(lock)
    return beat is not None and beat.due <= time.monotonic()
