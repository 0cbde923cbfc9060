"""The time of leases and of their heartbeat, without waiting for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from unittest.mock import patch

from django_shedlock import Lock
from django_shedlock.background import Timetable
from django_shedlock.clocks import uptime
from django_shedlock.execution.keep_alive import Heartbeat, guard, lease_ends, unguard
from django_shedlock.providers.memory import MemoryLockProvider
from tests.support.threads import is_idle
from tests.support.waiting import wait_for

OFTEN = 0.3
"""Seconds between two beats of a heartbeat that beats often."""
LONG_NOTICE = timedelta(seconds=20)
"""On a busy machine, this leaves time to ask whether the lease was extended."""


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
    for lock in locks:
        heartbeat = lock.provider.heartbeats
        with heartbeat._changed:
            age_entry(_in_memory(lock), lock.name, by)
            age_own_count(lock, by)
            if is_kept_alive(lock):
                _put_off(heartbeat, lock, _due(lock) - by.total_seconds())
    look_at_lease_ends(*locks)
    wait_for(lambda: not any(map(_is_due, locks)))


def is_kept_alive(lock: Lock) -> bool:
    return lock in lock.provider.heartbeats.entries


def is_watched(lock: Lock) -> bool:
    """Return whether somebody is told when its lease ends."""
    return lock in lease_ends.entries


@contextmanager
def kept_alive(lock: Lock) -> Iterator[None]:
    """Let the heartbeat extend the lease, as while a body runs."""
    guard(lock, keep_alive=True)
    try:
        yield
    finally:
        unguard(lock)


def next_beat(lock: Lock) -> timedelta:
    """Return in how much time the next beat of the lock is due."""
    return timedelta(seconds=_due(lock) - uptime())


def wait_until_idle(lock: Lock) -> None:
    """Wait until the heartbeat's thread has nothing to do, and so no mutex."""
    wait_for(lambda: is_idle(lock.provider.heartbeats))


def beat_now(lock: Lock, after: timedelta = timedelta(0)) -> None:
    """Let the next beat of the lock be due now, or in so much time."""
    _put_off(lock.provider.heartbeats, lock, uptime() + after.total_seconds())


def beat_often() -> None:
    """Let this process extend its locks all the time, so that no lease can be short."""
    make = Heartbeat.__init__

    def make_quick(heartbeat: Heartbeat, lock: Lock) -> None:
        make(heartbeat, lock)
        heartbeat.interval = OFTEN

    patch.object(Heartbeat, "__init__", make_quick).start()


def look_at_lease_ends(*locks: Lock) -> None:
    """Let the thread that watches for the ends of leases look at these at once."""
    for lock in locks:
        with lease_ends._changed:
            if lock in lease_ends.entries:
                _put_off(lease_ends, lock, 0)


def _in_memory(lock: Lock) -> MemoryLockProvider:
    assert isinstance(lock.provider, MemoryLockProvider)
    return lock.provider


def _put_off(timetable: Timetable, lock: Lock, due: float) -> None:
    with timetable._changed:
        timetable.add(lock, timetable.entries[lock].work, due)


def _due(lock: Lock) -> float:
    return float(lock.provider.heartbeats.entries[lock].due)


def _is_due(lock: Lock) -> bool:
    with lock.provider.heartbeats._changed:
        return is_kept_alive(lock) and _due(lock) <= uptime()
