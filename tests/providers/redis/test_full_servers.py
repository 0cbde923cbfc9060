"""What works on a server that is full, and evicts nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.lock import Lock
from django_shedlock.providers.redis import RedisLockProvider
from django_shedlock.schedules.cron import Schedule
from tests.providers.redis.test_contract import shift
from tests.providers.redis.test_requests import SCHEDULE, SCHEDULED
from tests.support.locks import (
    LEASE,
    MINUTE,
    configure,
    force_release,
    status_of,
    take_from,
    try_from,
)
from tests.support.redis_fixtures import locks_on
from tests.support.redis_servers import RedisServer


@pytest.fixture
def locks(own_redis: RedisServer) -> Iterator[RedisLockProvider]:
    with locks_on(own_redis) as provider:
        yield provider


@pytest.fixture
def fill(own_redis: RedisServer) -> Iterator[Callable[[], None]]:
    """Return what fills the server."""

    def fill() -> None:
        own_redis.ask("SET", "ballast", "x" * 1_000_000)
        own_redis.ask("CONFIG", "SET", "maxmemory", "1mb")

    yield fill
    own_redis.ask("CONFIG", "SET", "maxmemory", "0")


STEPS: dict[str, Callable[[Lock], Any]] = {
    "extend": lambda lock: lock.extend(LEASE, MINUTE) is None,
    "release": Lock.release,
    "operator's extension": lambda lock: lock.provider.replace(
        status_of(lock.provider, "job"), LEASE
    ),
    "operator's release": lambda lock: force_release(lock.provider, "job"),
}


@pytest.mark.parametrize("is_tick", [False, True], ids=["plain", "tick"])
@pytest.mark.parametrize("step", STEPS)
def test_held_lock(
    locks: RedisLockProvider, fill: Callable[[], None], step: str, *, is_tick: bool
) -> None:
    """It is extended and released as ever: that needs no memory worth the name."""
    locks.register("job", SCHEDULE)
    shift(locks, "job", timedelta(days=2))
    lock = take_from(locks, SCHEDULED if is_tick else configure())
    fill()
    assert STEPS[step](lock)
    left = status_of(locks, "job").remaining
    assert left > MINUTE if "exten" in step else not left


def test_registered_schedule_changes(
    locks: RedisLockProvider, fill: Callable[[], None]
) -> None:
    """Its record is there already."""
    locks.register("job", SCHEDULE)
    fill()
    other = Schedule("0 9 * * *", "UTC")
    locks.register("job", other)
    assert status_of(locks, "job").schedule == other


@pytest.mark.parametrize("wanted", [configure(), SCHEDULED], ids=["plain", "tick"])
@pytest.mark.parametrize("is_known", [False, True], ids=["new", "known"])
def test_nothing_is_acquired(
    locks: RedisLockProvider, fill: Callable[[], None], wanted: Any, *, is_known: bool
) -> None:
    """The error says what to do, and nobody believes in a lock."""
    if is_known:
        assert take_from(locks, replace(wanted, schedule=None)).release()
    fill()
    with pytest.raises(LockProviderError, match=r"'job'.*maxmemory.*more mem") as error:
        try_from(locks, wanted)
    assert "script" not in str(error.value)
    assert not error.value.is_uncertain
