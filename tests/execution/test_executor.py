"""hold(), execute() and their async twins, on locks in memory."""

from __future__ import annotations

import asyncio
import functools
import gc
import threading
import time
import types
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

import pytest
from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.test import override_settings
from django.utils.asyncio import async_unsafe

from django_shedlock import (
    InvalidLockConfiguration,
    Lock,
    LockLost,
    LockNotAcquired,
    LockProviderError,
    aexecute,
    ahold,
    assert_locked,
    clocks,
    current_lock,
    execute,
    extend_active_lock,
    hold,
)
from django_shedlock.clocks import Backoff
from django_shedlock.execution import executor
from django_shedlock.execution.active import Body
from django_shedlock.execution.executor import attempt, next_pause
from django_shedlock.execution.keep_alive import late_releases
from django_shedlock.locks.configuration import make_request
from django_shedlock.locks.status import CONTENDED, LockHolder
from django_shedlock.providers import get_provider
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.signals import lock_acquired, lock_lost, lock_released
from django_shedlock.testing import (
    force_release,
    held_elsewhere,
    is_held,
    locked_in_memory,
)
from tests.support.clocks import SleepingClock
from tests.support.leases import end_lease, end_own_count, pass_time
from tests.support.locks import Broken, Silent, status_of
from tests.support.waiting import NEVER_SECONDS, PATIENCE, patience, wait_for

TWO_PROVIDERS = {
    alias: {"BACKEND": "django_shedlock.providers.memory.MemoryLockProvider"}
    for alias in ("default", "second")
}


@pytest.fixture(autouse=True)
def in_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(executor, "INTERRUPTED_RELEASE_SECONDS", NEVER_SECONDS)
    with locked_in_memory():
        yield


def break_off() -> NoReturn:
    raise Broken("by the body")


def test_hold_gives_the_lock_and_releases_it() -> None:
    """The body runs under the lock, and nothing is held after it."""
    with hold("job", lock_at_most_for="1m") as lock:
        assert is_held("job")
        assert current_lock() is lock
        assert lock.remaining() <= timedelta(minutes=1)
    assert not is_held("job")


def test_hold_of_a_held_lock_names_the_holder() -> None:
    """Who can't get the lock learns who has it, and what to do."""
    with held_elsewhere("job"):
        with pytest.raises(LockNotAcquired, match="'job' is held by .*:.*Give `wait`"):
            with hold("job"):
                pytest.fail("the body must not run")


def test_execute_returns_the_value() -> None:
    """A task that ran says so, with what it returned."""
    result = execute(lambda: 7, "job")
    assert (result.was_executed, result.value) == (True, 7)


def test_execute_skips_a_held_lock() -> None:
    """A task whose lock is held is not run, which is no error."""
    with held_elsewhere("job"):
        result = execute(break_off, "job")
    assert (result.was_executed, result.value) == (False, None)


def test_exception_of_the_body_passes_and_the_lock_is_released() -> None:
    """The very exception comes out, without a note, and nothing stays held."""
    error = Broken("mine")

    def fail() -> None:
        raise error

    with pytest.raises(Broken) as caught:
        execute(fail, "job")
    assert caught.value is error
    assert not hasattr(error, "__notes__")
    assert not is_held("job")


def test_lock_not_acquired_by_the_body_is_no_skip() -> None:
    """The body's own LockNotAcquired is an error of the body."""

    def nested() -> None:
        with hold("inner"):
            pytest.fail("the body must not run")

    with held_elsewhere("inner"), pytest.raises(LockNotAcquired, match="'inner'"):
        execute(nested, "outer")


def fail_to_release(monkeypatch: pytest.MonkeyPatch) -> None:
    def release(*args: Any, **options: Any) -> NoReturn:
        raise LockProviderError("the store is gone")

    monkeypatch.setattr(MemoryLockProvider, "release", release)


