"""The contract, on one server and on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest

from django_shedlock.locks.lock import Lock
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.redis import RedisLockProvider
from django_shedlock.testing import LockProviderContract
from django_shedlock.testing.contract.harness import Options, status_of
from tests.support.ports import free_port
from tests.support.redis_servers import PATIENT, ReachableRedis, RedisServer

FLAWS: dict[str, tuple[str | int, ...]] = {
    "a text": ("SET", "theirs"),
    "a list": ("RPUSH", "theirs"),
    "another hash": ("HSET", "theirs", "1"),
    "incomplete": ("HSET", "released", "0", "until", "1"),
    "1e30": ("HSET", "by", "theirs", "until", "1e30"),
    "10**30": ("HSET", "by", "theirs", "until", 10**30),
    "10**5000": ("HSET", "by", "theirs", "until", "9" * 5000),
    "nan": ("HSET", "by", "theirs", "until", "nan"),
    "inf": ("HSET", "by", "theirs", "until", "-inf"),
    "hexadecimal": ("HSET", "by", "theirs", "until", "0x10"),
    "no time": ("HSET", "by", "theirs", "until", "soon"),
}
"""What is done to a record, or to a key without one: the command without its key."""


def shift(provider: Any, name: str, by: timedelta) -> None:
    """Make the lock that much older, as its record tells."""
    client, key = provider.server.clients.get(), provider.server.key(name)
    for field in ("at", "until", "least"):
        if client.hexists(key, field):
            client.hincrby(key, field, -(by // timedelta(microseconds=1)))


@contextmanager
def lost_answers(count: int) -> Iterator[None]:
    """Let the server make so many changes, and the connection break."""
    from redis.connection import AbstractConnection
    from redis.exceptions import ConnectionError

    lost, read = 0, AbstractConnection.read_response

    def read_response(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal lost
        answer = read(self, *args, **kwargs)
        is_of_acquisition = isinstance(answer, list) and answer[:1] == [1]
        if lost < count and (is_of_acquisition or isinstance(answer, int)):
            lost += 1
            raise ConnectionError("lost")
        return answer

    with patch.object(AbstractConnection, "read_response", read_response):
        yield
    assert lost


class RedisContract(LockProviderContract):
    """With the hooks for a record in Redis."""

    backend = RedisLockProvider

    def end_lease(self, provider: LockProvider, lock: Lock) -> None:
        status = status_of(provider, lock.name)
        shift(provider, lock.name, status.remaining + timedelta(milliseconds=1))

    def pass_time(self, provider: LockProvider, name: str, by: timedelta) -> None:
        shift(provider, name, by)

    def forget_record(self, provider: Any, name: str) -> None:
        provider.server.clients.get().delete(provider.server.key(name))

    @contextmanager
    def lose_replies(self, provider: Any, count: int) -> Iterator[None]:
        with lost_answers(count):
            yield

    def spoil_record(
        self, provider: Any, name: str, flaw: tuple[str | int, ...]
    ) -> None:
        client, key = provider.server.clients.get(), provider.server.key(name)
        command, *values = flaw
        if "by" not in values:
            client.delete(key)
        client.execute_command(command, key, *values)

    def raw_record(self, provider: Any, name: str) -> object:
        return provider.server.clients.get().dump(provider.server.key(name))

    def add_field(self, provider: Any, name: str) -> None:
        provider.server.clients.get().hset(provider.server.key(name), "colour", "red")

    def has_field(self, provider: Any, name: str) -> bool:
        found = provider.server.clients.get().hget(provider.server.key(name), "colour")
        return bool(found == b"red")

    @pytest.fixture(params=FLAWS.values(), ids=FLAWS)
    def flaw(self, request: pytest.FixtureRequest) -> Any:
        return request.param

    @pytest.fixture
    def unreachable_options(self) -> Options:
        return {"url": f"redis://127.0.0.1:{free_port()}"}

    @pytest.fixture(autouse=True)
    def closed(self, provider: Any) -> Iterator[None]:
        yield
        provider.server.clients.close()


class TestServer(RedisContract):
    """One server."""

    @pytest.fixture
    def options(self, server: ReachableRedis) -> Options:
        return {"url": server.url, **PATIENT}


class TestCluster(RedisContract):
    """Three masters."""

    @pytest.fixture
    def options(self, running_cluster: list[RedisServer]) -> Options:
        for server in running_cluster:
            server.ask("FLUSHALL")
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in running_cluster)
        return {"url": f"redis+cluster://{hosts}", **PATIENT}

    @pytest.fixture
    def unreachable_options(self) -> Options:
        return {"url": f"redis+cluster://127.0.0.1:{free_port()}"}
