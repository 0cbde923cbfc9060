"""What callers learn of a store that fails."""

from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from django_shedlock.clocks import host_now
from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockState, LockStatus
from django_shedlock.providers.base import LockProvider
from django_shedlock.testing.contract.harness import (
    MINUTE,
    Contract,
    Options,
    configure,
)

Call = Callable[[LockProvider, Lock], Any]


def seen(lock: Lock) -> LockStatus:
    """Return the lock as an operator may have read it before the store failed."""
    now = host_now()
    state = LockState.RUNNING
    return LockStatus(lock.name, state, lock.locked_by, now, now + MINUTE, MINUTE)


OF_A_LOCK: dict[str, Call] = {
    "acquire": lambda provider, lock: provider.acquire(lock),
    "extend": lambda provider, lock: provider.extend(lock, MINUTE),
    "heartbeat": lambda provider, lock: provider.heartbeat(lock),
    "release": lambda provider, lock: provider.release(lock),
    "aextend": lambda provider, lock: async_to_sync(lock.aextend)(MINUTE),
    "arelease": lambda provider, lock: async_to_sync(lock.arelease)(),
    "force_release": lambda provider, lock: provider.replace(seen(lock), ZERO),
    "force_extend": lambda provider, lock: provider.replace(seen(lock), MINUTE),
    "pause_again": lambda provider, lock: provider.replace(
        seen(lock), MINUTE, locked_by="paused by alice"
    ),
    "account_for_loss": lambda provider, lock: provider.account_for_loss(
        lock, has_ended=True
    ),
    "request_run": lambda provider, lock: provider.request_run("job", "alice", "now"),
    "withdraw_request": lambda provider, lock: provider.withdraw_request(
        "job", host_now()
    ),
    "note_unrecorded": lambda provider, lock: provider.note_unrecorded("job"),
    "status": lambda provider, lock: provider.status("job"),
    "fencing_token": lambda provider, lock: lock.fencing_token,
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
            list(provider.statuses())

    def test_unreachable_clock(self, unreachable_options: Options) -> None:
        """Health checks ask the clock, so it must not be one that needs no store."""
        provider = self.backend("away", **unreachable_options)
        with pytest.raises(LockProviderError, match="'away'"):
            provider.now()
