"""Between the question who holds a lock and what is done to it there is a gap."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.configuration import LockConfiguration
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.states import CONTENDED, LockHolder
from django_shedlock.providers.cache import CacheLockProvider, provider
from django_shedlock.providers.cache.stores import AnyCache
from django_shedlock.providers.cache.values import Value, guard_of
from django_shedlock.schedules.starts import Start, Trigger
from tests.support.cached_locks import end_lease, entry_of
from tests.support.locks import MINUTE, configure, take_from

BY_OPERATOR = LockConfiguration("job", MINUTE, start=Start(Trigger.OPERATOR))


@pytest.fixture
def locks(local: Any) -> CacheLockProvider:
    return CacheLockProvider("default")


def after_reading(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let it happen once, right after the next read of a lock."""
    read = CacheLockProvider._read
    acts = [act]

    def read_and_act(self: CacheLockProvider, name: str) -> Value | None:
        value = read(self, name)
        if acts:
            acts.pop()()
        return value

    monkeypatch.setattr(CacheLockProvider, "_read", read_and_act)


def test_fence_is_refused_with_what_helps(locks: CacheLockProvider) -> None:
    """Nobody is told to use a number that there is not."""
    lock = take_from(locks, configure())
    told = (
        r"can't fence it\. Nor has it a fencing_token: keep this lock in the database"
    )
    with pytest.raises(LockProviderError, match=told):
        lock.fence()


def let_lease_pass(lock: Lock) -> None:
    """Let it be over by this host's clocks, while the key is still there."""
    lock.lease_end = time.monotonic()
    value = Value.parse(entry_of(lock.provider))  # type: ignore[arg-type]
    over = Value(value.by, value.at, time.time(), value.least)
    lock.provider._replace("extend", "job", value, over, 60)  # type: ignore[attr-defined]