def test_failed_release_never_masks_the_bodys_exception(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error of the release is a note on the exception, and a log line."""
    fail_to_release(monkeypatch)
    with pytest.raises(Broken, match="by the body") as caught:
        execute(break_off, "job")
    assert "could not be released: the store is gone" in caught.value.__notes__[0]
    assert [r.levelname for r in caplog.records].count("ERROR") == 1


@pytest.mark.usefixtures("shedlock_in_memory")
def test_message_of_a_failed_release_that_exits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What a provider raises may have no message, and still masks nothing."""

    def release(*args: Any, **options: Any) -> NoReturn:
        raise Silent

    monkeypatch.setattr(MemoryLockProvider, "release", release)
    with pytest.raises(Broken, match="by the body") as caught:
        execute(break_off, "job")
    assert "str() raised SystemExit" in caught.value.__notes__[0]
    assert "str() raised SystemExit" in caplog.text


def test_failed_release_is_no_failure_of_the_job(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The result of a job that ended well is kept, though its lock stays held."""
    fail_to_release(monkeypatch)
    assert execute(lambda: 7, "job").value == 7
    assert "is tried again" in caplog.text


def test_failed_release_of_an_async_body_is_told_alike(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The async twins keep the body's outcome, and tell of the release."""
    fail_to_release(monkeypatch)

    async def body() -> int:
        return 7

    async def fail() -> None:
        break_off()

    assert asyncio.run(aexecute(body, "job")).value == 7
    with pytest.raises(Broken, match="by the body") as caught:
        asyncio.run(aexecute(fail, "other"))
    assert "could not be released: the store is gone" in caught.value.__notes__[0]
    assert [r.levelname for r in caplog.records].count("ERROR") == 2


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(2), GeneratorExit()])
def test_body_that_is_interrupted_releases_the_lock(error: BaseException) -> None:
    """Ctrl-C and sys.exit() leave nothing held behind, and pass unchanged."""

    def interrupt() -> NoReturn:
        raise error

    with pytest.raises(type(error)) as caught:
        execute(interrupt, "job")
    assert caught.value is error
    assert not is_held("job")


def test_store_that_fails_means_that_the_job_does_not_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without an answer nobody knows who holds the lock, so nobody runs."""

    def take(*args: Any) -> NoReturn:
        raise LockProviderError("the store is gone")

    monkeypatch.setattr(MemoryLockProvider, "acquire", take)
    with pytest.raises(LockProviderError, match="the store is gone"):
        execute(break_off, "job", wait="1h")
    with pytest.raises(LockProviderError, match="the store is gone"):
        asyncio.run(aexecute(lambda: asyncio.sleep(60), "job", wait="1h"))


def test_failed_extend_does_not_break_the_release() -> None:
    """After LockLost, handled or not, the body's own outcome counts."""

    def body() -> str:
        force_release("job")
        with pytest.raises(LockLost):
            extend_active_lock("1m")
        return "done"

    assert execute(body, "job").value == "done"


def test_reentry_runs_directly() -> None:
    """Inside its own lock a job may call itself, and the outer end releases."""
    with hold("job") as outer:
        with hold("job") as inner:
            assert inner is outer
        assert is_held("job")
    assert not is_held("job")


def test_reentry_needs_no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that calls itself a thousand times asks the store once."""
    with hold("job"):
        monkeypatch.setattr(MemoryLockProvider, "acquire", break_off)
        assert execute(lambda: 1, "job").was_executed


@override_settings(SHEDLOCK_NAMESPACE="blue")
def test_reentry_knows_the_namespace() -> None:
    """The same job is the same lock, whatever stands before its name."""
    with hold("job") as outer, hold("job") as inner:
        assert inner is outer
        assert inner.name == "blue.job"


@override_settings(SHEDLOCK_PROVIDERS=TWO_PROVIDERS)
def test_reentry_is_by_provider_and_name() -> None:
    """A lock of the same name in another store is asked for."""
    with hold("job"), hold("job", provider="second"):
        assert is_held("job", provider="second")


def test_reentry_does_not_cross_threads() -> None:
    """Another thread of the same process is somebody else."""
    results = []
    with hold("job"):
        thread = threading.Thread(
            target=lambda: results.append(execute(lambda: 1, "job").was_executed)
        )
        thread.start()
        thread.join()
    assert results == [False]


def test_lock_at_least_for_keeps_the_lock() -> None:
    """After a short run the lock stays held, with its own state."""
    execute(lambda: 1, "job", lock_at_least_for="5m", lock_at_most_for="5m")
    assert is_held("job")
    assert not execute(lambda: 1, "job").was_executed


def test_lock_at_least_for_keeps_the_lock_after_an_error() -> None:
    """A job that fails at once is not tried again by the next host."""
    with pytest.raises(Broken):
        execute(break_off, "job", lock_at_least_for="5m")
    assert is_held("job")


def test_wait_gets_the_lock_when_it_is_released() -> None:
    """With wait= a caller gets the lock soon after the holder's release."""
    lock = held_elsewhere("job")
    lock.__enter__()
    timer = threading.Timer(0.15, lambda: lock.__exit__(None, None, None))
    timer.start()
    with hold("job", wait="5m"):
        assert is_held("job")
    timer.join()


def test_wait_ends_in_a_skip() -> None:
    """When the wait is over the job is skipped as usual."""
    with held_elsewhere("job"):
        assert not execute(break_off, "job", wait="150ms").was_executed


def test_unknown_provider_is_a_clear_error() -> None:
    """A misspelt alias names those that there are."""
    with pytest.raises(InvalidLockConfiguration, match="'redis'.*has 'default'"):
        execute(break_off, "job", provider="redis")


def test_sync_execute_refuses_coroutines() -> None:
    """A coroutine would run after the release, so it is refused either way."""

    async def body() -> None: ...

    with pytest.raises(TypeError, match="'job'.*use aexecute"):
        execute(body, "job")
    with pytest.raises(TypeError, match="'job'.*after the lock is released"):
        execute(lambda: body(), "job")
    assert not is_held("job")


