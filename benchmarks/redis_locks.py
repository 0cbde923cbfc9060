"""One caller's locks in Redis, compared with the lock of redis-py."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any
from uuid import uuid4

from benchmarks.tables import Row, Ways, compare

KEYS = f"shedlock-benchmark:{uuid4().hex}:"
"""How this run's keys begin, so that none of an earlier run is in its way."""
HELD = "held"
HELD_FOR = timedelta(hours=1)
"""The longest that a run's keys are left over if it is killed."""
LEASE = timedelta(minutes=1)
PAIR = "a pair in Redis"
BY_REDIS_PY, PROVIDER = "redis-py Lock", "the provider alone"


def measure(
    settings: dict[str, Any], options: argparse.Namespace
) -> dict[str, dict[str, Row]]:
    """Return and print each way's times, compared with redis-py's lock."""
    with connect(options.redis) as client, held_by_both(client):
        tables = {PAIR: pairs(client), "a failed try in Redis": tries(client)}
        return compare(tables, options.rounds, options.in_a_row)


def connect(url: str) -> Any:
    """Return a client that waits as long for an answer as the provider's does."""
    from redis import Redis

    limits = {"socket_timeout": 5.0, "socket_connect_timeout": 5.0}
    return Redis.from_url(url, **limits)


def redis_lock(client: Any, name: str, lease: timedelta = LEASE) -> Any:
    """Return redis-py's lock, which fails at once if somebody holds it."""
    return client.lock(KEYS + name, timeout=lease.total_seconds(), blocking=False)


def make_lock(name: str, lease: timedelta = LEASE) -> Any:
    """Return a lock that only its provider is asked for, without what is above it."""
    from django_shedlock.locks.configuration import LockConfiguration
    from django_shedlock.locks.lock import Lock
    from django_shedlock.providers import get_provider

    return Lock(get_provider("redis"), LockConfiguration(name, lease))


@contextmanager
def held_by_both(client: Any) -> Iterator[None]:
    """Hold one lock of redis-py and one of this package."""
    lock = make_lock(HELD, HELD_FOR)
    lock.provider.acquire(lock)
    with redis_lock(client, f"{HELD} by redis-py", HELD_FOR):
        yield
    lock.provider.release(lock)


def pairs(client: Any) -> Ways:
    """Return the ways to acquire and release."""
    from django_shedlock import hold

    def theirs() -> None:
        with redis_lock(client, "job of redis-py"):
            pass

    def by_provider() -> None:
        lock = make_lock("provider")
        lock.provider.acquire(lock)
        lock.provider.release(lock)

    def held() -> None:
        with hold("hold", lock_at_most_for="1m", provider="redis", history=False):
            pass

    return {BY_REDIS_PY: theirs, PROVIDER: by_provider, "hold()": held}


def tries(client: Any) -> Ways:
    """Return the ways to find a lock held."""
    from django_shedlock import LockNotAcquired, execute, hold

    options: Any = {"lock_at_most_for": "1m", "provider": "redis", "history": False}

    def theirs() -> None:
        redis_lock(client, f"{HELD} by redis-py").acquire()

    def by_provider() -> None:
        lock = make_lock(HELD)
        lock.provider.acquire(lock)

    def skip() -> None:
        execute(list, HELD, **options)

    def ask() -> None:
        with suppress(LockNotAcquired), hold(HELD, **options):
            raise AssertionError("somebody holds it")

    return {
        BY_REDIS_PY: theirs,
        PROVIDER: by_provider,
        "execute()": skip,
        "hold(), whose error names the holder": ask,
    }
