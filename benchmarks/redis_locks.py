"""One caller's locks in Redis, compared with the lock of redis-py."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from benchmarks.tables import Row, Ways, compare

HELD = "held"
LEASE = timedelta(minutes=1)


def measure(
    settings: dict[str, Any], options: argparse.Namespace
) -> dict[str, dict[str, Row]]:
    """Return and print each way's times, compared with redis-py's lock."""
    from redis import Redis

    with Redis.from_url(options.redis) as client, held_by_both(client):
        tables = {"a pair in Redis": pairs(client), "a failed try": tries(client)}
        return compare(tables, options.rounds, options.in_a_row)


def make_lock(name: str, lease: timedelta = LEASE) -> Any:
    """Return a lock that only its provider is asked for, without what is above it."""
    from django_shedlock.locks.configuration import LockConfiguration
    from django_shedlock.locks.lock import Lock
    from django_shedlock.providers import get_provider

    return Lock(get_provider("redis"), LockConfiguration(name, lease))


@contextmanager
def held_by_both(client: Any) -> Iterator[None]:
    """Hold one lock of redis-py and one of this package."""
    lock = make_lock(HELD, timedelta(hours=9))
    lock.provider.acquire(lock)
    with client.lock(HELD, timeout=9 * 3600):
        yield
    lock.provider.release(lock)


def pairs(client: Any) -> Ways:
    """Return the ways to acquire and release."""
    from django_shedlock import hold, scheduler_lock

    def theirs() -> None:
        with client.lock("job", timeout=60):
            pass

    def by_provider() -> None:
        lock = make_lock("provider")
        lock.provider.acquire(lock)
        lock.provider.release(lock)

    def held() -> None:
        with hold("hold", lock_at_most_for="1m", provider="redis", history=False):
            pass

    @scheduler_lock("decorated", lock_at_most_for="1m", provider="redis", history=False)
    def decorated() -> None:
        pass

    return {
        "redis-py Lock": theirs,
        "the provider alone": by_provider,
        "hold()": held,
        "decorator": decorated,
    }


def tries(client: Any) -> Ways:
    """Return the ways to find a lock held."""
    from django_shedlock import LockNotAcquired, execute, hold

    options: Any = {"lock_at_most_for": "1m", "provider": "redis", "history": False}

    def theirs() -> None:
        client.lock(HELD, timeout=60).acquire(blocking=False)

    def by_provider() -> None:
        lock = make_lock(HELD)
        lock.provider.acquire(lock)

    def skip() -> None:
        execute(list, HELD, **options)

    def ask() -> None:
        with suppress(LockNotAcquired), hold(HELD, **options):
            raise AssertionError("somebody holds it")

    return {
        "redis-py Lock": theirs,
        "the provider alone": by_provider,
        "execute()": skip,
        "hold(), whose error tells the holder": ask,
    }
