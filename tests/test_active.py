"""The locks under which code runs, on locks in memory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextvars import copy_context
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.test import override_settings
from django.utils.asyncio import async_unsafe

from django_shedlock import (
    Lock,
    LockLost,
    LockProviderError,
    NoActiveLock,
    ahold,
    arelease_all,
    assert_locked,
    current_lock,
    execute,
    extend_active_lock,
    hold,
    locks_held,
    release_all,
)
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.test import held_elsewhere, is_held, locked_in_memory
from tests.support.leases import end_lease, end_own_count
from tests.support.waiting import PATIENCE


@pytest.fixture(autouse=True)
def in_memory() -> Iterator[None]:
    with locked_in_memory():
        yield


def runs_at_once() -> bool:
    """Whether the calling code may run the job, which somebody else holds."""
    return execute(lambda: None, "job").was_executed


def test_no_active_lock_outside() -> None:
    """Code that needs a lock says so when it is run without one."""
    for step in (assert_locked, current_lock, extend_active_lock):
        with pytest.raises(NoActiveLock, match="under no lock"):
            step()


def test_current_lock_is_the_innermost() -> None:
    """The current lock is the innermost one, also when it is held twice."""
    with hold("a") as a, hold("b") as b:
        assert current_lock() is b
        with hold("a"):
            assert current_lock() is a
        assert current_lock() is b


def test_released_lock_is_not_current() -> None:
    """A lock that its body gave back leaves the one around it as the current one."""
    with hold("a") as a, hold("b") as b:
        b.release()
        assert current_lock() is a


def test_locks_may_end_in_the_order_in_which_they_began() -> None:
    """The end of the outer lock leaves the inner one as the current one."""
    outer, inner = hold("a"), hold("b")
    outer.__enter__()
    lock = inner.__enter__()
    outer.__exit__(None, None, None)
    assert current_lock() is lock
    inner.__exit__(None, None, None)
    with pytest.raises(NoActiveLock):
        current_lock()


def test_assert_locked_after_the_lease() -> None:
    """A body that outlives its lease is told when it asks."""
    with hold("job") as lock:
        assert_locked()
        end_lease(lock)
        with pytest.raises(LockLost, match=f"'job' is no longer .* {lock.locked_by}"):
            assert_locked()


def test_extend_active_lock_counts_from_now() -> None:
    """The lease counts from now, and never gets shorter."""
    with hold("job", lock_at_most_for="1m") as lock:
        extend_active_lock("10m")
        assert lock.remaining() > timedelta(minutes=5)
        extend_active_lock("1s")
        assert lock.remaining() > timedelta(minutes=5)


def test_extend_active_lock_without_a_duration() -> None:
    """Without a duration the lease gets its full length again."""
    with hold("job", lock_at_most_for="10m") as lock:
        end_own_count(lock)
        extend_active_lock()
        assert lock.remaining() > timedelta(minutes=5)


@override_settings(SHEDLOCK_ENABLED=False)
def test_disabled_locks_are_never_missed() -> None:
    """With SHEDLOCK_ENABLED = False, code that asks for its lock is content."""
    assert_locked()
    extend_active_lock("1m")
    with hold("job") as lock:
        assert current_lock() is lock


def test_released_lock_does_not_count_in_an_inherited_context() -> None:
    """A task that outlives the body that started it is under no lock any more."""
    with hold("job"):
        inherited = copy_context()
    with pytest.raises(NoActiveLock):
        inherited.run(assert_locked)
    with held_elsewhere("job"):
        assert not inherited.run(runs_at_once)


def test_task_of_the_body_is_under_its_lock() -> None:
    """What an async body starts and awaits belongs to it, also in threads."""

    async def part() -> Lock:
        assert_locked()
        return current_lock()

    async def main() -> None:
        async with ahold("job") as lock:
            assert await asyncio.create_task(part()) is lock
            assert await asyncio.to_thread(current_lock) is lock
            assert await sync_to_async(runs_at_once)()

    asyncio.run(main())


def test_task_that_outlives_the_body_is_under_no_lock() -> None:
    """A task that the body leaves behind has to ask for the lock itself."""

    async def left_behind(released: asyncio.Event) -> bool:
        assert_locked()
        await released.wait()
        with pytest.raises(NoActiveLock):
            assert_locked()
        return await sync_to_async(runs_at_once)()

    async def main() -> bool:
        released = asyncio.Event()
        async with ahold("job"):
            task = asyncio.create_task(left_behind(released))
            await asyncio.sleep(0)
        with held_elsewhere("job"):
            released.set()
            return await task

    assert not asyncio.run(main())


def test_thread_that_outlives_the_body_is_under_no_lock() -> None:
    """So it is with a thread that got a copy of the context."""
    released = threading.Event()
    results: list[bool] = []

    def left_behind() -> None:
        assert_locked()
        released.wait(PATIENCE)
        results.append(runs_at_once())

    with hold("job"):
        thread = threading.Thread(target=copy_context().run, args=(left_behind,))
        thread.start()
    with held_elsewhere("job"):
        released.set()
        thread.join()
    assert results == [False]


def test_body_that_ends_in_another_context_leaves_nothing() -> None:
    """An async generator may be closed by a task that never entered the lock."""

    async def numbers() -> AsyncIterator[int]:
        async with ahold("job"):
            yield 1

    async def main() -> None:
        before = copy_context()
        iterator = numbers()
        assert await anext(iterator) == 1
        assert is_held("job")

        async def close() -> None:
            await iterator.aclose()  # type: ignore[attr-defined]

        await asyncio.create_task(close(), context=before)
        assert not is_held("job")
        with pytest.raises(NoActiveLock):
            current_lock()

    asyncio.run(main())


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


@pytest.mark.parametrize(
    "error", [LockProviderError, RuntimeError, OSError, SystemExit]
)
def test_release_all_goes_on_after_an_error(
    error: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A lock that can't be released is logged, and the next one is released."""
    release = MemoryLockProvider.release

    def release_b_only(self: MemoryLockProvider, lock: Any, **options: Any) -> bool:
        if lock.name == "a":
            raise error("out of order")
        return release(self, lock, **options)

    with hold("a"), hold("b") as b:
        with monkeypatch.context() as broken:
            broken.setattr(MemoryLockProvider, "release", release_b_only)
            assert release_all() == [b]
    assert "Lock 'a' could not be released: out of order" in caplog.text


@pytest.mark.parametrize("release", [release_all, arelease_all])
def test_release_all_works_in_an_event_loop(
    release: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shutdown hook may be called while a loop runs, where Django allows no query."""
    real = MemoryLockProvider.release
    monkeypatch.setattr(
        MemoryLockProvider, "release", async_unsafe("no query in a loop")(real)
    )

    async def main() -> Any:
        released = release()
        return await released if asyncio.iscoroutine(released) else released

    with hold("a") as a, hold("b") as b:
        assert asyncio.run(main()) == [a, b]
    assert not is_held("a")


def test_async_release_all_waits_for_no_other_coroutine() -> None:
    """The thread of all synchronous code may be taken, by a body that hangs."""
    begun, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        assert go_on.wait(PATIENCE)

    async def main() -> None:
        async with ahold("a") as a:
            hanging = asyncio.create_task(sync_to_async(hang)())
            assert await asyncio.to_thread(begun.wait, PATIENCE)
            assert await asyncio.wait_for(arelease_all(), PATIENCE) == [a]
            go_on.set()
            await hanging

    asyncio.run(main())
