"""The locks under which code runs, on locks in memory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import copy_context
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
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
from django_shedlock.execution.active import Body, _locks_here, activated
from django_shedlock.locks.configuration import make_request
from django_shedlock.providers import get_provider
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.signals import lock_released
from django_shedlock.testing import held_elsewhere, is_held, locked_in_memory
from tests.support.leases import (
    end_lease,
    end_own_count,
    is_kept_alive,
    is_watched,
)
from tests.support.threads import meeting_of, run_threads, running_threads
from tests.support.waiting import PATIENCE, wait_for

ROUNDS = 50
THREADS = 4


@pytest.fixture(autouse=True)
def in_memory() -> Iterator[None]:
    with locked_in_memory():
        yield


def runs_at_once() -> bool:
    """Whether the calling code may run the job, which somebody else holds."""
    return execute(lambda: None, "job").was_executed


async def aruns_at_once() -> bool:
    """See runs_at_once()."""
    return await sync_to_async(runs_at_once)()


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


def test_lock_is_asked_by_itself() -> None:
    """Whether this one is still held, from whatever code, also below another one."""
    with hold("job") as lock, hold("inner"):
        lock.assert_locked()
        end_lease(lock)
        assert_locked()
        with pytest.raises(LockLost, match=f"'job' is no longer .* {lock.locked_by}"):
            lock.assert_locked()
    with hold("other") as other:
        pass
    with pytest.raises(NoActiveLock, match="'other' is not held here: this process"):
        other.assert_locked()


def test_extend_active_lock_counts_from_now() -> None:
    """The lease counts from now, and never gets shorter."""
    with hold("job", lock_at_most_for="1m") as lock:
        extend_active_lock("10m")
        assert lock.remaining() > timedelta(minutes=5)
        extend_active_lock("1s")
        assert lock.remaining() > timedelta(minutes=5)


def test_extend_active_lock_without_a_duration() -> None:
    """extend_active_lock() without a duration gives the lease its full length again."""
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
        assert locks_held() == []


def test_disabled_lock_counts_for_nothing_when_locks_are_enabled() -> None:
    """A test may turn them on inside a body that runs unlocked, and asks again."""
    with override_settings(SHEDLOCK_ENABLED=False):
        outer = hold("job")
        outer.__enter__()
    for step in (assert_locked, current_lock, extend_active_lock):
        with pytest.raises(NoActiveLock):
            step()
    with hold("job") as lock:
        assert is_held("job")
        assert locks_held() == [lock]
    with held_elsewhere("job"):
        assert not runs_at_once()
    outer.__exit__(None, None, None)


def test_released_lock_does_not_count_in_an_inherited_context() -> None:
    """A task that outlives the body that started it is under no lock any more."""
    with hold("job"):
        inherited = copy_context()
    with pytest.raises(NoActiveLock):
        inherited.run(assert_locked)
    with held_elsewhere("job"):
        assert not inherited.run(runs_at_once)


def test_task_of_the_body_is_under_its_lock() -> None:
    """What an async body starts and awaits belongs to it, also in asgiref's threads."""

    async def part() -> Lock:
        assert_locked()
        return current_lock()

    async def main() -> None:
        async with ahold("job") as lock:
            assert await asyncio.create_task(part()) is lock
            assert await sync_to_async(current_lock)() is lock
            assert await sync_to_async(runs_at_once)()
            assert await sync_to_async(runs_at_once, thread_sensitive=False)()
            assert await sync_to_async(async_to_sync(part))() is lock

    asyncio.run(main())
    with hold("job") as lock:
        assert async_to_sync(part)() is lock


def test_thread_is_under_no_lock_because_it_inherits_the_context() -> None:
    """As free-threaded builds let it; asyncio.to_thread() starts such a thread, too."""
    results: list[bool] = []

    def other() -> None:
        with pytest.raises(NoActiveLock):
            current_lock()
        results.append(runs_at_once())

    async def main() -> None:
        async with ahold("job"):
            await sync_to_async(list, thread_sensitive=False)()  # which marks a thread
            await asyncio.to_thread(other)

    with hold("job"):
        thread = threading.Thread(target=copy_context().run, args=(other,))
        thread.start()
        thread.join()
    asyncio.run(main())
    assert results == [False, False]


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


