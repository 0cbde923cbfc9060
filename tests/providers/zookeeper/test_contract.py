"""The contract, on one server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from django_shedlock.locks.lock import Lock
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.zookeeper import ZooKeeperLockProvider
from django_shedlock.testing import LockProviderContract
from django_shedlock.testing.contract.harness import Options
from tests.support.ports import free_port
from tests.support.zookeeper_fixtures import PATIENT, paths
from tests.support.zookeeper_servers import ReachableZooKeeper


def change(provider: LockProvider, name: str, by: timedelta, *times: str) -> None:
    """Make these times of the record, if there is one, that much earlier."""
    store: Any = provider
    entry, version, _ = store.read(name)
    if entry is not None:
        seconds = by.total_seconds()
        changed = {each: getattr(entry, each) - seconds for each in times}
        assert store.write(name, replace(entry, **changed), version)


class TestServer(LockProviderContract):
    """One server, and a path for each test."""

    backend = ZooKeeperLockProvider

    @pytest.fixture
    def options(self, running_zookeeper: ReachableZooKeeper) -> Options:
        return {"hosts": running_zookeeper.address, "path": next(paths), **PATIENT}

    @pytest.fixture
    def unreachable_options(self) -> Options:
        return {"hosts": f"127.0.0.1:{free_port()}", "timeout": "100ms"}

    @pytest.fixture(autouse=True)
    def closed(self, provider: Any) -> Iterator[None]:
        yield
        provider.clients.close()

    def end_lease(self, provider: LockProvider, lock: Lock) -> None:
        left = provider.status(lock.name)
        assert left is not None
        change(provider, lock.name, left.remaining, "lock_until")

    def pass_time(self, provider: LockProvider, name: str, by: timedelta) -> None:
        times = ("locked_at", "lock_until", "lock_at_least_until")
        change(provider, name, by, *times)

    def forget_record(self, provider: Any, name: str) -> None:
        provider.clients.get().client.delete(f"{provider.root}/locks/{name}")
