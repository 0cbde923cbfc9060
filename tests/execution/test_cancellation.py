"""An async body is cancelled when its lock is lost, and its task stays sound."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from django_shedlock import Lock, LockLost, aexecute, ahold, current_lock, hold
from django_shedlock.execution import keep_alive
from django_shedlock.locks.status import LockStatus
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.signals import lock_lost
from django_shedlock.testing import force_release, locked_in_memory
from tests.support.leases import LONG_NOTICE, end_lease, end_own_count
from tests.support.waiting import NEVER_SECONDS, PATIENCE, patience, wait_for

SOON = timedelta(seconds=0.05)
pytestmark = pytest.mark.once


@pytest.fixture(autouse=True)
def in_memory() -> Iterator[None]:
    with locked_in_memory():
        yield


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run it, and see that nothing of a cancellation is left in its task."""

    async def checked() -> None:
        async with patience():
            await main()
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0)  # where a stray cancellation would strike

    asyncio.run(checked())


async def for_ever() -> None:
    await asyncio.sleep(NEVER_SECONDS * 2)


def test_busy_executor_delays_no_cancellation() -> None:
    """The thread of all synchronous code may be taken when the lease ends."""
    begun, go_on, told = threading.Event(), threading.Event(), threading.Event()

    def occupy() -> None:
        begun.set()
        wait_for(go_on.is_set)

    def receiver(**kwargs: Any) -> None:
        told.set()

    async def main() -> None:
        with pytest.raises(LockLost):
            async with ahold("job"):
                busy = asyncio.create_task(sync_to_async(occupy)())
                assert await asyncio.to_thread(wait_for, begun.is_set)
                end_lease(current_lock())
                try:
                    await for_ever()
                finally:
                    # Cancelled, and told, before the thread is free.
                    assert not busy.done()
                    assert await asyncio.to_thread(wait_for, told.is_set)
                    go_on.set()
        await busy

    lock_lost.connect(receiver)
    try:
        run(main)
    finally:
        lock_lost.disconnect(receiver)


def test_store_that_hangs_delays_no_cancellation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A store that hangs does not delay the cancellation at the end of the lease."""
    asked, go_on = threading.Event(), threading.Event()

    def hang(*args: object) -> Iterator[LockStatus]:
        asked.set()
        wait_for(go_on.is_set)
        return iter(())

    monkeypatch.setattr(MemoryLockProvider, "statuses", hang)
    monkeypatch.setattr(keep_alive, "LEASE_END_NOTICE", LONG_NOTICE)

    async def main() -> None:
        async with ahold("job") as lock:
            end_own_count(lock, after=LONG_NOTICE / 2)
            try:
                assert await asyncio.to_thread(wait_for, asked.is_set)
                end_own_count(lock)
                await for_ever()
            finally:
                go_on.set()

    with pytest.raises(LockLost):
        run(main)


def test_cancellation_that_the_body_swallows_is_taken_back() -> None:
    """A body may tidy up and end normally: then its task is not half cancelled."""

    async def body() -> str:
        end_lease(current_lock())
        with suppress(asyncio.CancelledError):
            await for_ever()
        return "tidied up"

    async def main() -> None:
        result = await aexecute(body, "job")
        assert result.value == "tidied up"

    run(main)


def test_cancellation_that_the_body_replaces_is_taken_back() -> None:
    """An error of the body's own passes, and its task is not half cancelled."""

    async def body() -> None:
        end_lease(current_lock())
        try:
            await for_ever()
        except asyncio.CancelledError:
            raise ValueError("half done") from None

    async def main() -> None:
        with pytest.raises(ValueError, match="half done"):
            await aexecute(body, "job")

    run(main)


def test_loss_at_the_very_end_cancels_nothing_later() -> None:
    """A body that ends before its cancellation arrives is not cancelled after it."""

    async def main() -> None:
        async with ahold("job") as lock:
            lock.declare_lost()

    run(main)


def test_wait_for_that_swallows_the_cancellation_leaves_none_behind() -> None:
    """Python 3.11's ``wait_for()`` does, if what it waits for ends at that instant."""

    async def body() -> str:
        future = asyncio.get_running_loop().create_future()

        def lose_and_answer() -> None:
            current.declare_lost()
            asyncio.get_running_loop().call_soon(future.set_result, "the answer")

        current = current_lock()
        asyncio.get_running_loop().call_soon(lose_and_answer)
        with suppress(asyncio.CancelledError):
            await asyncio.wait_for(future, PATIENCE)
        return "done"

    async def main() -> None:
        result = await aexecute(body, "job")
        assert result.value == "done"

    run(main)


def test_loss_beside_a_cancellation_by_others_is_theirs() -> None:
    """Who cancelled the task meets the cancellation, as after a timeout."""

    async def main() -> None:
        task = asyncio.create_task(aexecute(body, "job"))
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    async def body() -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_soon(task.cancel)
        current_lock().declare_lost()
        await for_ever()

    run(main)


