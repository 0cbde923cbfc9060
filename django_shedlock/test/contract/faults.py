"""What callers learn of a store that fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.lock import Lock
from django_shedlock.providers.base import LockProvider
from django_shedlock.test.contract.harness import (
    MINUTE,
    Contract,
    Options,
    configure,
)

Call = Callable[[LockProvider, Lock], Any]

OF_A_LOCK: dict[str, Call] = {
    "take": lambda provider, lock: provider.take(lock),
    "extend": lambda provider, lock: provider.extend(lock, MINUTE),
    "keep_alive": lambda provider, lock: provider.keep_alive(lock, MINUTE),
    "release": lambda provider, lock: provider.release(lock),
    "atake": lambda provider, lock: async_to_sync(provider.atake)(lock),
    "aextend": lambda provider, lock: async_to_sync(provider.aextend)(lock, MINUTE),
    "arelease": lambda provider, lock: async_to_sync(provider.arelease)(lock),
    "take_over": lambda provider, lock: provider.take_over(lock, "somebody"),
    "force_release": lambda provider, lock: provider.force_release("job", running=True),
    "force_extend": lambda provider, lock: provider.force_extend("job", MINUTE),
    "statuses": lambda provider, lock: provider.statuses("job"),
}


class FaultContract(Contract):
    """A failure is an error that names the lock, and never "not acquired"."""

    flags = ("is_shared",)

    @pytest.mark.parametrize("call", OF_A_LOCK.values(), ids=OF_A_LOCK)
    def test_unreachable_store(self, unreachable_options: Options, call: Call) -> None:
        """Each call says which lock, of which provider, and what the store said."""
        provider = self.backend("away", **unreachable_options)
        lock = Lock(provider, configure())
        with pytest.raises(LockProviderError, match=r"'job'.*'away'") as raised:
            call(provider, lock)
        assert raised.value.__cause__ is not None

    def test_unreachable_list(self, unreachable_options: Options) -> None:
        """No empty list hides that nobody could read the locks."""
        provider = self.backend("away", **unreachable_options)
        with pytest.raises(LockProviderError, match="'away'"):
            provider.statuses()

    def test_unreachable_counter(self, unreachable_options: Options) -> None:
        """Nobody writes with a number that was made up."""
        provider = self.backend("away", **unreachable_options)
        with pytest.raises(LockProviderError, match=r"'job'.*'away'"):
            provider.fencing_token(Lock(provider, configure()))
