"""The memory provider."""

from __future__ import annotations

import pytest

from django_shedlock import Lock
from django_shedlock.exceptions import LockProviderError
from django_shedlock.providers.memory import MemoryLockProvider
from tests.providers.contract import ProviderContract
from tests.providers.ticks import TickContract
from tests.support.locks import configure, take_from


class TestMemoryLockProvider(ProviderContract, TickContract):
    """The contract, without a database."""

    @pytest.fixture
    def provider(self) -> MemoryLockProvider:
        return MemoryLockProvider("default")


def test_memory_cannot_fence() -> None:
    """A store outside the database refuses to fence, and says what to use."""
    lock = take_from(MemoryLockProvider("local"), configure("job"))
    with pytest.raises(LockProviderError, match="'local'.*Use fencing_token"):
        lock.fence()


def test_each_instance_has_locks_of_its_own() -> None:
    """Two providers never exclude each other."""
    take_from(MemoryLockProvider("one"), configure("job"))
    lock = MemoryLockProvider("two").acquire(configure("job"))
    assert isinstance(lock, Lock)
