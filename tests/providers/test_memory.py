"""The memory provider."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from django_shedlock import Lock
from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.status import LockHolder, LockState
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.entries import Entry
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.schedules.state import from_text
from django_shedlock.testing import LockProviderContract
from django_shedlock.testing.contract.ticks import configure_tick
from tests.support.forks import forked, thread_inside
from tests.support.leases import age_entry, end_lease
from tests.support.locks import MINUTE, configure, status_of, take, try_from


class TestMemoryLockProvider(LockProviderContract):
    """The contract, without a database."""

    backend = MemoryLockProvider
    examples_share = 1

    def end_lease(self, provider: LockProvider, lock: Lock) -> None:
        end_lease(lock)

    def pass_time(self, provider: LockProvider, name: str, by: timedelta) -> None:
        assert isinstance(provider, MemoryLockProvider)
        age_entry(provider, name, by)

    def forget_record(self, provider: LockProvider, name: str) -> None:
        assert isinstance(provider, MemoryLockProvider)
        del provider._entries[name]


class Repeating(MemoryLockProvider):
    """A store whose client sends a write again after a lost reply."""

    def write(self, name: str, entry: Entry, version: Entry | None) -> bool:
        return super().write(name, entry, version) and super().write(
            name, entry, version
        )


def test_write_that_was_sent_again() -> None:
    """A write that is sent twice neither loses a lock nor releases it twice."""
    locks = Repeating("local")
    lock = take(configure(lock_at_least_for=MINUTE), locks)
    assert status_of(locks, "job").fencing_token == lock.fencing_token
    assert locks.release(lock)
    assert not locks.release(lock)
    assert status_of(locks, "job").state is LockState.HELD_AT_LEAST


class Silent(MemoryLockProvider):
    """A store whose answer to the acquisition of a tick is lost."""

    def write(self, name: str, entry: Entry, version: Entry | None) -> bool:
        is_written = super().write(name, entry, version)
        if entry.ticks and not entry.is_released:
            raise LockProviderError("lost")
        return is_written


def test_tick_without_an_answer_is_run_later() -> None:
    """No body ran for it, so its release restores it, unless another came first."""
    silent, locks = Silent("local"), MemoryLockProvider("local")
    locks._entries = silent._entries
    first, second = (Lock(silent, configure_tick()) for _ in range(2))
    for lock in (first, second):
        with pytest.raises(LockProviderError, match="lost"):
            silent.acquire(lock)
        assert locks._entries["job"].belongs_to(lock)
        lock.never_began = True
        if lock is first:
            assert silent.release(first, succeeded=False)
            assert from_text(locks._entries["job"].ticks).tick is None
    end_lease(second)
    other = take(configure(), locks)
    before = locks._entries["job"]
    assert not silent.release(second, succeeded=False)
    assert locks._entries["job"] == before
    assert before.ticks
    assert locks.release(other)


def test_record_with_unreadable_ticks_is_not_acquired() -> None:
    """Nobody knows what is due, and a held lock stays held. Its holder releases it."""
    locks = MemoryLockProvider("local")
    lock = take(configure(), locks)
    locks._entries["job"] = replace(locks._entries["job"], ticks="nonsense")
    with pytest.raises(LockProviderError, match="'job'.*can't be read"):
        try_from(locks, configure())
    assert status_of(locks, "job").unreadable
    assert locks.release(lock)


@pytest.mark.parametrize("text", ['{"tick": 5}', '{"schedule": 5}', '{"due_at": []}'])
def test_ticks_that_are_no_texts_are_unreadable(text: str) -> None:
    """Ticks that are not texts make a record unreadable, and hide no other lock."""
    locks = MemoryLockProvider("local")
    take(configure(name="other"), locks)
    locks._entries["job"] = replace(locks._entries["other"], ticks=text)
    found = {status.name: bool(status.unreadable) for status in locks.statuses()}
    assert found == {"job": True, "other": False}
    with pytest.raises(LockProviderError, match="'job'.*can't be read"):
        try_from(locks, configure())


def test_lease_beyond_the_calendar_is_held() -> None:
    """A lease that ends beyond the calendar counts as held."""
    locks = MemoryLockProvider("local")
    take(configure(), locks)
    locks._entries["job"] = replace(locks._entries["job"], lock_until=1e300)
    assert status_of(locks, "job").state is LockState.RUNNING
    assert isinstance(try_from(locks, configure()), LockHolder)


class WholeSeconds(MemoryLockProvider):
    """A store that tells whole seconds, and adds one to each lease for that."""

    moment = 0.0

    def clock(self) -> float:
        return float(int(self.moment))

    def write(self, name: str, entry: Entry, version: Entry | None) -> bool:
        if not entry.is_released:
            entry = replace(entry, lock_until=entry.lock_until + 1)
        return super().write(name, entry, version)


@pytest.mark.parametrize("begun", [1000.0, 1000.5, 1000.999])
def test_clock_of_whole_seconds(begun: float) -> None:
    """No lease ends early, whenever in a second it began or was extended."""
    locks = WholeSeconds("local")
    locks.moment = begun
    lock = take(configure(), locks)
    locks.moment += 59.999
    assert isinstance(try_from(locks, configure()), LockHolder)
    assert locks.extend(lock, MINUTE)
    locks.moment += 59.999
    assert isinstance(try_from(locks, configure()), LockHolder)
    assert locks.release(lock)
    assert isinstance(try_from(locks, configure()), Lock)


def test_memory_cannot_fence() -> None:
    """A store outside the database refuses to fence, and says what to use."""
    lock = take(configure("job"), MemoryLockProvider("local"))
    with pytest.raises(LockProviderError, match="'local'.*Use fencing_token"):
        lock.fence()


def test_each_instance_has_locks_of_its_own() -> None:
    """Two providers never exclude each other."""
    take(configure("job"), MemoryLockProvider("one"))
    lock = try_from(MemoryLockProvider("two"), configure("job"))
    assert isinstance(lock, Lock)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_child_begins_with_no_locks() -> None:
    """What its parent holds is not held in the child, which is another process."""
    provider = MemoryLockProvider("default")
    lock = take(configure("job"), provider)

    def child() -> bool:
        is_empty = list(provider.statuses()) == [] and not lock.is_active
        return is_empty and take(configure("job"), provider).release()

    assert forked(child)
    status = status_of(provider, "job")
    assert (status.locked_by, status.state) == (lock.locked_by, LockState.RUNNING)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_child_forked_while_a_thread_has_the_mutex_does_not_wait() -> None:
    """Nobody would ever unlock it in the child."""
    provider = MemoryLockProvider("default")

    def work(stay: Callable[[], None]) -> None:
        with provider._mutex:
            stay()

    with thread_inside(work):
        assert forked(lambda: take(configure("job"), provider).release())
