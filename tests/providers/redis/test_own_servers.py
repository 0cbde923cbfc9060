"""What needs a server of the tests' own: it hangs, forgets, refuses, or counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from django_shedlock.exceptions import LockProviderError
from django_shedlock.providers.redis import RedisLockProvider
from django_shedlock.providers.redis_records import Script, ScriptCall
from tests.support.locks import (
    MINUTE,
    configure,
    take,
    take_when_store_answers,
    try_from,
    try_to_release,
)
from tests.support.proxies import proxy
from tests.support.redis_servers import PATIENT, RedisServer, locks_on, redis_servers
from tests.support.waiting import wait_for


@pytest.fixture
def locks(own_redis: RedisServer) -> Iterator[RedisLockProvider]:
    with locks_on(own_redis) as provider:
        yield provider


def test_server_is_of_the_program(redis_program: str, own_redis: RedisServer) -> None:
    """Half of the tests run on Valkey."""
    is_valkey = "valkey_version" in own_redis.info("server")
    assert is_valkey == (redis_program == "valkey-server")


def test_server_that_forgot_the_scripts(
    locks: RedisLockProvider, own_redis: RedisServer
) -> None:
    """A server that forgot the scripts gets them again with the next request."""
    lock = take(configure(), locks)
    for step in (locks.extend, locks.release):
        own_redis.ask("SCRIPT", "FLUSH")
        assert step(*((lock, MINUTE) if step == locks.extend else (lock,)))
    own_redis.ask("SCRIPT", "FLUSH")
    assert take(configure(), locks)


def test_request_that_is_sent_again_writes(
    locks: RedisLockProvider, own_redis: RedisServer
) -> None:
    """WAIT counts only what its own connection has written."""

    def changes() -> int:
        return int(own_redis.info("persistence")["rdb_changes_since_last_save"])

    lock = take(configure(), locks)
    entry, mark, _ = locks.read("job")
    before = changes()
    assert locks.acquire(lock) is None
    assert changes() > before
    before = changes()
    again = ScriptCall(Script.WRITE, (mark, "another"))
    assert locks.server.run("job", again) == 1
    assert changes() > before
    assert locks.read("job")[:2] == (entry, mark)


def test_server_that_hangs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The client's time limit ends the wait, and nobody knows what was done."""
    with redis_servers(tmp_path_factory.mktemp("hanging"), 1) as [server]:
        locks = RedisLockProvider("default", url=server.url, socket_timeout=0.2)
        lock = take_when_store_answers(locks)
        assert wait_for(lambda: try_to_release(lock))
        with server.paused():
            with pytest.raises(LockProviderError, match="'job'.*imeout") as failure:
                try_from(locks, configure())
        assert failure.value.is_uncertain
        locks.server.clients.close()


def test_server_that_hangs_is_asked_once(own_redis: RedisServer) -> None:
    """A second try would take as long again."""
    with proxy(own_redis.port) as network, network.cut():
        url = own_redis.url.replace(str(own_redis.port), str(network.port))
        locks = RedisLockProvider("default", url=url, socket_timeout=0.2)
        with pytest.raises(LockProviderError, match="imeout"):
            locks.now()
        assert network.accepted == 1
        locks.server.clients.close()


def test_sentinels_that_hang_are_asked_once(own_redis: RedisServer) -> None:
    """By itself redis-py asks each of them 16 times, for minutes."""
    with ExitStack() as stack:
        networks = [stack.enter_context(proxy(own_redis.port)) for _ in range(2)]
        for network in networks:
            stack.enter_context(network.cut())
        hosts = ",".join(f"127.0.0.1:{network.port}" for network in networks)
        url = f"redis+sentinel://{hosts}/service/0"
        locks = RedisLockProvider("default", url=url, socket_timeout=0.4)
        with pytest.raises(LockProviderError, match="service"):
            locks.now()
        assert [network.accepted for network in networks] == [1, 1]


def test_server_that_has_forgotten(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A holder learns that a restart of a server without a disk lost its lock."""
    with redis_servers(tmp_path_factory.mktemp("forgetful"), 1) as [server]:
        locks = RedisLockProvider("default", url=server.url, **PATIENT)
        lock = take(configure(), locks)
        token = lock.fencing_token
        server.end()
        server.start()
        other = take(configure(), locks)
        assert not lock.release()
        assert lock.is_lost
        assert token is not None
        assert other.fencing_token is not None
        assert other.fencing_token > token
        assert other.release()
        locks.server.clients.close()


@pytest.mark.parametrize("reads_all", [False, True])
def test_other_errors_are_none_of_a_record(
    locks: RedisLockProvider, own_redis: RedisServer, *, reads_all: bool
) -> None:
    """A server that lets nobody read does not look as if records were broken."""
    take(configure(), locks)
    own_redis.ask("ACL", "SETUSER", "default", "-hgetall")
    try:
        with pytest.raises(LockProviderError, match=r"Give the user .*\+hgetall"):
            list(locks.statuses()) if reads_all else locks.status("job")
    finally:
        own_redis.ask("ACL", "SETUSER", "default", "+@all")
