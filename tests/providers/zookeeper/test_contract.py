"""The contract, on one server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from django_shedlock.locks.lock import Lock
from django_shedlock.providers import zookeeper
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.zookeeper import ZooKeeperLockProvider
from django_shedlock.testing import LockProviderContract
from django_shedlock.testing.contract.bad_records import FLAWS, shown_flaw
from django_shedlock.testing.contract.harness import Options
from tests.support.ports import free_port
from tests.support.waiting import NEVER_SECONDS
from tests.support.zookeeper_servers import PATIENT, ReachableZooKeeper, paths


def change(provider: LockProvider, name: str, by: timedelta, *times: str) -> None:
    """Make these times of the record, if there is one, that much earlier."""
    store: Any = provider
    entry, version, _ = store.read(name)
    if entry is not None:
        seconds = by.total_seconds()
        changed = {each: getattr(entry, each) - seconds for each in times}
        assert store.write(name, replace(entry, **changed), version)


class LostAnswer:
    """The answer to what ZooKeeper has done, on a connection that broke before."""

    exception = None

    def __init__(self, answer: Any):
        self.wait = answer.wait

    def get_nowait(self) -> Any:
        from kazoo.exceptions import ConnectionLoss

        raise ConnectionLoss


@contextmanager
def lost_answers(count: int) -> Iterator[None]:
    """Lose the answers of so many changes; with more than one, the time is over."""
    from kazoo.client import TransactionRequest

    commit: Callable[..., Any] = TransactionRequest.commit_async
    monotonic, lost = time.monotonic, 0

    def lose(self: Any) -> Any:
        nonlocal lost
        answer = commit(self)
        if lost >= count:
            return answer
        lost += 1
        return LostAnswer(answer)

    def clock() -> float:
        return monotonic() + (lost * 2 * NEVER_SECONDS if count > 1 else 0)

    with (
        patch.object(TransactionRequest, "commit_async", lose),
        patch.object(zookeeper, "time", SimpleNamespace(monotonic=clock)),
    ):
        yield
    assert lost


class TestServer(LockProviderContract):
    """One server, and a path for each test."""

    backend = ZooKeeperLockProvider

    @pytest.fixture
    def options(self, running_zookeeper: ReachableZooKeeper) -> Options:
        return {"hosts": running_zookeeper.address, "path": next(paths), **PATIENT}

    @contextmanager
    def lose_replies(self, provider: Any, count: int) -> Iterator[None]:
        with lost_answers(count):
            yield

    def spoil_record(self, provider: Any, name: str, flaw: bytes) -> None:
        provider.clients.get().client.set(f"{provider.root}/locks/{name}", flaw)

    def raw_record(self, provider: Any, name: str) -> object:
        return provider.clients.get().client.get(f"{provider.root}/locks/{name}")

    @pytest.fixture(params=[*FLAWS, None], ids=shown_flaw)
    def flaw(self, request: pytest.FixtureRequest) -> Any:
        return request.param

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