def test_sync_execute_refuses_any_awaitable() -> None:
    """A future, or the task of another loop, is no result either."""

    class Awaitable:
        def __await__(self) -> Iterator[None]:
            yield

    with pytest.raises(TypeError, match="'job'.*after the lock is released"):
        execute(Awaitable, "job")
    assert not is_held("job")


unlocked: list[str] = []
"""What ran without the lock."""


def generate() -> Iterator[int]:
    unlocked.append("generate")
    yield 1


async def agenerate() -> AsyncIterator[int]:
    unlocked.append("agenerate")
    yield 1


class Generates:
    def __call__(self) -> Iterator[int]:
        return (yield from generate())


@pytest.mark.parametrize(
    "task",
    [
        generate,
        agenerate,
        Generates(),
        Generates().__call__,
        functools.partial(generate),
        functools.partial(Generates()),
    ],
)
def test_generator_function_is_refused_before_it_is_called(task: Any) -> None:
    """
    A generator function is refused, even if its lock is held elsewhere.

    Its body would run after the lock's release.
    """
    with held_elsewhere("job"), pytest.raises(TypeError) as refusal:
        execute(task, "job")
    assert f"Lock 'job': a call of {task!r} only makes a gen" in str(refusal.value)
    assert "or use hold() in it" in str(refusal.value)


@pytest.mark.parametrize("make", [generate, agenerate])
def test_generator_that_a_task_returns_is_refused(make: Callable[[], Any]) -> None:
    """Whoever uses it up would do so without the lock."""

    async def body() -> Any:
        return make()

    refused = pytest.raises(TypeError, match="'job'.*generator object .* use hold()")
    with refused:
        execute(lambda: make(), "job")
    with refused:
        asyncio.run(aexecute(body, "job"))
    with refused:
        asyncio.run(aexecute(make, "job"))
    assert not is_held("job")
    assert unlocked == []


@pytest.mark.parametrize("is_async", [False, True])
def test_generator_that_has_begun_is_closed_under_the_lock(*, is_async: bool) -> None:
    """What it does at its end is still done by the holder."""
    ends: list[bool] = []

    def begin() -> Iterator[int]:
        try:
            yield 1
        finally:
            ends.append(is_held("job"))

    async def abegin() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            ends.append(is_held("job"))

    def body() -> Iterator[int]:
        generator = begin()
        next(generator)
        return generator

    async def abody() -> AsyncIterator[int]:
        generator = abegin()
        await anext(generator)
        return generator

    with pytest.raises(TypeError, match="'job'"):
        if is_async:
            asyncio.run(aexecute(abody, "job"))
        else:
            execute(body, "job")
    assert ends == [True]


def test_awaitable_that_an_async_task_returns_is_refused() -> None:
    """An await that was forgotten would let it run after the release."""

    async def body() -> None:
        unlocked.append("body")

    async def forgetful() -> Any:
        return body()

    with pytest.raises(TypeError, match="'job'.*coroutine object .* await all of it"):
        asyncio.run(aexecute(forgetful, "job"))
    assert unlocked == []


def test_generator_based_coroutine_is_awaited() -> None:
    """A generator-based coroutine runs to its end under the lock."""

    @types.coroutine
    def body() -> Iterator[None]:
        yield
        return is_held("job")

    assert asyncio.run(aexecute(body, "job")).value is True


def job() -> None:
    unlocked.append("job")


async def ajob() -> None:
    unlocked.append("ajob")


@pytest.mark.parametrize("manager", [hold, ahold])
@pytest.mark.parametrize("target", [job, ajob, generate, agenerate, Generates])
def test_hold_is_no_decorator(manager: Any, target: Any) -> None:
    """
    hold() and ahold() are no decorators.

    They would release the lock before the body of some functions.
    """
    with pytest.raises(InvalidLockConfiguration) as refusal:
        manager("job")(target)
    assert str(refusal.value).startswith(
        f"Lock 'job' on {target!r}: hold() and ahold()"
    )
    assert "Use @scheduler_lock('job')" in str(refusal.value)


@pytest.mark.parametrize("manager", [hold, ahold])
def test_hold_refuses_wrong_options_at_once(manager: Any) -> None:
    """hold() and ahold() refuse a function as the name, and wrong options, at once."""
    with pytest.raises(InvalidLockConfiguration, match="is a function, not a str"):
        manager(job)
    with pytest.raises(InvalidLockConfiguration, match="'10 minuts' is not a duration"):
        manager("job", lock_at_most_for="10 minuts")


