"""The contract, on one server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
from requests import ConnectionError, Session

from django_shedlock.locks.lock import Lock
from django_shedlock.providers import etcd_gateway as gateway
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.etcd import EtcdLockProvider
from django_shedlock.providers.etcd_gateway import Known
from django_shedlock.testing import LockProviderContract
from django_shedlock.testing.contract.bad_records import (
    FLAWS,
    entry_with,
    shown_flaw,
)
from django_shedlock.testing.contract.harness import Options
from tests.support.etcd_servers import PATIENT, ReachableEtcd, prefixes
from tests.support.ports import free_port

ENDLESS_LEASE = entry_with(lease_seconds="1" * 400)


def known(provider: EtcdLockProvider, name: str) -> tuple[Known, Known]:
    """Return the record and the holder's key."""
    version = provider.read(name)[1]
    return version.record, version.holder


def send(provider: EtcdLockProvider, *steps: dict[str, Any]) -> tuple[Any, float]:
    return provider.members.ask("kv/txn", {"success": steps})


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


@contextmanager
def lost_answers(
    count: int,
    meanwhile: Callable[[], object] = list,
    error: type[Exception] = ConnectionError,
) -> Iterator[None]:
    """
    Let etcd make so many changes, and the connection break before it says so.

    Something happens ``meanwhile``.
    """
    post: Callable[..., Any] = Session.post
    lost = 0

    def fail(self: Any, url: str, **kwargs: Any) -> Any:
        nonlocal lost
        answer = post(self, url, **kwargs)
        if lost < count and "compare" in kwargs["json"]:
            lost += 1
            meanwhile()
            raise error("lost")
        return answer

    with patch.object(Session, "post", fail):
        yield
    assert lost


class TestServer(LockProviderContract):
    """One server at two endpoints, as two members are, and a prefix for each test."""

    backend = EtcdLockProvider

    @pytest.fixture
    def options(self, running_etcd: ReachableEtcd) -> Options:
        endpoints = [running_etcd.url, running_etcd.url]
        return {"endpoints": endpoints, "prefix": next(prefixes), **PATIENT}

    @pytest.fixture(params=[*FLAWS, ENDLESS_LEASE], ids=shown_flaw)
    def flaw(self, request: pytest.FixtureRequest) -> Any:
        return request.param

    @contextmanager
    def lose_replies(self, provider: Any, count: int) -> Iterator[None]:
        with lost_answers(count):
            yield

    def spoil_record(self, provider: Any, name: str, flaw: bytes) -> None:
        send(provider, *(gateway.put_key(key, flaw) for key in provider._keys(name)))

    def raw_record(self, provider: Any, name: str) -> object:
        steps = [*map(gateway.read_key, provider._keys(name))]
        return provider.members.ask("kv/txn", {"success": steps})[0]["responses"]

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