def test_thread_of_asgiref_that_outlives_the_body_is_under_no_lock() -> None:
    """A thread of asgiref that outlives the body is under no lock."""
    begun, released = threading.Event(), threading.Event()
    results: list[bool] = []

    def left_behind() -> None:
        assert_locked()
        begun.set()
        wait_for(released.is_set)
        with pytest.raises(NoActiveLock):
            assert_locked()
        results.append(runs_at_once())

    async def main() -> None:
        async with ahold("job"):
            task = asyncio.create_task(
                sync_to_async(left_behind, thread_sensitive=False)()
            )
            assert await asyncio.to_thread(wait_for, begun.is_set)
        with held_elsewhere("job"):
            released.set()
            await task

    asyncio.run(main())
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


class Ends:
    """What the receivers of lock_released are told: of one end, at the very end."""

    def __init__(self) -> None:
        self.told: list[BaseException | None] = []

    def __call__(self, *, exception: BaseException | None, **kwargs: Any) -> None:
        self.told.append(exception)


@pytest.fixture
def ends() -> Iterator[list[BaseException | None]]:
    receiver = Ends()
    lock_released.connect(receiver)
    yield receiver.told
    lock_released.disconnect(receiver)


def test_dropped_generators_leave_nothing_behind() -> None:
    """Each is closed in a task of its own, not where its lock was acquired."""

    async def rows() -> AsyncIterator[int]:
        async with ahold("rows"):
            yield 1
            yield 2

    async def main() -> int:
        for _ in range(3):
            async for _row in rows():
                break
            while locks_held():
                await asyncio.sleep(0.01)
        async with ahold("rows"):
            return len(_locks_here())

    assert asyncio.run(main()) == 1


class Part:
    """A task of a body, which asks for the body's lock, and stays inside."""

    def __init__(self, error: Exception | None = None):
        self.inside, self.go_on = asyncio.Event(), asyncio.Event()
        self._error = error

    async def run(self, inner: Part | None = None) -> None:
        async with ahold("job"):
            if inner is not None:
                task = asyncio.create_task(inner.run())
                await inner.inside.wait()
            self.inside.set()
            await self.go_on.wait()
            if self._error is not None:
                raise self._error
        if inner is not None:
            assert not task.done()
            inner.go_on.set()
            await task

    async def run_synchronous(self) -> None:
        with hold("job"):
            self.inside.set()
            await self.go_on.wait()


async def start(part: Part, *arguments: Any) -> asyncio.Task[None]:
    """Start the task in a body, which ends at once."""
    async with ahold("job", keep_alive=True):
        task = asyncio.create_task(part.run(*arguments))
        await part.inside.wait()
    return task


def test_last_body_to_leave_releases(ends: list[BaseException | None]) -> None:
    """The body does not wait for its task, which keeps the lock and its beats."""

    async def main() -> None:
        part = Part()
        task = await start(part)
        [lock] = locks_held()
        assert lock.is_active
        assert is_kept_alive(lock)
        assert is_watched(lock)
        with pytest.raises(NoActiveLock):
            current_lock()
        assert not await aruns_at_once()
        assert ends == []
        part.go_on.set()
        await task
        assert not is_kept_alive(lock)
        assert not is_watched(lock)
        assert ends == [None]
        assert locks_held() == []
        assert await aruns_at_once()

    asyncio.run(main())


def test_task_of_a_task_keeps_the_lock(ends: list[BaseException | None]) -> None:
    """Whoever is inside may let others in, after the first has left, too."""

    async def main() -> None:
        part, inner = Part(), Part()
        task = await start(part, inner)
        part.go_on.set()
        await task
        assert len(ends) == 1
        assert not is_held("job")

    asyncio.run(main())