def test_async_twins() -> None:
    """The async twins hold the lock until the body was awaited to its end."""

    async def body() -> bool:
        await asyncio.sleep(0.01)
        assert_locked()
        await current_lock().aextend("2m")
        return is_held("job")

    async def main() -> None:
        result = await aexecute(body, "job")
        assert (result.was_executed, result.value) == (True, True)
        async with ahold("job", wait="1s"):
            assert is_held("job")
        with held_elsewhere("job"):
            assert not (await aexecute(body, "job", wait="60ms")).was_executed
            with pytest.raises(LockNotAcquired):
                async with ahold("job"):
                    pytest.fail("the body must not run")

    asyncio.run(main())
    assert not is_held("job")


def test_async_tasks_of_one_process_exclude_each_other() -> None:
    """Of several tasks that want one lock, exactly one runs."""

    skipped: list[bool] = []

    async def body() -> None:
        async with patience():
            while len(skipped) < 7:
                await asyncio.sleep(0.005)

    async def run() -> bool:
        result = await aexecute(body, "job")
        if not result.was_executed:
            skipped.append(True)
        return result.was_executed

    async def main() -> list[bool]:
        return await asyncio.gather(*(run() for _ in range(8)))

    assert sorted(asyncio.run(main())) == [False] * 7 + [True]


def test_cancelled_body_releases_the_lock() -> None:
    """A job that is cancelled from outside ends as cancelled, without its lock."""

    async def main() -> None:
        task = asyncio.create_task(aexecute(lambda: asyncio.sleep(60), "job"))
        async with patience():
            while not is_held("job"):
                await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert not is_held("job")


def test_cancellation_in_a_receiver_leaves_no_lock() -> None:
    """A caller cancelled between its lock and its body leaves nothing held behind."""
    reached = asyncio.Event()

    async def receiver(**kwargs: Any) -> None:
        reached.set()
        await asyncio.sleep(60)

    async def main() -> None:
        task = asyncio.create_task(aexecute(lambda: asyncio.sleep(60), "job"))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    lock_acquired.connect(receiver)
    try:
        asyncio.run(main())
    finally:
        lock_acquired.disconnect(receiver)
    assert not is_held("job")


class SlowStep:
    """A step of the store that is not over before its caller is cancelled."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, step: Any):
        self.reached, self.go_on = threading.Event(), threading.Event()
        self.is_over = threading.Event()

        def slow(self_: MemoryLockProvider, lock: Any, **options: Any) -> Any:
            self.reached.set()
            wait_for(self.go_on.is_set)
            try:
                return step(self_, lock, **options)
            finally:
                self.is_over.set()

        monkeypatch.setattr(MemoryLockProvider, name, slow)

    async def cancel(self, body: Callable[[], Any], **options: Any) -> None:
        """Run the body under a lock, and cancel that in the middle of the step."""
        task = asyncio.create_task(aexecute(body, "job", **options))
        async with patience():
            while not self.reached.is_set():
                await asyncio.sleep(0.001)
        task.cancel()
        self.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        wait_for(self.is_over.is_set)


async def sleep() -> None:
    await asyncio.sleep(60)


def test_cancelled_acquisition_leaves_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller cancelled while the store answers leaves nothing held behind."""
    step = SlowStep(monkeypatch, "acquire", MemoryLockProvider.acquire)
    asyncio.run(step.cancel(sleep))
    assert not is_held("job")


def test_cancelled_acquisition_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick whose job never began goes back, so the next start is for it."""
    step = SlowStep(monkeypatch, "acquire", MemoryLockProvider.acquire)
    asyncio.run(step.cancel(sleep, schedule="@yearly"))
    status = status_of(get_provider(), "job")
    assert status.schedule_state.tick is None
    assert (status.job.last_run, status.job.open_run) == (None, None)
    assert execute(lambda: None, "job", schedule="@yearly").was_executed


def test_cancelled_acquisition_of_a_held_lock_spares_its_holder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A caller cancelled while the store refuses it gives back nothing of others."""
    with held_elsewhere("job"):
        step = SlowStep(monkeypatch, "acquire", MemoryLockProvider.acquire)
        asyncio.run(step.cancel(sleep))
        assert is_held("job")


def test_cancelled_acquisition_stays_cancelled_if_the_store_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An error that nobody waits for any more does not replace the cancellation."""

    def fail(*args: Any) -> NoReturn:
        raise LockProviderError("the store is gone")

    asyncio.run(SlowStep(monkeypatch, "acquire", fail).cancel(sleep))


def test_cancelled_release_is_carried_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller cancelled while its lock is given back leaves nothing held behind."""
    step = SlowStep(monkeypatch, "release", MemoryLockProvider.release)

    async def body() -> None: ...

    async def main() -> None:
        await step.cancel(body)
        while is_held("job"):
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


