"""What callers learn when the store fails."""

from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync

from django_shedlock.clocks import host_now
from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockState, LockStatus
from django_shedlock.providers.base import LockProvider
from django_shedlock.testing.contract.harness import (
    MINUTE,
    Contract,
    Options,
    configure,
)


def seen(lock: Lock) -> LockStatus:
    """Return the lock as an operator may have read it before the store failed."""
    now = host_now()
    state = LockState.RUNNING
    return LockStatus(lock.name, state, lock.locked_by, now, now + MINUTE, MINUTE)


class CallsAboutLock:
    """The calls to a store about one lock, each with the arguments that it needs."""

    def __init__(self, provider: LockProvider, lock: Lock):
        self._provider = provider
        self._lock = lock

    def acquire(self) -> object:
        return self._provider.acquire(self._lock)

    def extend(self) -> object:
        return self._provider.extend(self._lock, MINUTE)

    def heartbeat(self) -> object:
        return self._provider.heartbeat(self._lock)

    def release(self) -> object:
        return self._provider.release(self._lock)

    def aextend(self) -> object:
        return async_to_sync(self._lock.aextend)(MINUTE)

    def arelease(self) -> object:
        return async_to_sync(self._lock.arelease)()

    def force_release(self) -> object:
        return self._provider.replace(seen(self._lock), timedelta(0))

    def force_extend(self) -> object:
        return self._provider.replace(seen(self._lock), MINUTE)

    def pause_again(self) -> object:
        paused_by = "paused by alice"
        return self._provider.replace(seen(self._lock), MINUTE, locked_by=paused_by)

    def account_for_loss(self) -> object:
        return self._provider.account_for_loss(self._lock, has_ended=True)

    def request_run(self) -> object:
        return self._provider.request_run(self._lock.name, "alice", "now")

    def withdraw_request(self) -> object:
        return self._provider.withdraw_request(self._lock.name, host_now())

    def note_unrecorded(self) -> object:
        return self._provider.note_unrecorded(self._lock.name)

    def status(self) -> object:
        return self._provider.status(self._lock.name)

    def fencing_token(self) -> object:
        return self._lock.fencing_token


class FaultContract(Contract):
    """A failure is an error that names the lock, and never "not acquired"."""

    flags: tuple[str, ...] = ("is_shared",)

    @pytest.mark.parametrize(
        "call", [name for name in vars(CallsAboutLock) if not name.startswith("_")]
    )
    def test_unreachable_store(self, unreachable_options: Options, call: str) -> None:
        """The error names the lock, the provider and the cause: nothing was sent."""
        provider = self.backend("away", **unreachable_options)
        calls = CallsAboutLock(provider, Lock(provider, configure()))
        with pytest.raises(LockProviderError, match=r"'job'.*'away'") as raised:
            getattr(calls, call)()
        assert raised.value.__cause__ is not None
        assert not raised.value.is_uncertain

    def test_unreachable_list(self, unreachable_options: Options) -> None:
        """A list of locks that can't be read is an error, and not an empty list."""
        provider = self.backend("away", **unreachable_options)
        with pytest.raises(LockProviderError, match="'away'"):
            list(provider.statuses())

    def test_unreachable_clock(self, unreachable_options: Options) -> None:
        """now() reads the store's clock, because health checks rely on it."""
        provider = self.backend("away", **unreachable_options)
        with pytest.raises(LockProviderError, match="'away'"):
            provider.now()
