"""The contract, on the server of ``MONGODB_URL``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
from pymongo.collection import Collection
from pymongo.errors import AutoReconnect

from django_shedlock.locks.lock import Lock
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.mongodb import MongoLockProvider
from django_shedlock.testing import LockProviderContract
from django_shedlock.testing.contract.harness import Options, status_of
from tests.support.ports import free_port

MILLISECOND = timedelta(milliseconds=1)

FLAWS: list[dict[str, Any]] = [
    {"lockUntil": "tomorrow"},
    {"lockUntil": 1},
    {"lockedAt": None},
    {"atLeastUntil": "never"},
    {"fencingToken": "x"},
    {"ticks": 1},
    {"openRun": 1},
    {"failures": "x"},
    {"usual": "x"},
    {"askedAt": "now"},
]
"""What is wrong in a document."""


def shift(provider: Any, name: str, by: timedelta) -> None:
    """Make the lock that much older."""
    fields = ("lockUntil", "lockedAt", "atLeastUntil")
    by_milliseconds = -(-by // MILLISECOND)
    older = {field: {"$subtract": [f"${field}", by_milliseconds]} for field in fields}
    provider.collection.update_one({"_id": name}, [{"$set": older}])


@contextmanager
def lost_answers(count: int, error: Exception) -> Iterator[None]:
    """Let MongoDB make so many changes, and its answers be lost."""
    changes = ("find_one_and_update", "update_one", "insert_one")
    real = {name: getattr(Collection, name) for name in changes}
    lost = 0

    def losing(name: str) -> Callable[..., Any]:
        def lose(self: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal lost
            answer = real[name](self, *args, **kwargs)
            if lost >= count:
                return answer
            lost += 1
            raise error

        return lose

    with ExitStack() as patches:
        for name in changes:
            patches.enter_context(patch.object(Collection, name, losing(name)))
        yield
    assert lost


class TestServer(LockProviderContract):
    """One server, and a collection for each test."""

    backend = MongoLockProvider

    @pytest.fixture
    def options(self, mongodb: Options) -> Options:
        return mongodb

    @pytest.fixture
    def unreachable_options(self) -> Options:
        return {"url": f"mongodb://127.0.0.1:{free_port()}", "timeout": "300ms"}

    @pytest.fixture
    def provider(self, options: Options) -> Iterator[LockProvider]:
        provider = MongoLockProvider("default", **options)
        yield provider
        provider.clients.close()

    def end_lease(self, provider: LockProvider, lock: Lock) -> None:
        status = status_of(provider, lock.name)
        shift(provider, lock.name, status.remaining + MILLISECOND)

    def pass_time(self, provider: LockProvider, name: str, by: timedelta) -> None:
        shift(provider, name, by)

    @contextmanager
    def lose_replies(self, provider: Any, count: int) -> Iterator[None]:
        with lost_answers(count, AutoReconnect("lost")):
            yield

    def spoil_record(self, provider: Any, name: str, flaw: dict[str, Any]) -> None:
        # Whoever holds the lock may extend and release it in spite of the flaw.
        new = {"lockedBy": "somebody", "acquiredBy": "somebody", **flaw}
        provider.collection.update_one({"_id": name}, {"$set": new})

    def raw_record(self, provider: Any, name: str) -> object:
        return provider.collection.find_one({"_id": name})

    def add_field(self, provider: Any, name: str) -> None:
        new = {"$set": {"colour": "red"}}
        provider.collection.update_one({"_id": name}, new)

    def has_field(self, provider: Any, name: str) -> bool:
        found: dict[str, Any] = provider.collection.find_one({"_id": name})
        return found["colour"] == "red"

    @pytest.fixture(params=FLAWS, ids=str)
    def flaw(self, request: pytest.FixtureRequest) -> Any:
        return request.param

    def forget_record(self, provider: Any, name: str) -> None:
        provider.collection.delete_one({"_id": name})