def test_key_outlives_its_lease(
    locks: CacheLockProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a second at least, in which a slow release is still harmless."""
    asked: list[float] = []
    add = AnyCache.add

    def spy(self: AnyCache, key: str, value: str, seconds: float) -> bool:
        asked.append(seconds)
        return add(self, key, value, seconds)

    monkeypatch.setattr(AnyCache, "add", spy)
    take_from(locks, configure())
    assert asked == [61]


def test_late_step_leaves_the_key_alone(locks: CacheLockProvider) -> None:
    """After the lease it may be another's any moment, so it ends by itself."""
    lock = take_from(locks, configure())
    let_lease_pass(lock)
    before = entry_of(locks)
    assert not locks.extend(lock, MINUTE)
    assert not locks.release(lock)
    assert entry_of(locks) == before


def test_extension_by_an_operator_counts(locks: CacheLockProvider) -> None:
    """The holder's own clock knows nothing of it, but the value does."""
    lock = take_from(locks, configure())
    assert locks.force_extend("job", timedelta(hours=1))
    lock.lease_end = time.monotonic()
    assert lock.release()
    assert entry_of(locks) is None


def test_extension_that_took_too_long_is_none(
    locks: CacheLockProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that stood still meanwhile does not go on as the holder."""
    lock = take_from(locks, configure())
    replace_value = AnyCache.replace

    def replace(self: AnyCache, *args: Any, **options: Any) -> bool:
        lock.lease_end = time.monotonic()
        monkeypatch.setattr(Value, "left", 0)
        return replace_value(self, *args, **options)

    monkeypatch.setattr(AnyCache, "replace", replace)
    assert not locks.extend(lock, MINUTE)


def test_lost_reply_of_the_acquisition(
    locks: CacheLockProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that sends it again finds its own value: the lock is ours."""
    add = AnyCache.add

    def add_twice(self: AnyCache, key: str, value: str, seconds: float) -> bool:
        add(self, key, value, seconds)
        return add(self, key, value, seconds)

    monkeypatch.setattr(AnyCache, "add", add_twice)
    lock = take_from(locks, configure())
    assert lock.release()


def test_lost_reply_of_the_release(
    locks: CacheLockProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second try finds no key, and counts the first one as done."""
    lock = take_from(locks, configure())
    delete = AnyCache.delete

    def delete_and_fail(self: AnyCache, key: str, old: str) -> bool:
        delete(self, key, old)
        monkeypatch.setattr(AnyCache, "delete", delete)
        raise TimeoutError("no answer")

    monkeypatch.setattr(AnyCache, "delete", delete_and_fail)
    with pytest.raises(LockProviderError, match="'job'.*no answer") as failure:
        lock.release()
    assert failure.value.is_uncertain
    assert lock.release()


def test_second_try_after_the_lease_is_no_release(locks: CacheLockProvider) -> None:
    """Then nobody knows who has deleted it."""
    lock = take_from(locks, configure())
    end_lease(lock)
    lock.was_release_tried = True
    lock.lease_end = time.monotonic()
    assert not locks.release(lock)


def test_lock_that_comes_and_goes_is_contended(
    locks: CacheLockProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key was there at each try, and gone when its holder was asked for."""
    monkeypatch.setattr(AnyCache, "add", lambda *_: False)
    assert locks.acquire(configure()) is CONTENDED


def test_operator_runs_a_kept_lock(locks: CacheLockProvider) -> None:
    """lock_at_least_for does not stop an operator, but a running job does."""
    kept = configure(lock_at_least_for=MINUTE)
    assert take_from(locks, kept).release()
    lock = take_from(locks, BY_OPERATOR)
    holder = locks.acquire(BY_OPERATOR)
    assert isinstance(holder, LockHolder)
    assert holder.locked_by == lock.locked_by


def test_one_of_two_operators_runs_it(
    locks: CacheLockProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second does not delete what the first has just acquired."""
    monkeypatch.setattr(provider, "GUARD_WAIT", timedelta(0))
    assert take_from(locks, configure(lock_at_least_for=MINUTE)).release()
    won: list[Lock] = []

    def another_starts_it() -> None:
        with pytest.raises(LockProviderError, match="another operator"):
            won.append(take_from(locks, BY_OPERATOR))

    after_reading(monkeypatch, another_starts_it)
    lock = take_from(locks, BY_OPERATOR)
    assert won == []
    assert lock.release()


def test_operator_waits_for_another_one(
    locks: CacheLockProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is told, if that takes too long; the guard of a dead one ends by itself."""
    monkeypatch.setattr(provider, "GUARD_WAIT", timedelta(0))
    take_from(locks, configure())
    with locks._guarded("job"):
        with pytest.raises(LockProviderError, match="'job': another operator"):
            locks.force_release("job", running=True)
        assert isinstance(locks.acquire(configure()), LockHolder)
    assert locks.force_release("job", running=True)


def test_guard_is_removed(locks: CacheLockProvider) -> None:
    """Whatever the operator did."""
    locks.force_release("job", running=True)
    with locks._using("read", "job") as (store, _):
        assert store.get(guard_of("job", locks.prefix)) is None


@pytest.mark.usefixtures("table")
@pytest.mark.django_db(transaction=True)
def test_table_compares_what_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """There nobody deletes or extends another's lock, however long he stood still."""
    locks = CacheLockProvider("default")
    others: list[Lock] = []

    def another_takes_it() -> None:
        end_lease(late)
        others.append(take_from(locks, configure()))

    for step in (locks.release, lambda lock: locks.extend(lock, 2 * MINUTE)):
        late = take_from(locks, configure())
        with monkeypatch.context() as patched:
            after_reading(patched, another_takes_it)
            assert not step(late)
        [status] = locks.statuses("job")
        other = others.pop()
        assert status.locked_by == other.locked_by
        assert status.remaining <= MINUTE
        assert other.release()


def test_other_caches_do_not(
    locks: CacheLockProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the documentation warns of: the release deletes the other one's lock."""

    def another_takes_it() -> None:
        end_lease(late)
        take_from(locks, configure())

    late = take_from(locks, configure())
    after_reading(monkeypatch, another_takes_it)
    locks.release(late)
    assert entry_of(locks) is None
