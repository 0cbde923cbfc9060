"""What is sent to Redis, how often, and what a lost answer changes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock

import pytest

from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.configuration import LockConfiguration
from django_shedlock.locks.status import LockHolder, LockState
from django_shedlock.providers.redis import RedisLockProvider
from django_shedlock.schedules.cron import Schedule
from tests.providers.redis.test_contract import lost_answers, shift
from tests.support.locks import MINUTE, configure, status_of, take, try_from
from tests.support.redis_servers import ReachableRedis, locks_on

SCHEDULE = Schedule("0 8 * * *", "UTC")
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
SCHEDULED = LockConfiguration("job", MINUTE, schedule=SCHEDULE)


@pytest.fixture
def locks(server: ReachableRedis) -> Iterator[RedisLockProvider]:
    with locks_on(server) as provider:
        yield provider


@pytest.fixture
def warm(locks: RedisLockProvider) -> RedisLockProvider:
    """Return a provider that is connected, on a server that knows its scripts."""
    lock = take(configure("warm"), locks)
    locks.extend(lock, MINUTE)
    try_from(locks, configure("warm"))
    locks.release(lock)
    locks.register("warm", SCHEDULE, LONG_AGO)
    return locks


def let_tick_be_due(locks: RedisLockProvider) -> None:
    """Let the scheduled job have missed one."""
    locks.register("job", SCHEDULE, LONG_AGO)
    shift(locks, "job", timedelta(days=2))


@contextmanager
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """Collect each request of the client."""
    from redis.connection import AbstractConnection

    requests: list[bytes] = []
    real = AbstractConnection.send_packed_command

    def send(self: Any, command: Any, *args: Any, **kwargs: Any) -> Any:
        packed = command if isinstance(command, bytes) else b"".join(command)
        requests.append(packed)
        return real(self, command, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(AbstractConnection, "send_packed_command", send)
        yield requests


def test_one_round_trip_each(
    warm: RedisLockProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To acquire, to extend, to be refused, and to release."""
    with sent(monkeypatch) as requests:
        lock = take(configure(), warm)
        assert len(requests) == 1
        assert warm.extend(lock, MINUTE, MINUTE)
        assert len(requests) == 2
        assert isinstance(try_from(warm, configure()), LockHolder)
        assert len(requests) == 3
        assert warm.release(lock)
    assert len(requests) == 4
    assert all(b"EVALSHA" in request for request in requests)


def test_two_round_trips_with_a_schedule(
    warm: RedisLockProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An acquisition with a schedule reads in one round trip and writes in another."""
    let_tick_be_due(warm)
    with sent(monkeypatch) as requests:
        lock = take(SCHEDULED, warm)
        assert lock.tick is not None
        assert len(requests) == 2
        assert warm.release(lock)
    assert len(requests) == 4


def test_list_is_read_in_batches(
    warm: RedisLockProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many locks are listed in a few round trips, not in one for each lock."""
    for number in range(20):
        take(configure(f"job {number}"), warm)
    with sent(monkeypatch) as requests:
        assert len(list(warm.statuses())) == 21
    assert len(requests) < 5


def test_lost_answer_to_a_write(warm: RedisLockProvider) -> None:
    """What compare-and-set wrote is not written twice, nor taken for another's."""
    lock = take(configure(), warm)
    version = warm.read("job")[1]
    entry = warm.read("job")[0]
    assert entry is not None
    with lost_answers(1):
        assert warm.write("job", entry, version)
    assert not warm.write("job", entry, version)
    assert warm.release(lock)


@pytest.mark.parametrize("error", [RuntimeError("at a loss"), struct.error("short")])
def test_library_that_is_at_a_loss(
    warm: RedisLockProvider, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The next request does not get the answer that the library did not read."""
    connection = warm.server.clients.get().connection_pool.make_connection()
    parser = type(connection._parser)
    with monkeypatch.context() as patch:
        patch.setattr(parser, "read_response", Mock(side_effect=error))
        with pytest.raises(LockProviderError, match=f"'job'.*{error}") as failure:
            try_from(warm, configure())
    assert failure.value.is_uncertain
    assert failure.value.__cause__ is error
    for _ in range(2):
        assert "warm" in warm.names()
        assert status_of(warm, "warm").state is LockState.FREE