def test_cancelled_release_that_fails_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody waits for it any more, but the lock must not stay held."""
    real = MemoryLockProvider.release

    def fail_once(self: MemoryLockProvider, lock: Lock, **options: Any) -> NoReturn:
        monkeypatch.setattr(MemoryLockProvider, "release", real)
        raise LockProviderError("the store is gone")

    async def body() -> None: ...

    async def main() -> None:
        await SlowStep(monkeypatch, "release", fail_once).cancel(body)
        while is_held("job"):
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(main(), PATIENCE))
    assert "is tried again: the store is gone" in caplog.text


def test_end_of_the_loop_before_a_release_leaves_no_lock() -> None:
    """A release that waits for the thread of all synchronous code gets another one."""
    occupied, go_on = threading.Event(), threading.Event()

    def occupy() -> None:
        occupied.set()
        wait_for(go_on.is_set)

    async def body() -> None:
        tasks.append(asyncio.create_task(sync_to_async(occupy)()))
        assert await asyncio.to_thread(wait_for, occupied.is_set)

    async def main() -> None:
        tasks.append(asyncio.create_task(aexecute(body, "job")))
        assert await asyncio.to_thread(wait_for, occupied.is_set)
        await asyncio.sleep(0.1)  # until it waits for its release
        threading.Timer(0.1, go_on.set).start()  # or the end of the loop waits for it

    tasks: list[asyncio.Task[Any]] = []
    asyncio.run(main())
    wait_for(lambda: not is_held("job"))


@override_settings(SHEDLOCK_ENABLED=False)
def test_disabled_runs_everything_unlocked() -> None:
    """Without locks nothing is skipped, and code that asks for a lock is content."""

    async def body() -> int:
        assert_locked()
        return 1

    assert_locked()
    extend_active_lock("1m")
    with hold("job") as first, hold("job") as second:
        assert first is not second
        first.extend("1m")
        assert first.remaining() == HOUR
        first.fence()
        assert first.fencing_token == 0
        assert first.release()
    assert asyncio.run(aexecute(body, "job")).value == 1
    assert not list(get_provider().statuses())


@override_settings(SHEDLOCK_ENABLED=False)
def test_disabled_lock_is_never_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the body takes, it may go on, and extend its lock."""
    lost: list[Lock] = []

    def receiver(*, lock: Lock, **kwargs: Any) -> None:
        lost.append(lock)

    async def body() -> str:
        await asyncio.sleep(0)
        return "done"

    clock = SleepingClock()
    monkeypatch.setattr(clocks, "time", clock)
    lock_lost.connect(receiver)
    try:
        with hold("job", lock_at_most_for="1m", keep_alive=True) as lock:
            clock.sleep(3600)
            assert lock.is_active
            assert current_lock() is lock
            lock.extend("1s")
            extend_active_lock()
            clock.sleep(3600)
            assert not lock.is_lost
            assert lock.remaining() == timedelta(minutes=1)
        assert lost == []
    finally:
        lock_lost.disconnect(receiver)


class Interrupted(BaseException):
    """What a signal's handler raises."""


def interrupt_after(
    monkeypatch: pytest.MonkeyPatch, name: str, kind: type[BaseException]
) -> None:
    """Let a step of the store be interrupted once, just after it is carried out."""
    real: Any = getattr(MemoryLockProvider, name)

    def step(self: MemoryLockProvider, *args: Any, **options: Any) -> NoReturn:
        monkeypatch.setattr(MemoryLockProvider, name, real)
        real(self, *args, **options)
        raise kind

    monkeypatch.setattr(MemoryLockProvider, name, step)