def test_synchronous_body_may_be_the_last_to_leave(
    monkeypatch: pytest.MonkeyPatch,
    ends: list[BaseException | None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In an event loop Django refuses the release, so another thread sends it."""
    real = MemoryLockProvider.release
    monkeypatch.setattr(
        MemoryLockProvider, "release", async_unsafe("no query in a loop")(real)
    )

    async def main() -> None:
        part = Part()
        async with ahold("job"):
            task = asyncio.create_task(part.run_synchronous())
            await part.inside.wait()
        assert is_held("job")
        part.go_on.set()
        await task

    asyncio.run(main())
    assert not is_held("job")
    assert ends == [None]
    assert caplog.text == ""


def test_task_may_leave_a_lock_of_a_synchronous_body(
    ends: list[BaseException | None],
) -> None:
    """The loop goes on when the body has ended."""
    part, loop = Part(), asyncio.new_event_loop()
    with hold("job"):
        task = loop.create_task(part.run())
        loop.run_until_complete(part.inside.wait())
    assert is_held("job")
    part.go_on.set()
    loop.run_until_complete(task)
    loop.close()
    assert not is_held("job")
    assert ends == [None]


def test_run_fails_with_a_body_that_outlives_the_first(
    ends: list[BaseException | None],
) -> None:
    """A run fails if a task that outlives the body raises an exception."""
    error = ValueError("by the task")

    async def main() -> None:
        part = Part(error)
        task = await start(part)
        part.go_on.set()
        with pytest.raises(ValueError, match="by the task"):
            await task

    asyncio.run(main())
    assert ends == [error]


def test_run_fails_with_its_first_body(ends: list[BaseException | None]) -> None:
    """What is left behind may end well; the lock is kept until then."""
    error = ValueError("by the body")

    async def main() -> None:
        part = Part()
        with pytest.raises(ValueError, match="by the body"):
            async with ahold("job"):
                task = asyncio.create_task(part.run())
                await part.inside.wait()
                raise error
        assert is_held("job")
        part.go_on.set()
        await task

    asyncio.run(main())
    assert ends == [error]


def test_failure_that_the_first_body_handles_is_none(
    ends: list[BaseException | None],
) -> None:
    """A body that ends before the first one is that one's own matter."""
    with hold("job"):
        with pytest.raises(ValueError, match="handled"), hold("job"):
            raise ValueError("handled")
    assert ends == [None]


def test_cancelled_task_leaves_the_lock(ends: list[BaseException | None]) -> None:
    """As at the end of the loop, which waits for nobody."""

    async def main() -> None:
        await start(Part())
        assert is_held("job")

    asyncio.run(main())
    assert not is_held("job")
    assert [type(error) for error in ends] == [asyncio.CancelledError]


def test_explicit_release_ends_it_for_all(ends: list[BaseException | None]) -> None:
    """Who is inside then is under no lock, and frees nobody else's at its end."""

    async def main() -> None:
        part = Part()
        async with ahold("job") as lock:
            task = asyncio.create_task(part.run())
            await part.inside.wait()
            assert lock.release()
        with held_elsewhere("job"):
            part.go_on.set()
            await task
            assert is_held("job")

    asyncio.run(main())
    assert len(ends) == 1


def test_lost_lock_cancels_the_task_that_kept_it() -> None:
    """A task that keeps the body's lock is cancelled if the lock is lost."""

    async def main() -> None:
        task = await start(Part())
        [lock] = locks_held()
        end_lease(lock)
        with pytest.raises(LockLost, match="'job' was lost"):
            await asyncio.wait_for(task, PATIENCE)

    asyncio.run(main())


@pytest.mark.parametrize("number", range(ROUNDS))
def test_lock_that_the_last_has_left_lets_nobody_in(number: int) -> None:
    """Whoever comes while it is released acquires it in the ordinary way."""
    lock = Lock(get_provider(), make_request("job", {}).configuration())
    leaving, entering, together = Body(), Body(), meeting_of(2)
    leaving.enter(lock)
    steps: list[Callable[[], Lock | None]] = [
        lambda: leaving.leave(None)[0],
        lambda: entering.reenter("default", "job"),
    ]
    told: list[Lock | None] = []

    def step() -> None:
        with activated(lock):
            mine = steps.pop()
            together.wait()
            told.append(mine())

    run_threads(2, step, together)
    assert told.count(lock) == 1  # it was the last to leave, or another one is inside
    assert entering.leave(None)[0] is entering.lock


@pytest.mark.parametrize("number", range(ROUNDS))
def test_one_of_those_that_leave_at_once_is_the_last(number: int) -> None:
    """Of all threads that leave at once, one has to release the lock."""
    lock = Lock(get_provider(), make_request("job", {}).configuration())
    first, inside = Body(), meeting_of(THREADS + 1)
    first.enter(lock)
    told: list[Lock | None] = []

    def enter_and_leave() -> None:
        body = Body()
        with activated(lock):
            assert body.reenter("default", "job") is lock
        inside.wait()
        told.append(body.leave(None)[0])

    with running_threads(THREADS, enter_and_leave, inside):
        inside.wait()
        told.append(first.leave(None)[0])
    assert told.count(lock) == 1


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
    wait_for(entered.is_set)
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
        wait_for(go_on.is_set)

    async def main() -> None:
        async with ahold("a") as a:
            hanging = asyncio.create_task(sync_to_async(hang)())
            assert await asyncio.to_thread(wait_for, begun.is_set)
            assert await asyncio.wait_for(arelease_all(), PATIENCE) == [a]
            go_on.set()
            await hanging

    asyncio.run(main())
