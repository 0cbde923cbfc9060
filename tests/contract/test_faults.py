"""Providers that hide or misreport the failure of their store fail a test."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockHolder, LockStatus
from django_shedlock.providers.base import ALL_LOCKS, LockProvider, LockQuery
from django_shedlock.providers.entries import Entry
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.testing.contract.faults import FaultContract


class HidesFailures(MemoryLockProvider):
    """Says "held" if its store fails."""

    is_shared = True

    def acquire(self, lock: Lock) -> LockHolder | None:
        return LockHolder("somebody", timedelta(minutes=1))

    def status(self, name: str) -> LockStatus | None:
        return None

    def statuses(self, query: LockQuery = ALL_LOCKS) -> Iterator[LockStatus]:
        return iter(())


class FailsWithoutNames(MemoryLockProvider):
    """Its failures don't name the lock."""

    is_shared = True

    def read(self, name: str) -> tuple[Entry | None, Entry | None]:
        raise LockProviderError("It failed.")


class IsAlwaysUncertain(MemoryLockProvider):
    """Its errors say that something may have been done, although nothing was sent."""

    is_shared = True

    def read(self, name: str) -> tuple[Entry | None, Entry | None, float]:
        text = f"Nobody listens, lock {name!r} ({self.alias!r})."
        failure = LockProviderError(text)
        failure.is_uncertain = True
        raise failure from ConnectionRefusedError()


class AsksNoStoreForTheTime(MemoryLockProvider):
    """Its store fails, and its clock goes on: it is the host's."""

    is_shared = True

    def read(self, name: str) -> tuple[Entry | None, Entry | None, float]:
        raise LockProviderError(f"No answer of lock {name!r} ({self.alias!r}).")


class Faults(FaultContract):
    """What is asked of a provider whose store fails."""

    backend: type[LockProvider] = HidesFailures


def test_hidden_failure_is_found() -> None:
    """A lock that is "held" since its store fails would hide that no job runs."""
    with pytest.raises(pytest.fail.Exception):
        Faults().test_unreachable_store({}, "acquire")
    with pytest.raises(pytest.fail.Exception):
        Faults().test_unreachable_list({})


def test_uncertainty_without_a_reason_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever reads it would look for a run that never began."""
    monkeypatch.setattr(Faults, "backend", IsAlwaysUncertain)
    with pytest.raises(AssertionError):
        Faults().test_unreachable_store({}, "acquire")


def test_failure_without_a_name_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads the error must know which lock, and of which provider."""
    monkeypatch.setattr(Faults, "backend", FailsWithoutNames)
    for call in ("acquire", "extend", "release"):
        with pytest.raises(AssertionError):
            Faults().test_unreachable_store({}, call)


def test_clock_without_a_store_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A health check that asks it would be green while no job with a lock runs."""
    monkeypatch.setattr(Faults, "backend", AsksNoStoreForTheTime)
    with pytest.raises(pytest.fail.Exception):
        Faults().test_unreachable_clock({})
