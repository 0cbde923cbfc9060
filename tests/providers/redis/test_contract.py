"""The contract, on one server and on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from django_shedlock.locks.lock import Lock
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.redis import RedisLockProvider
from django_shedlock.testing import LockProviderContract
from django_shedlock.testing.contract.harness import Options, status_of
from tests.support.ports import free_port
from tests.support.redis_servers import PATIENT, ReachableRedis, RedisServer


def shift(provider: Any, name: str, by: timedelta) -> None:
    """Make the lock that much older, as its record tells."""
    client, key = provider.server.clients.get(), provider.server.key(name)
    for field in ("at", "until", "least"):
        if client.hexists(key, field):
            client.hincrby(key, field, -(by // timedelta(microseconds=1)))


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
