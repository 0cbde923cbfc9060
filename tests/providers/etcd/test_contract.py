"""The contract, on one server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from django_shedlock.locks.lock import Lock
from django_shedlock.providers import etcd_gateway as gateway
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.etcd import EtcdLockProvider
from django_shedlock.providers.etcd_gateway import Known
from django_shedlock.testing import LockProviderContract
from django_shedlock.testing.contract.harness import Options
from tests.support.etcd_fixtures import PATIENT, prefixes
from tests.support.etcd_servers import ReachableEtcd
from tests.support.ports import free_port


def known(provider: EtcdLockProvider, name: str) -> tuple[Known, Known]:
    """Return the record and the holder's key."""
    version = provider.read(name)[1]
    return version.record, version.holder


def send(provider: EtcdLockProvider, *steps: dict[str, Any]) -> None:
    provider.members.ask("kv/txn", {"success": steps})


def put_record(provider: EtcdLockProvider, value: bytes, name: str = "job") -> None:
    """Write the record as with etcdctl."""
    send(provider, gateway.put_key(provider._keys(name)[0], value))


def end_lease(provider: EtcdLockProvider, name: str) -> None:
    """Let etcd end the lease, as at its time."""
    lease = known(provider, name)[1].lease
    provider.members.ask("lease/revoke", {"ID": str(lease)})


def shift(provider: EtcdLockProvider, name: str, by: timedelta) -> None:
    """Make the lock that much older."""
    record = known(provider, name)[0]
    if not record.revision:
        return
    values = json.loads(record.value)
    for field in ("locked_at", "lock_until", "lock_at_least_until"):
        values[field] -= by.total_seconds()
    put_record(provider, json.dumps(values).encode(), name)
    if values["lock_until"] <= provider.clock():
        send(provider, gateway.delete_key(provider._keys(name)[1]))


class TestServer(LockProviderContract):
    """One server, and a prefix for each test."""

    backend = EtcdLockProvider

    @pytest.fixture
    def options(self, running_etcd: ReachableEtcd) -> Options:
        return {"endpoints": running_etcd.url, "prefix": next(prefixes), **PATIENT}

    @pytest.fixture
    def unreachable_options(self) -> Options:
        return {"endpoints": f"http://127.0.0.1:{free_port()}"}

    @pytest.fixture(autouse=True)
    def closed(self, provider: Any) -> Iterator[None]:
        yield
        provider.members.clients.close()

    def end_lease(self, provider: LockProvider, lock: Lock) -> None:
        end_lease(provider, lock.name)  # type: ignore[arg-type]

    def pass_time(self, provider: LockProvider, name: str, by: timedelta) -> None:
        shift(provider, name, by)  # type: ignore[arg-type]

    def forget_record(self, provider: Any, name: str) -> None:
        send(provider, *map(gateway.delete_key, provider._keys(name)))