def test_reentered_body_is_cancelled_in_its_own_task() -> None:
    """A task that re-entered the lock of its parent is cancelled with it."""

    async def main() -> None:
        with pytest.raises(LockLost):
            async with ahold("job") as lock:
                inner = asyncio.create_task(aexecute(for_ever, "job"))
                await asyncio.sleep(0)
                lock.declare_lost()
                await for_ever()
        await asyncio.wait({inner}, timeout=PATIENCE)
        assert inner.done()
        assert isinstance(inner.exception(), LockLost)

    run(main)


def test_reentered_body_that_tidies_up_is_not_cancelled_again() -> None:
    """Within one task the inner body may wait for something while it tidies up."""
    tidied: list[str] = []

    async def main() -> None:
        with pytest.raises(LockLost):
            async with ahold("job") as lock, ahold("job"):
                lose, *lose_again = lock._watchers
                lose()
                try:
                    await for_ever()
                finally:
                    for each in lose_again:  # a turn of the loop later
                        each()
                    for _ in range(5):
                        await asyncio.sleep(0)
                    tidied.append("all")

    run(main)
    assert tidied == ["all"]


def test_loss_that_is_told_twice_cancels_once() -> None:
    """A loss that is reported several times cancels the body only once."""

    async def main() -> None:
        with pytest.raises(LockLost):
            async with ahold("job") as lock:
                for watcher in lock._watchers * 3:
                    watcher()
                lock.lost.set()
                await for_ever()

    run(main)


def test_loss_just_before_it_is_watched_cancels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another thread may learn of it at any instant."""
    watched_by = Lock.watched_by

    def lose_first(lock: Lock, watcher: Any) -> Any:
        lock.lost.set()
        return watched_by(lock, watcher)

    monkeypatch.setattr(Lock, "watched_by", lose_first)

    async def main() -> None:
        with pytest.raises(LockLost):
            async with ahold("job"):
                await for_ever()

    run(main)


def test_reentered_body_under_a_plain_lock_is_cancelled() -> None:
    """A sync body's lock without keep-alive is watched while an async one runs."""

    async def lose() -> None:
        force_release("job")
        end_own_count(current_lock(), after=SOON)
        await for_ever()

    async def inner() -> None:
        await aexecute(lose, "job")

    with hold("job", lock_at_most_for="1h"):
        with pytest.raises(LockLost):
            asyncio.run(asyncio.wait_for(inner(), PATIENCE))


def test_reentered_body_ends_no_watch() -> None:
    """After a re-entered body ends, a loss still cancels the outer body."""

    async def main() -> None:
        async with ahold("job", lock_at_most_for="1h") as lock:
            async with ahold("job"):
                pass
            force_release("job")
            end_own_count(lock, after=SOON)
            await for_ever()

    with pytest.raises(LockLost):
        run(main)


def test_reentered_body_is_cancelled_once() -> None:
    """Within one task the outer body's caller is told, and nothing is left over."""

    async def main() -> None:
        with pytest.raises(LockLost):
            async with ahold("job") as lock:
                async with ahold("job") as same:
                    assert same is lock
                    end_lease(lock)
                    await for_ever()

    run(main)


def test_stack_meets_the_loss() -> None:
    """A lock that an AsyncExitStack holds turns its cancellation into LockLost."""

    async def main() -> None:
        with pytest.raises(LockLost):
            async with AsyncExitStack() as stack:
                end_lease(await stack.enter_async_context(ahold("job")))
                await for_ever()

    run(main)


async def numbers() -> AsyncIterator[int]:
    async with ahold("job"):
        for number in range(1000):
            yield number


def test_consumer_of_a_generator_meets_the_loss_at_its_closing() -> None:
    """A consumer whose generator loses its lock gets LockLost at the closing."""

    async def consume() -> None:
        async with aclosing(numbers()) as generator:  # type: ignore[type-var]
            async for _ in generator:
                end_lease(current_lock())
                await for_ever()

    async def main() -> None:
        with pytest.raises(LockLost):
            await consume()

    run(main)


@asynccontextmanager
async def locked_twice() -> AsyncIterator[None]:
    async with ahold("job"), ahold("other"):
        yield


def test_nested_locks_end_with_the_one_that_was_lost() -> None:
    """The loss of the inner lock passes through the outer one as what it is."""

    async def main() -> None:
        with pytest.raises(LockLost, match="'other'"):
            async with locked_twice():
                end_lease(current_lock())
                await for_ever()

    run(main)


@pytest.mark.parametrize("turns", range(8))
def test_error_just_after_a_loss_is_no_cancellation(turns: int) -> None:
    """The caller meets the loss or the body's error, whichever came first."""

    async def main() -> None:
        with pytest.raises((LockLost, ZeroDivisionError)):
            async with ahold("job") as lock:
                await asyncio.sleep(0)
                lock.declare_lost()
                for _ in range(turns):
                    await asyncio.sleep(0)
                raise ZeroDivisionError("the body's own error")

    run(main)
