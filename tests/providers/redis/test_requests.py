"""What is sent to Redis, how often, and what a lost answer changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.configuration import LockConfiguration
from django_shedlock.locks.status import LockHolder
from django_shedlock.providers.redis import RedisLockProvider
from django_shedlock.schedules.cron import Schedule
from tests.providers.redis.test_contract import shift
from tests.support.forks import assert_child_connects_anew
from tests.support.locks import MINUTE, configure, status_of, take_from, try_from
from tests.support.ports import free_port
from tests.support.redis_fixtures import locks_on
from tests.support.redis_servers import ReachableRedis
from tests.support.threads import run_threads

SCHEDULE = Schedule("0 8 * * *", "UTC")
SCHEDULED = LockConfiguration("job", MINUTE, schedule=SCHEDULE)


@pytest.fixture
def locks(server: ReachableRedis) -> Iterator[RedisLockProvider]:
    with locks_on(server) as provider:
        yield provider


@pytest.fixture
def warm(locks: RedisLockProvider) -> RedisLockProvider:
    """Return a provider that is connected, on a server that knows its scripts."""
    lock = take_from(locks, configure("warm"))
    locks.extend(lock, MINUTE)
    try_from(locks, configure("warm"))
    locks.release(lock)
    locks.register("warm", SCHEDULE)
    return locks


def let_tick_be_due(locks: RedisLockProvider) -> None:
    """Let the scheduled job have missed one."""
    locks.register("job", SCHEDULE)
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
        lock = take_from(warm, configure())
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
    """One reads which ticks there were, and one writes."""
    let_tick_be_due(warm)
    with sent(monkeypatch) as requests:
        lock = take_from(warm, SCHEDULED)
        assert lock.tick is not None
        assert len(requests) == 2
        assert warm.release(lock)
    assert len(requests) == 4


def test_list_is_read_in_batches(
    warm: RedisLockProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one round trip for each lock."""
    for number in range(20):
        take_from(warm, configure(f"job {number}"))
    with sent(monkeypatch) as requests:
        assert len(list(warm.statuses())) == 21
    assert len(requests) < 5


@contextmanager
def lost_answers(monkeypatch: pytest.MonkeyPatch, count: int) -> Iterator[None]:
    """Let the server act, and the connection break before it says so."""
    from redis.connection import AbstractConnection
    from redis.exceptions import ConnectionError

    left, read = [None] * count, AbstractConnection.read_response

    def read_response(self: Any, *args: Any, **kwargs: Any) -> Any:
        answer = read(self, *args, **kwargs)
        if left and isinstance(answer, int | list):  # a script's, not a handshake's
            left.pop()
            raise ConnectionError("lost")
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(AbstractConnection, "read_response", read_response)
        yield
    assert not left


@pytest.mark.parametrize("configuration", [configure(), SCHEDULED], ids=["", "tick"])
def test_lost_answer_to_an_acquisition(
    warm: RedisLockProvider,
    monkeypatch: pytest.MonkeyPatch,
    configuration: LockConfiguration,
) -> None:
    """The request is sent again, and the server knows that it has done it."""
    let_tick_be_due(warm)
    with lost_answers(monkeypatch, 1):
        lock = take_from(warm, configuration)
    status = status_of(warm, "job")
    assert status.locked_by == lock.locked_by
    assert lock.fencing_token == status.fencing_token
    assert warm.release(lock)


def test_lost_answers_to_later_steps(
    warm: RedisLockProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is taken for a lost lock."""
    lock = take_from(warm, configure())
    with lost_answers(monkeypatch, 1):
        assert warm.extend(lock, MINUTE)
    with lost_answers(monkeypatch, 1):
        assert warm.release(lock)


def test_lost_answer_to_a_write(
    warm: RedisLockProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What compare-and-set wrote is not written twice, nor taken for another's."""
    lock = take_from(warm, configure())
    version = warm.read("job")[1]
    entry = warm.read("job")[0]
    assert entry is not None
    with lost_answers(monkeypatch, 1):
        assert warm.write("job", entry, version)
    assert not warm.write("job", entry, version)
    assert warm.release(lock)


def test_two_lost_answers(
    warm: RedisLockProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows whether it was done, and the error says so."""
    with lost_answers(monkeypatch, 2):
        with pytest.raises(LockProviderError, match="'job'.*lost") as failure:
            try_from(warm, configure())
    assert failure.value.is_uncertain


def test_second_try_of_a_release(
    warm: RedisLockProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one did it, though it ended with an error."""
    lock = take_from(warm, configure())
    with lost_answers(monkeypatch, 2), pytest.raises(LockProviderError):
        lock.release()
    assert lock.was_release_tried
    assert warm.release(lock)


def test_nobody_listens() -> None:
    """Then it is certain that nothing was done."""
    locks = RedisLockProvider("default", url=f"redis://127.0.0.1:{free_port()}")
    with pytest.raises(LockProviderError, match="'job' in Redis") as failure:
        try_from(locks, configure())
    assert not failure.value.is_uncertain


def test_forked_child_connects_anew(warm: RedisLockProvider) -> None:
    """It uses none of its parent's connections."""
    assert_child_connects_anew(warm)


def test_threads_share_a_client(warm: RedisLockProvider) -> None:
    """Each gets its own answers."""

    def work() -> None:
        import threading

        name = threading.current_thread().name
        for _ in range(50):
            lock = take_from(warm, configure(name))
            status = status_of(warm, name)
            assert status.locked_by == lock.locked_by
            assert warm.release(lock)

    run_threads(4, work)
