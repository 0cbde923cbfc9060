"""A server that is full, refuses a user, is elsewhere, or can't do its work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from redis import exceptions

from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.lock import Lock
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.redis import RedisLockProvider
from django_shedlock.schedules.cron import Schedule
from tests.providers.redis.test_contract import shift
from tests.providers.redis.test_requests import LONG_AGO, SCHEDULE, SCHEDULED
from tests.providers.redis.test_rights import locks_with
from tests.support.locks import (
    LEASE,
    MINUTE,
    configure,
    force_release,
    status_of,
    take,
    try_from,
)
from tests.support.redis_servers import RedisServer, locks_on, redis_servers
from tests.support.store_states import StoreStates
from tests.support.waiting import wait_for

READS = {"~shedlock:*", "+@read", "+@connection", "+eval", "+evalsha", "+time"}


@pytest.fixture
def locks(own_redis: RedisServer) -> Iterator[RedisLockProvider]:
    with locks_on(own_redis) as provider:
        yield provider


@contextmanager
def full(server: RedisServer) -> Iterator[None]:
    """Let the server have no room, and evict nothing."""
    server.ask("SET", "ballast", "x" * 1_000_000)
    server.ask("CONFIG", "SET", "maxmemory", "1mb")
    try:
        yield
    finally:
        server.ask("CONFIG", "SET", "maxmemory", "0")


class TestStates(StoreStates):
    """The states of each store."""

    store = "Redis"
    full_fix = r"more memory, or delete what nobody needs$"
    forbidden_fix = r"Give the user .*\+(hset|hdel)\b"

    server: RedisServer

    @pytest.fixture(autouse=True)
    def with_server(self, own_redis: RedisServer) -> None:
        self.server = own_redis

    @pytest.fixture
    def locks(self, locks: RedisLockProvider) -> RedisLockProvider:
        return locks

    def full(self, locks: LockProvider) -> AbstractContextManager[None]:
        return full(self.server)

    @contextmanager
    def forbidden(self, locks: LockProvider) -> Iterator[RedisLockProvider]:
        with locks_with(READS, [self.server], database=0) as refused:
            yield refused

    def at(self, port: int, *, tls: bool) -> RedisLockProvider:
        scheme = "rediss" if tls else "redis"
        url = f"{scheme}://127.0.0.1:{port}"  # a plain port never answers TLS
        return RedisLockProvider("default", url=url, socket_timeout=0.2)

    @contextmanager
    def plain_port(self, locks: LockProvider) -> Iterator[int]:
        yield self.server.port


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
def test_full_server_changes_a_held_lock(
    locks: RedisLockProvider, own_redis: RedisServer, step: str, *, is_tick: bool
) -> None:
    """A full server still extends and releases a held lock."""
    locks.register("job", SCHEDULE, LONG_AGO)
    shift(locks, "job", timedelta(days=2))
    lock = take(SCHEDULED if is_tick else configure(), locks)
    with full(own_redis):
        assert STEPS[step](lock)
        left = status_of(locks, "job").remaining
    assert left > MINUTE if "exten" in step else not left


def test_full_server_changes_a_schedule(
    locks: RedisLockProvider, own_redis: RedisServer
) -> None:
    """The record of a registered schedule is there already."""
    locks.register("job", SCHEDULE, LONG_AGO)
    other = Schedule("0 9 * * *", "UTC")
    with full(own_redis):
        locks.register("job", other)
    assert status_of(locks, "job").schedule == other


@pytest.mark.parametrize("wanted", [configure(), SCHEDULED], ids=["plain", "tick"])
def test_full_server_gives_no_known_lock(
    locks: RedisLockProvider, own_redis: RedisServer, wanted: Any
) -> None:
    """A record that is there makes no difference; the error names no script."""
    assert take(configure(), locks).release()
    with full(own_redis), pytest.raises(LockProviderError, match="maxmemory") as error:
        try_from(locks, wanted)
    assert "script" not in str(error.value)
    assert not error.value.is_uncertain


@contextmanager
def short_of_replicas(server: RedisServer, folder: Path) -> Iterator[None]:
    """Let the server want a replica before it writes."""
    server.ask("CONFIG", "SET", "min-replicas-to-write", "1")
    yield


@contextmanager
def without_disk(server: RedisServer, folder: Path) -> Iterator[None]:
    """Let the server have failed to save its data."""
    server.ask("CONFIG", "SET", "save", "3600 1000000")
    folder.rmdir()
    server.ask("BGSAVE")
    wait_for(lambda: server.info("persistence")["rdb_last_bgsave_status"] == "err")
    yield


@contextmanager
def inside_a_script(server: RedisServer, folder: Path) -> Iterator[None]:
    """Let the server run nothing but a script without an end."""
    server.ask("CONFIG", "SET", "lua-time-limit", "1")
    connection = redis.ConnectionPool.from_url(server.url).make_connection()
    connection.connect()
    connection.send_command("EVAL", "while true do end", 0)
    wait_for(lambda: not server.answers())
    yield
    server.ask("SCRIPT", "KILL")
    connection.disconnect()


@pytest.mark.parametrize(
    ("state", "advice"),
    [
        (short_of_replicas, "Start the replicas that its min-replicas-to-write"),
        (without_disk, "make room on its disk, or repair it"),
        (inside_a_script, "wait, or SCRIPT KILL"),
    ],
)
def test_error_says_what_to_do(
    redis_program: str,
    tmp_path: Path,
    state: Callable[[RedisServer, Path], AbstractContextManager[None]],
    advice: str,
) -> None:
    """A server that refuses to write gives no lock until somebody helps it."""
    with redis_servers(tmp_path, 1, program=redis_program) as [server]:
        with locks_on(server) as locks, state(server, tmp_path / "0"):
            with pytest.raises(LockProviderError, match=rf"'job'.*{advice}") as error:
                try_from(locks, configure())
            assert not error.value.is_uncertain


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (exceptions.BusyLoadingError("Redis is loading the dataset"), "wait until it"),
        (exceptions.ClusterDownError("The cluster is down"), "start its servers"),
        (exceptions.SlotNotCoveredError("Slot 1 not covered"), "start its servers"),
    ],
)
def test_advice(error: Exception, advice: str) -> None:
    """What few servers answer, and briefly, also says what to do."""
    locks = RedisLockProvider("default", url="redis://localhost")
    text, _ = locks.explain(error) or ("", False)
    assert text.startswith(f"{type(error).__name__}: {error}. ")
    assert advice in text


def test_wrong_password(own_redis: RedisServer) -> None:
    """The error says what to correct, and not the password."""
    url = own_redis.url.replace("//", "//nobody:secret@")
    locks = RedisLockProvider("default", url=url)
    with pytest.raises(LockProviderError, match="Correct the user") as error:
        try_from(locks, configure())
    assert "secret" not in str(error.value)
    locks.server.clients.close()
