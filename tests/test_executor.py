"""hold(), execute() and their async twins, on locks in memory."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import copy_context
from datetime import timedelta
from typing import Any, NoReturn

import pytest
from django.test import override_settings

from django_shedlock import (
    InvalidLockConfiguration,
    LockLost,
    LockNotAcquired,
    LockProviderError,
    NoActiveLock,
    aexecute,
    ahold,
    assert_locked,
    current_lock,
    execute,
    extend_active_lock,
    hold,
    locks_held,
    release_all,
)
from django_shedlock.providers import get_provider
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.signals import (
    lock_acquired,
    lock_extended,
    lock_lost,
    lock_not_acquired,
    lock_released,
)
from django_shedlock.test import free, held_elsewhere, is_held, locked_in_memory

TWO_PROVIDERS = {
    alias: {"BACKEND": "django_shedlock.providers.memory.MemoryLockProvider"}
    for alias in ("default", "second")
}


@pytest.fixture(autouse=True)
def in_memory() -> Iterator[None]:
    with locked_in_memory():
        yield


class Broken(Exception):
    """What a body raises in these tests."""


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


def test_skip_is_logged_at_info_and_prints_nothing(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Cron mails what is printed, so a skip is a line in the log only."""
    with caplog.at_level(logging.INFO, "django_shedlock"), held_elsewhere("job"):
        execute(break_off, "job")
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "'job' not acquired: held by" in caplog.text
    assert capfd.readouterr() == ("", "")


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
    def release(*args: Any) -> NoReturn:
        raise LockProviderError("the store is gone")

    monkeypatch.setattr(MemoryLockProvider, "release", release)


