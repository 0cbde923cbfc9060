"""A body that has lost its lock, and asks for the same name again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from django_shedlock import (
    Lock,
    LockLost,
    LockNotAcquired,
    aexecute,
    ahold,
    assert_locked,
    current_lock,
    execute,
    hold,
    locks_held,
    scheduler_lock,
)
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRun
from django_shedlock.testing import (
    force_release,
    held_elsewhere,
    is_held,
    locked_in_memory,
)
from tests.support.leases import end_lease
from tests.support.waiting import NEVER_SECONDS


@pytest.fixture(autouse=True)
def in_memory(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.node.get_closest_marker("django_db"):
        yield
        return
    with locked_in_memory():
        yield


def lose_to_operator(lock: Lock) -> None:
    """Let an operator release the lock, and its holder learn of it."""
    force_release("job")
    with pytest.raises(LockLost):
        lock.extend()


async def for_ever() -> None:
    await asyncio.sleep(NEVER_SECONDS * 2)


def test_free_lock_is_acquired_anew() -> None:
    """The inner body has a lock of its own, with an identity and a token of its own."""
    with hold("job") as lost:
        end_lease(lost)
        with hold("job") as lock:
            assert lock is not lost
            assert lock.locked_by != lost.locked_by
            assert lock.fencing_token > lost.fencing_token
            assert current_lock() is lock
            assert_locked()
            assert locks_held() == [lock]
        assert not is_held("job")


def test_lock_that_an_operator_released_is_acquired_anew() -> None:
    """A loss that is known counts as one that only the clock shows."""
    with hold("job") as lost:
        lose_to_operator(lost)
        with hold("job") as lock:
            assert lock is not lost
            assert_locked()


def test_outer_body_stays_without_a_lock() -> None:
    """What the inner body had protects nothing after it."""
    with hold("job") as lost:
        end_lease(lost)
        with hold("job"):
            pass
        assert current_lock() is lost
        with pytest.raises(LockLost, match="'job' is no longer held"):
            assert_locked()
        assert locks_held() == []


def test_innermost_body_enters_the_new_lock() -> None:
    """Inside the new lock the name runs directly again."""
    with hold("job") as lost:
        end_lease(lost)
        with hold("job") as lock:
            with hold("job") as same:
                assert same is lock
            assert lock.is_active
            assert is_held("job")


def test_lock_is_lost_again() -> None:
    """Each loss needs a new acquisition."""
    with hold("job") as first:
        end_lease(first)
        with hold("job") as second:
            end_lease(second)
            with hold("job") as third:
                assert third not in (first, second)
                assert_locked()


def test_lock_of_another_worker_is_skipped() -> None:
    """Who lost the lock is a caller as any other."""
    function = scheduler_lock("job")(lambda: "ran")
    with hold("job") as lost:
        end_lease(lost)
        with held_elsewhere("job"):
            assert not execute(lambda: 1, "job").was_executed
            assert function() is None
            with pytest.raises(LockNotAcquired, match="'job' is held by"), hold("job"):
                pytest.fail("another worker has it")


def test_end_of_the_lost_body_spares_the_next_holder() -> None:
    """Neither its own end, nor that of a body which re-entered before the loss."""
    with hold("job") as lost:
        with hold("job") as same:
            assert same is lost
            end_lease(lost)
            other = held_elsewhere("job")
            other.enable()
        assert is_held("job")
    assert is_held("job")
    other.disable()
    assert not is_held("job")


def test_end_of_an_inner_body_spares_the_new_lock() -> None:
    """A body that entered before the loss may leave later than the new one enters."""
    inner = hold("job")
    with hold("job") as lost:
        inner.__enter__()
        end_lease(lost)
        with hold("job") as lock:
            inner.__exit__(None, None, None)
            assert lock.is_active
            assert is_held("job")
            assert current_lock() is lock


def test_lock_of_another_name_is_kept() -> None:
    """A body may have lost one of its locks only."""
    with hold("other") as other, hold("job") as lost:
        end_lease(lost)
        with hold("other") as same, hold("job") as lock:
            assert same is other
            assert lock is not lost
        assert locks_held() == [other]


@pytest.mark.django_db(transaction=True)
def test_each_lock_has_a_run() -> None:
    """The history has the loss, and what was done after it."""
    with hold("job") as lost:
        end_lease(lost)
        with hold("job") as lock:
            pass
    outcomes = dict(LockRun.objects.values_list("locked_by", "outcome"))
    assert outcomes == {
        lost.locked_by: RunOutcome.LOST,
        lock.locked_by: RunOutcome.SUCCEEDED,
    }


def test_async_body_that_catches_the_cancellation() -> None:
    """
    An async body that catches the cancellation may acquire the lock again.

    The loss does not cancel the body twice.
    """

    async def main() -> Lock:
        async with ahold("job") as lost:
            end_lease(lost)
            try:
                await for_ever()
            except asyncio.CancelledError:
                async with ahold("job") as lock:
                    assert lock is not lost
                    await asyncio.sleep(0)
                    assert_locked()
                assert current_lock() is lost
        return lock

    lock = asyncio.run(main())
    assert not lock.is_active
    assert not is_held("job")


def test_async_body_before_it_is_cancelled() -> None:
    """The cancellation may come while the store is asked: nothing stays held."""

    async def main() -> None:
        with pytest.raises(LockLost):
            async with ahold("job") as lost:
                end_lease(lost)
                async with ahold("job"):
                    await for_ever()

    asyncio.run(main())
    assert not is_held("job")


def test_async_body_loses_the_new_lock() -> None:
    """
    If an async body loses its new lock, the inner caller gets LockLost.

    The outer body goes on.
    """

    async def main() -> list[str]:
        met: list[str] = []
        async with ahold("job") as lost:
            end_lease(lost)
            try:
                await for_ever()
            except asyncio.CancelledError:
                try:
                    async with ahold("job") as lock:
                        end_lease(lock)
                        await for_ever()
                except LockLost as error:
                    met.append(str(error))
                    await asyncio.sleep(0)
                    assert lock.locked_by in met[0]
        return met

    assert len(asyncio.run(main())) == 1
    assert not is_held("job")


def test_async_skip_after_a_loss() -> None:
    """If another worker has the lock by then, it is skipped."""

    async def main() -> bool:
        async with ahold("job") as lost:
            end_lease(lost)
            try:
                await for_ever()
            except asyncio.CancelledError:
                async with held_elsewhere("job"):
                    result = await aexecute(for_ever, "job")
        return result.was_executed

    assert not asyncio.run(main())


def test_task_that_goes_on_after_the_loss() -> None:
    """A task that kept the lost lock asks for it on its own account."""

    async def go_on(goes_on: asyncio.Event) -> tuple[Lock, Lock]:
        try:
            async with ahold("job") as lost:
                await for_ever()
        except LockLost:
            await goes_on.wait()
        async with ahold("job") as lock:
            assert_locked()
        return lost, lock

    async def main() -> None:
        goes_on = asyncio.Event()
        with pytest.raises(LockLost):
            async with ahold("job") as lost:
                task = asyncio.create_task(go_on(goes_on))
                await asyncio.sleep(0)
                end_lease(lost)
                await for_ever()
        goes_on.set()
        entered, lock = await task
        assert entered is lost
        assert lock is not lost

    asyncio.run(main())
    assert not is_held("job")
