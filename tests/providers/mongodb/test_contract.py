"""The contract, on the server of ``MONGODB_URL``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from django_shedlock.locks.lock import Lock
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.mongodb import MongoLockProvider
from django_shedlock.testing import LockProviderContract
from django_shedlock.testing.contract.harness import Options, status_of
from tests.support.ports import free_port

MILLISECOND = timedelta(milliseconds=1)


def shift(provider: Any, name: str, by: timedelta) -> None:
    """Make the lock that much older."""
    fields = ("lockUntil", "lockedAt", "atLeastUntil")
    by_milliseconds = -(-by // MILLISECOND)
    older = {field: {"$subtract": [f"${field}", by_milliseconds]} for field in fields}
    provider.collection.update_one({"_id": name}, [{"$set": older}])


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

    def forget_record(self, provider: Any, name: str) -> None:
        provider.collection.delete_one({"_id": name})