def test_failed_release_never_masks_the_bodys_exception(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error of the release is a note on the exception, and a log line (W4)."""
    fail_to_release(monkeypatch)
    with pytest.raises(Broken, match="by the body") as caught:
        execute(break_off, "job")
    assert "could not be released: the store is gone" in caught.value.__notes__[0]
    assert [r.levelname for r in caplog.records] == ["ERROR"]


def test_failed_release_is_no_failure_of_the_job(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The result of a job that ended well is kept, though its lock stays held."""
    fail_to_release(monkeypatch)
    assert execute(lambda: 7, "job").value == 7
    assert "stays held until its lease ends" in caplog.text


def test_failed_extend_does_not_break_the_release() -> None:
    """After LockLost, handled or not, the body's own outcome counts (W3)."""

    def body() -> str:
        free("job")
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


def test_reentry_makes_the_lock_current_again() -> None:
    """The current lock is the innermost one, also when it is held twice."""
    with hold("a") as a, hold("b") as b:
        assert current_lock() is b
        with hold("a"):
            assert current_lock() is a
        assert current_lock() is b


@override_settings(SHEDLOCK_PROVIDERS=TWO_PROVIDERS)
def test_reentry_is_by_provider_and_name() -> None:
    """A lock of the same name in another store is asked for (W12)."""
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


def test_released_lock_does_not_count_in_an_inherited_context() -> None:
    """A task that outlives the body that started it is under no lock any more."""
    with hold("job"):
        inherited = copy_context()
    with pytest.raises(NoActiveLock):
        inherited.run(assert_locked)
    with held_elsewhere("job"):
        assert not inherited.run(lambda: execute(lambda: 1, "job").was_executed)


def test_lost_lock_does_not_count_for_reentry() -> None:
    """Who lost the lock has to ask for it again."""
    with hold("job", lock_at_most_for="50ms"):
        time.sleep(0.06)
        with held_elsewhere("job"):
            assert not execute(lambda: 1, "job").was_executed


def test_no_active_lock_outside() -> None:
    """Code that needs a lock says so when it is run without one."""
    for step in (assert_locked, current_lock, extend_active_lock):
        with pytest.raises(NoActiveLock, match="under no lock"):
            step()


def test_assert_locked_after_the_lease() -> None:
    """A body that outlives its lease is told when it asks."""
    with hold("job", lock_at_most_for="50ms") as lock:
        assert_locked()
        time.sleep(0.06)
        assert lock.is_lost
        assert not lock.remaining()
        with pytest.raises(LockLost, match="'job' is no longer held by"):
            assert_locked()


def test_extend_active_lock() -> None:
    """The lease counts from now, and never gets shorter."""
    with hold("job", lock_at_most_for="1m") as lock:
        extend_active_lock("10m")
        assert lock.remaining() > timedelta(minutes=9)
        extend_active_lock("1s")
        assert lock.remaining() > timedelta(minutes=9)


@pytest.mark.parametrize("lease", [0, "-PT5S", "soon"])
def test_bad_extension_names_the_lock(lease: Any) -> None:
    """A lease that is none is refused, and the lock goes on."""
    with hold("job") as lock:
        with pytest.raises(InvalidLockConfiguration, match="'job'"):
            lock.extend(lease)
        assert_locked()


def test_lock_at_least_for_keeps_the_lock() -> None:
    """After a short run the lock stays held, with its own state."""
    execute(lambda: 1, "job", lock_at_least_for="10s", lock_at_most_for="1m")
    assert is_held("job")
    assert not execute(lambda: 1, "job").was_executed


def test_wait_gets_the_lock_when_it_is_released() -> None:
    """With wait= a caller gets the lock soon after the holder's release."""
    lock = held_elsewhere("job")
    lock.__enter__()
    timer = threading.Timer(0.15, lambda: lock.__exit__(None, None, None))
    timer.start()
    with hold("job", wait="20s"):
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

    async def body() -> None:
        await asyncio.sleep(0.1)

    async def main() -> list[bool]:
        results = await asyncio.gather(*(aexecute(body, "job") for _ in range(8)))
        return [result.was_executed for result in results]

    assert sorted(asyncio.run(main())) == [False] * 7 + [True]


def test_cancelled_body_releases_the_lock() -> None:
    """A job that is cancelled from outside ends as cancelled, without its lock."""

    async def main() -> None:
        task = asyncio.create_task(aexecute(lambda: asyncio.sleep(60), "job"))
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


def test_cancelled_acquisition_leaves_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller cancelled while the store answers leaves nothing held behind."""
    reached = threading.Event()
    take = MemoryLockProvider.take

    def slow_take(self: MemoryLockProvider, lock: Any) -> Any:
        taken = take(self, lock)
        reached.set()
        time.sleep(0.1)
        return taken

    monkeypatch.setattr(MemoryLockProvider, "take", slow_take)

    async def main() -> None:
        task = asyncio.create_task(aexecute(lambda: asyncio.sleep(60), "job"))
        while not reached.is_set():
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert not is_held("job")


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
        first.fence()
        assert first.fencing_token == 0
    assert asyncio.run(aexecute(body, "job")).value == 1
    assert not get_provider().statuses()


def test_signals_tell_the_whole_story() -> None:
    """Each step sends its signal, with the lock and what became of it."""
    story: list[tuple[str, dict[str, Any]]] = []

    def recorder(name: str) -> Callable[..., None]:
        return lambda **kwargs: story.append((name, kwargs))

    names = ("acquired", "not_acquired", "extended", "lost", "released")
    receivers = {name: recorder(name) for name in names}
    signals = [
        lock_acquired,
        lock_not_acquired,
        lock_extended,
        lock_lost,
        lock_released,
    ]
    for signal, receiver in zip(signals, receivers.values(), strict=True):
        signal.connect(receiver)
    try:
        with pytest.raises(Broken), hold("job") as lock:
            with held_elsewhere("other"):
                execute(break_off, "other")
            lock.extend("2m")
            break_off()
    finally:
        for signal, receiver in zip(signals, receivers.values(), strict=True):
            signal.disconnect(receiver)
    assert [name for name, _ in story] == [
        "acquired",
        "not_acquired",
        "extended",
        "released",
    ]
    assert story[0][1]["lock"] is lock
    assert story[0][1]["sender"] is MemoryLockProvider
    assert story[1][1]["configuration"].name == "other"
    assert story[3][1]["released"] is True
    assert isinstance(story[3][1]["exception"], Broken)


def test_raising_receiver_does_not_break_a_job() -> None:
    """A receiver's error is logged by Django, and the job goes on."""

    def receiver(**kwargs: Any) -> None:
        raise Broken("in a receiver")

    for signal in (lock_acquired, lock_released):
        signal.connect(receiver)
    try:
        assert execute(lambda: 7, "job").value == 7
    finally:
        for signal in (lock_acquired, lock_released):
            signal.disconnect(receiver)
    assert not is_held("job")


def test_lost_lock_is_told_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    """A body that overran its lease is a warning, once, and its release False (W13)."""
    lost: list[Any] = []

    def receiver(*, lock: Any, **kwargs: Any) -> None:
        lost.append(lock)

    lock_lost.connect(receiver)
    try:
        with hold("job", lock_at_most_for="50ms") as lock:
            time.sleep(0.06)
            assert lock.release() is False
    finally:
        lock_lost.disconnect(receiver)
    assert lost == [lock]
    warnings = [r for r in caplog.records if r.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "'job' lost by " in warnings[0].getMessage()


def test_extension_by_an_operator_is_learnt_at_the_release() -> None:
    """A job whose lease an operator lengthened has not lost its lock."""
    with hold("job", lock_at_most_for="50ms") as lock:
        get_provider().force_extend("job", timedelta(hours=1))
        time.sleep(0.06)
        assert lock.is_lost
        assert lock.refresh()
        assert not lock.is_lost
        assert lock.remaining() > timedelta(minutes=59)


def test_overrun_that_an_operator_extended_releases_well() -> None:
    """The release asks the store before it says that the lock was lost."""
    with hold("job", lock_at_most_for="50ms") as lock:
        get_provider().force_extend("job", timedelta(hours=1))
        time.sleep(0.06)
        assert lock.release() is True
    assert not lock.lost.is_set()


def test_locks_held_and_release_all() -> None:
    """A shutdown hook sees what this process holds, and gives it back."""
    with hold("b") as b, hold("a") as a:
        assert locks_held() == [a, b]
        assert release_all() == [a, b]
        assert not is_held("a")
        assert locks_held() == []
    assert locks_held() == []


def test_release_all_goes_on_after_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A store that fails is logged, and the shutdown goes on."""
    with hold("job"):
        fail_to_release(monkeypatch)
        assert release_all() == []
    assert "could not be released" in caplog.text


def test_forked_child_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child inherits the object, but neither the lock nor its release."""
    with hold("job") as lock:
        pid = os.getpid()
        monkeypatch.setattr(os, "getpid", lambda: pid + 1)
        assert not lock.is_active
        assert not lock.release()
        with pytest.raises(LockLost):
            lock.extend()
        with pytest.raises(NoActiveLock):
            assert_locked()
        assert locks_held() == []
        monkeypatch.undo()
        assert is_held("job")
        assert_locked()
