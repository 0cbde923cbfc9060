"""The time of leases and of their heartbeat, without waiting for it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from unittest.mock import patch

from django_shedlock import Lock
from django_shedlock.clocks import uptime
from django_shedlock.keepalive import Beat, heartbeat, lease_ends
from django_shedlock.providers.memory import MemoryLockProvider
from tests.support.waiting import wait_for

OFTEN = 0.3
"""Seconds between two beats of a heartbeat that beats often."""


def end_lease(lock: Lock) -> None:
    """Let the lease be over now, in the store and by its holder's own count."""
    if isinstance(lock.provider, MemoryLockProvider):
        entry = lock.provider._entries[lock.name]
        lock.provider._entries[lock.name] = replace(entry, lock_until=uptime())
    else:
        # Not before: settings of other processes import this file for its heartbeat.
        from tests.support.locks import expire

        expire(lock.name)
    end_own_count(lock)


def lease_end(lock: Lock) -> float:
    """Return when the lease is over by its holder's count, by ``uptime()``."""
    return lock.lease_end


def end_own_count(lock: Lock, after: timedelta = timedelta(0)) -> float:
    """
    Let the holder believe that the lease ends so soon, as if an operator extended it.

    Return when that is, by ``uptime()``.
    """
    lock.lease_end = uptime() + after.total_seconds()
    look_at_lease_ends(lock)
    return lock.lease_end


def age_own_count(lock: Lock, by: timedelta) -> None:
    """Let the holder believe that so much time has passed."""
    lock.lease_end -= by.total_seconds()


def age_entry(provider: MemoryLockProvider, name: str, by: timedelta) -> None:
    """Let a lock in memory, if there is one, be that much older."""
    entry = provider._entries.get(name)
    if entry is not None:
        seconds = by.total_seconds()
        provider._entries[name] = replace(
            entry,
            locked_at=entry.locked_at - seconds,
            lock_until=entry.lock_until - seconds,
            lock_at_least_until=entry.lock_at_least_until - seconds,
        )


def pass_time(by: timedelta, *locks: Lock) -> None:
    """Let these locks in memory be that much older, and wait for the beats then due."""
    with heartbeat._changed:
        for lock in locks:
            age_entry(_in_memory(lock), lock.name, by)
            age_own_count(lock, by)
            if (beat := heartbeat._entries.get(lock)) is not None:
                beat.due -= by.total_seconds()
        heartbeat._changed.notify()
    look_at_lease_ends(*locks)
    wait_for(lambda: not any(map(_is_due, locks)))


def is_kept_alive(lock: Lock) -> bool:
    return lock in heartbeat._entries


def next_beat(lock: Lock) -> timedelta:
    """Return in how much time the next beat of the lock is due."""
    return timedelta(seconds=heartbeat._entries[lock].due - uptime())


def wait_until_idle() -> None:
    """Wait until the heartbeat's thread has nothing to do, and so no mutex."""
    wait_for(lambda: heartbeat._changed._waiters)


def beat_now(lock: Lock, after: timedelta = timedelta(0)) -> None:
    """Let the next beat of the lock be due now, or in so much time."""
    with heartbeat._changed:
        heartbeat._entries[lock].due = uptime() + after.total_seconds()
        heartbeat._changed.notify()


def beat_often() -> None:
    """Let this process extend its locks all the time, so that no lease can be short."""
    make = Beat.__init__

    def make_quick(beat: Beat, lock: Lock) -> None:
        make(beat, lock)
        beat.interval = OFTEN

    patch.object(Beat, "__init__", make_quick).start()


def look_at_lease_ends(*locks: Lock) -> None:
    """Let the thread that watches for the ends of leases look at these at once."""
    with lease_ends._changed:
        for lock in locks:
            if lock in lease_ends._entries:
                lease_ends._entries[lock].due = 0
        lease_ends._changed.notify()


def _in_memory(lock: Lock) -> MemoryLockProvider:
    assert isinstance(lock.provider, MemoryLockProvider)
    return lock.provider


def _is_due(lock: Lock) -> bool:
    beat = heartbeat._entries.get(lock)
    return beat is not None and beat.due <= uptime()
