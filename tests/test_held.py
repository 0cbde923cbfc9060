"""The locks that this process holds, for shutdown hooks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from django_shedlock import LockProviderError, hold, locks_held, release_all
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.test import held_elsewhere, is_held, locked_in_memory
from tests.support.leases import end_lease
from tests.support.waiting import PATIENCE


@pytest.fixture(autouse=True)
def in_memory() -> Iterator[None]:
    with locked_in_memory():
        yield


def test_locks_held_in_the_order_of_their_names() -> None:
    """A shutdown hook sees what this process holds, and nothing after it."""
    with hold("b") as b, hold("a") as a:
        assert locks_held() == [a, b]
    assert locks_held() == []


def test_locks_of_other_threads_are_held() -> None:
    """A hook in the main thread sees the locks of the workers' threads."""
    entered, leave = threading.Event(), threading.Event()

    def work() -> None:
        with hold("job"):
            entered.set()
            leave.wait(PATIENCE)

    thread = threading.Thread(target=work)
    thread.start()
    assert entered.wait(PATIENCE)
    names = [lock.name for lock in locks_held()]
    leave.set()
    thread.join()
    assert names == ["job"]


def test_lost_lock_is_not_held() -> None:
    """A lock whose lease is over is not held any more."""
    with hold("job") as lock:
        end_lease(lock)
        assert locks_held() == []
        assert release_all() == []


def test_reentry_is_one_lock() -> None:
    """A lock that is held twice is one lock, until the outer end."""
    with hold("job") as lock:
        with hold("job"):
            assert locks_held() == [lock]
        assert locks_held() == [lock]


def test_release_all_releases_what_is_held_here() -> None:
    """All locks of this process are given back, and no others."""
    with held_elsewhere("other"), hold("b") as b, hold("a") as a:
        assert release_all() == [a, b]
        assert not is_held("a")
        assert is_held("other")
        assert locks_held() == []


def test_release_all_goes_on_after_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A lock that can't be released is logged, and the next one is released."""
    release = MemoryLockProvider.release

    def release_b_only(self: MemoryLockProvider, lock: Any, **options: Any) -> bool:
        if lock.name == "a":
            raise LockProviderError("the store is gone")
        return release(self, lock, **options)

    with hold("a"), hold("b") as b:
        monkeypatch.setattr(MemoryLockProvider, "release", release_b_only)
        assert release_all() == [b]
    assert "Lock 'a' could not be released: the store is gone" in caplog.text
