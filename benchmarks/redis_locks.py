"""One caller's locks in Redis, compared with the lock of redis-py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from benchmarks.tables import Ways, compare

HELD = "held"


def measure(url: str, rounds: int) -> dict[str, dict[str, dict[str, float]]]:
    """Return and print each way's times, compared with redis-py's lock."""
    from redis import Redis

    with Redis.from_url(url) as client, held_by_both(client):
        tables = {"a pair in Redis": pairs(client), "a failed try": tries(client)}
        return compare(tables, rounds)


@contextmanager
def held_by_both(client: Any) -> Iterator[None]:
    """Hold one lock of redis-py and one of this package."""
    from django_shedlock.locks.configuration import LockConfiguration
    from django_shedlock.locks.lock import Lock
    from django_shedlock.providers import get_provider

    provider = get_provider("redis")
    lock = Lock(provider, LockConfiguration(HELD, timedelta(hours=9)))
    provider.acquire(lock)
    with client.lock(HELD, timeout=9 * 3600):
        yield
    provider.release(lock)


def pairs(client: Any) -> Ways:
    """Return the ways to acquire and release."""
    from django_shedlock import hold, scheduler_lock

    def theirs() -> None:
        with client.lock("job", timeout=60):
            pass

    def held() -> None:
        with hold("hold", lock_at_most_for="1m", provider="redis", history=False):
            pass

    @scheduler_lock("decorated", lock_at_most_for="1m", provider="redis", history=False)
    def decorated() -> None:
        pass

    return {"redis-py Lock": theirs, "hold()": held, "decorator": decorated}


def tries(client: Any) -> Ways:
    """Return the ways to find a lock held."""
    from django_shedlock import LockNotAcquired, execute, hold

    options: Any = {"lock_at_most_for": "1m", "provider": "redis", "history": False}

    def theirs() -> None:
        client.lock(HELD, timeout=60).acquire(blocking=False)

    def skip() -> None:
        execute(list, HELD, **options)

    def ask() -> None:
        with suppress(LockNotAcquired), hold(HELD, **options):
            raise AssertionError("somebody holds it")

    return {
        "redis-py Lock": theirs,
        "execute(), nobody asks": skip,
        "hold(), whose error tells the holder": ask,
    }