@pytest.mark.parametrize("kind", [Interrupted, TimeoutError])
@pytest.mark.parametrize("wait", ["0s", "1h"])
def test_acquisition_that_is_interrupted_leaves_no_lock(
    wait: str, kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C between the store's work and its answer leaves nothing held."""
    told: list[str] = []

    def receiver(**kwargs: Any) -> None:
        told.append("of a lock that nobody has")

    interrupt_after(monkeypatch, "acquire", kind)
    for signal in (lock_acquired, lock_released, lock_lost):
        signal.connect(receiver)
    try:
        with pytest.raises(kind):
            execute(list, "job", wait=wait)
    finally:
        for signal in (lock_acquired, lock_released, lock_lost):
            signal.disconnect(receiver)
    assert not is_held("job")
    assert told == []


def test_interrupted_wait_spares_the_holder() -> None:
    """Who gave up waiting gives back nothing of others."""

    def interrupt(seconds: float) -> NoReturn:
        raise Interrupted

    request = make_request("job", {"wait": "1h"})
    with held_elsewhere("job"):
        with pytest.raises(Interrupted), attempt(request, sleep=interrupt):
            pytest.fail("the body must not run")
        assert is_held("job")
    assert not late_releases.entries


@pytest.mark.parametrize("body", [list, break_off])
def test_interrupted_release_is_carried_through(
    body: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C before the store was asked leaves nothing held, and is not lost."""
    real = MemoryLockProvider.release

    def interrupted(self: MemoryLockProvider, *args: Any, **options: Any) -> NoReturn:
        monkeypatch.setattr(MemoryLockProvider, "release", real)
        raise Interrupted

    monkeypatch.setattr(MemoryLockProvider, "release", interrupted)
    with pytest.raises(Interrupted):
        execute(body, "job")
    assert not is_held("job")


@pytest.mark.parametrize("is_nested", [False, True])
@pytest.mark.parametrize("interrupted", ["leave", "unguard"])
def test_interrupt_while_a_failing_body_leaves(
    interrupted: str, monkeypatch: pytest.MonkeyPatch, *, is_nested: bool
) -> None:
    """A failing body releases its lock and its heartbeat despite an interrupt."""
    place: Any = Body if interrupted == "leave" else executor
    real = getattr(place, interrupted)

    def interrupt(*args: Any) -> NoReturn:
        monkeypatch.setattr(place, interrupted, real)
        raise Interrupted

    def fail() -> NoReturn:
        monkeypatch.setattr(place, interrupted, interrupt)
        raise LookupError

    nested = functools.partial(execute, fail, "job")
    with pytest.raises(Interrupted):
        execute(nested if is_nested else fail, "job", keep_alive=True)
    assert not is_held("job")
    assert not get_provider("default").heartbeats.entries


class HangingRelease:
    """A release of the memory provider that hangs until it may end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.calls: list[Lock] = []
        real = MemoryLockProvider.release

        def release(provider: MemoryLockProvider, lock: Lock, **options: Any) -> bool:
            self.calls.append(lock)
            self.begun.set()
            wait_for(self.may_end.is_set)
            return real(provider, lock, **options)

        monkeypatch.setattr(MemoryLockProvider, "release", release)


async def hold_for_a_moment() -> None:
    """Acquire the lock and release it."""
    async with ahold("job"):
        pass


def close_body(task: asyncio.Task[None]) -> None:
    """End the body of the task as the garbage collector does."""
    coroutine = task.get_coro()
    assert coroutine is not None
    coroutine.close()


@pytest.mark.parametrize("ends", ["all at once", "the body first"])
def test_loop_that_is_closed_during_a_release(
    monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """The release goes on in its thread, and no other thread repeats it."""
    release = HangingRelease(monkeypatch)
    loop = asyncio.new_event_loop()
    task = loop.create_task(hold_for_a_moment())
    begun = loop.run_in_executor(None, wait_for, release.begun.is_set)
    assert loop.run_until_complete(begun)
    loop.close()
    assert is_held("job")
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    if ends == "the body first":  # the garbage collector has no order
        close_body(task)
    del task
    gc.collect()
    release.may_end.set()
    wait_for(lambda: not is_held("job") and not late_releases.entries)
    assert len(release.calls) == 1


@pytest.mark.parametrize("ends", ["all at once", "the body first"])
def test_loop_that_is_closed_before_a_release(ends: str) -> None:
    """The lock is released all the same, in another thread."""
    loop = asyncio.new_event_loop()

    async def body() -> None:
        async with ahold("job"):
            loop.stop()

    task = loop.create_task(body())
    loop.run_forever()
    loop.close()
    assert is_held("job")
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    if ends == "the body first":
        close_body(task)
        wait_for(lambda: not is_held("job"))
    del task
    gc.collect()
    wait_for(lambda: not is_held("job"))


def test_release_goes_on_in_a_running_loop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    A release in a running loop goes on although its body is closed.

    No thread repeats the release.
    """
    release = HangingRelease(monkeypatch)

    async def main() -> None:
        task = asyncio.create_task(hold_for_a_moment())
        assert await asyncio.to_thread(wait_for, release.begun.is_set)
        close_body(task)
        release.may_end.set()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.to_thread(wait_for, lambda: not is_held("job"))

    asyncio.run(main())
    assert len(release.calls) == 1
    # asyncio itself grumbles about the generator that was closed by hand.
    assert "django_shedlock" not in [record.name for record in caplog.records]


def test_interrupted_release_waits_for_no_store_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second after Ctrl-C the process goes on; the release does so in a thread."""
    real, go_on = MemoryLockProvider.release, threading.Event()
    calls: list[Lock] = []

    def release(self: MemoryLockProvider, lock: Lock, **options: Any) -> bool:
        calls.append(lock)
        if len(calls) == 1:
            raise Interrupted
        wait_for(go_on.is_set)
        return real(self, lock, **options)

    monkeypatch.setattr(MemoryLockProvider, "release", release)
    monkeypatch.setattr(executor, "INTERRUPTED_RELEASE_SECONDS", 0.05)
    with pytest.raises(Interrupted):
        execute(list, "job")
    assert is_held("job")
    go_on.set()
    wait_for(lambda: not is_held("job"))
    assert len(calls) == 2


def test_acquisition_that_surely_failed_is_not_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A store that can't be reached is not asked again and again."""

    def fail(*args: Any) -> NoReturn:
        raise LockProviderError("no connection")

    monkeypatch.setattr(MemoryLockProvider, "acquire", fail)
    with pytest.raises(LockProviderError, match="no connection"):
        execute(list, "job", lock_at_most_for="1h")
    assert not late_releases.entries


def test_acquisition_that_django_refuses_is_not_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In an event loop it sends nothing, so nobody waits or asks the store later."""
    monkeypatch.setattr(
        MemoryLockProvider, "acquire", async_unsafe("no query in a loop")(list)
    )

    async def main() -> None:
        with pytest.raises(SynchronousOnlyOperation, match="no query in a loop"):
            execute(list, "job", lock_at_most_for="1h")

    asyncio.run(main())
    assert not late_releases.entries


def uncertain(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the store take the lock so often, and lose its answer."""
    real, calls = MemoryLockProvider.acquire, []

    def take(self: MemoryLockProvider, lock: Lock) -> Any:
        taken = real(self, lock)
        calls.append(lock)
        if len(calls) > times:
            return taken
        error = LockProviderError("no answer")
        error.is_uncertain = True
        raise error

    monkeypatch.setattr(MemoryLockProvider, "acquire", take)


def test_acquisition_without_an_answer_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The job does not run, so its lock must not stay held for the whole lease."""
    uncertain(1, monkeypatch)
    with pytest.raises(LockProviderError, match="no answer"):
        execute(list, "job", lock_at_most_for="1h")
    wait_for(lambda: not is_held("job"))


def test_interrupt_before_a_lock_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock without an answer is given back even if a signal's handler raises then."""
    real = executor.release_later

    def interrupt(*args: Any, **options: Any) -> NoReturn:
        monkeypatch.setattr(executor, "release_later", real)
        raise Interrupted

    uncertain(1, monkeypatch)
    monkeypatch.setattr(executor, "release_later", interrupt)
    with pytest.raises(Interrupted):
        execute(list, "job", lock_at_most_for="1h")
    wait_for(lambda: not is_held("job"))


def test_interrupt_after_a_lock_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second interrupt does not release again what the first one has released."""
    real, releases = executor.release_later, []

    def take(self: MemoryLockProvider, lock: Lock) -> NoReturn:
        raise Interrupted

    def release(lock: Lock, *args: Any, **options: Any) -> None:
        releases.append(lock)
        real(lock, *args, **options)

    def interrupt(lock: Lock, timeout: float) -> None:
        if timeout:
            wait_for(lambda: lock not in late_releases.entries)
            raise Interrupted

    monkeypatch.setattr(MemoryLockProvider, "acquire", take)
    monkeypatch.setattr(executor, "release_later", release)
    monkeypatch.setattr(late_releases, "wait_until_done", interrupt)
    with pytest.raises(Interrupted):
        execute(list, "job", lock_at_most_for="1s")
    assert len(releases) == 1


def test_acquisition_that_arrives_late_is_given_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An acquisition that arrives after its first release is released again."""
    real, released = MemoryLockProvider.release, []
    late: list[Lock] = []

    def take(self: MemoryLockProvider, lock: Lock) -> NoReturn:
        late.append(lock)
        error = LockProviderError("no answer")
        error.is_uncertain = True
        raise error

    def release(self: MemoryLockProvider, lock: Lock, **options: Any) -> bool:
        released.append(real(self, lock, **options))
        return released[-1]

    monkeypatch.setattr(MemoryLockProvider, "release", release)
    with monkeypatch.context() as slow:
        slow.setattr(MemoryLockProvider, "acquire", take)
        with pytest.raises(LockProviderError, match="no answer"):
            execute(list, "job", lock_at_most_for="1h")
    wait_for(lambda: released)
    assert get_provider().acquire(late[0]) is None
    wait_for(lambda: not is_held("job"))
    assert released[0] is False
    end_own_count(late[0])
    assert "was not released before" not in caplog.text


def test_async_acquisition_without_an_answer_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An async acquisition whose answer is lost is released."""
    uncertain(1, monkeypatch)
    with pytest.raises(LockProviderError, match="no answer"):
        asyncio.run(aexecute(sleep, "job", lock_at_most_for="1h"))
    wait_for(lambda: not is_held("job"))


@contextmanager
def slow_receiver(*, lock_lasts: bool = False) -> Iterator[None]:
    """Let a receiver of lock_acquired take longer than the lease."""

    def receive(*, lock: Lock, **kwargs: Any) -> None:
        if lock_lasts:
            for _ in range(6):
                pass_time(lock.configuration.lock_at_most_for / 3, lock)
        else:
            end_lease(lock)

    lock_acquired.connect(receive)
    try:
        yield
    finally:
        lock_acquired.disconnect(receive)


def test_body_does_not_begin_after_the_lease() -> None:
    """Who learns before the body that the lease is over does not run it."""
    with slow_receiver(), pytest.raises(LockLost, match="'job'.*did not run"):
        execute(break_off, "job")
    assert not is_held("job")


def test_async_body_does_not_begin_after_the_lease() -> None:
    """An async body does not run if its lease ends before the body begins."""

    async def never() -> None:
        pytest.fail("the body must not run")

    with slow_receiver(), pytest.raises(LockLost, match="'job'.*did not run"):
        asyncio.run(aexecute(never, "job"))
    assert not is_held("job")


def test_lease_is_kept_alive_while_receivers_work() -> None:
    """With keep_alive, a slow receiver does not cost the lock."""
    with slow_receiver(lock_lasts=True):
        result = execute(lambda: 7, "job", lock_at_most_for="1h", keep_alive=True)
    assert result.value == 7


HOUR = timedelta(hours=1)
BUSY = LockHolder("somebody", HOUR)


def test_no_wait_gives_up_at_once() -> None:
    """Without wait= there is no second attempt."""
    assert Backoff(timedelta(0)).is_over


def test_pause_ends_with_the_holders_lease() -> None:
    """Nobody sleeps past the instant at which the lock can be had."""
    holder = LockHolder("somebody", timedelta(milliseconds=3))
    assert next_pause(Backoff(HOUR), holder) == pytest.approx(0.003)


def test_unknown_lease_is_no_busy_loop() -> None:
    """A holder of whom nothing is known is asked for after a pause, too."""
    assert (
        next_pause(Backoff(HOUR), CONTENDED) or 0
    ) >= Backoff.first_pause_seconds / 2


def test_tick_that_is_done_is_not_waited_for() -> None:
    """No waiting brings back a tick that has been run."""
    done = LockHolder("somebody", tick=datetime(2026, 1, 1, tzinfo=UTC))
    assert next_pause(Backoff(HOUR), done) is None


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SleepingClock:
    made = SleepingClock()
    for module in (executor, clocks):
        monkeypatch.setattr(module, "time", made)
    return made


def test_pause_ends_with_the_wait(clock: SleepingClock) -> None:
    """The last pause is as long as what is left of the wait."""
    short = Backoff(timedelta(milliseconds=10))
    assert next_pause(short, BUSY) == pytest.approx(0.01)
    clock.sleep(0.01)
    assert short.is_over


@pytest.mark.usefixtures("clock")
def test_waiting_is_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second of waiting takes a few attempts, not hundreds."""
    asked: list[str] = []
    real = MemoryLockProvider.acquire

    def take(self: MemoryLockProvider, lock: Lock) -> LockHolder | None:
        asked.append(lock.name)
        return real(self, lock)

    with locked_in_memory(), held_elsewhere("job"):
        monkeypatch.setattr(MemoryLockProvider, "acquire", take)
        assert not execute(lambda: 1, "job", wait="900ms").was_executed
    assert 2 <= len(asked) <= 12


def test_async_skip_asks_for_no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    An async skip without wait= does not pause.

    The pause would queue behind sync code, such as the body of the running job.
    """
    asked: list[object] = []
    monkeypatch.setattr(Backoff, "pause", lambda *given: asked.append(given))

    async def body() -> None: ...

    with locked_in_memory(), held_elsewhere("job"):
        assert not asyncio.run(aexecute(body, "job")).was_executed
        assert asked == []
        assert not asyncio.run(aexecute(body, "job", wait="1h")).was_executed
        assert len(asked) == 1


def test_async_wait_does_not_block_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one task waits for a lock, the others of its loop go on."""
    pauses: list[float] = []

    def pause(*args: Any) -> float:
        pauses.append(NEVER_SECONDS)
        return NEVER_SECONDS

    async def body() -> None: ...

    async def main() -> None:
        waiter = asyncio.create_task(aexecute(body, "job", wait="1h"))
        while not pauses and not waiter.done():
            await asyncio.sleep(0.001)
        assert pauses
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter

    monkeypatch.setattr(Backoff, "pause", pause)
    with locked_in_memory(), held_elsewhere("job"):
        begun = time.monotonic()
        asyncio.run(main())
        assert time.monotonic() - begun < NEVER_SECONDS


def interrupt(*, lock: Lock, **kwargs: Any) -> NoReturn:
    """Do what SIGTERM does while a receiver of lock_acquired runs."""
    raise SystemExit(143)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_interrupt_before_the_body_gives_the_tick_back(is_async: bool) -> None:
    """A job that is interrupted before its first instruction has not begun."""

    async def never() -> None:
        pytest.fail("the body must not run")

    lock_acquired.connect(interrupt)
    try:
        with pytest.raises(SystemExit):
            if is_async:
                asyncio.run(aexecute(never, "job", schedule="@yearly"))
            else:
                execute(break_off, "job", schedule="@yearly")
    finally:
        lock_acquired.disconnect(interrupt)
    status = status_of(get_provider(), "job")
    assert not status.state.is_in_use
    assert status.schedule_state.tick is None
    assert execute(lambda: None, "job", schedule="@yearly").was_executed
