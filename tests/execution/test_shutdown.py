"""The ordered end of a process, in processes that really end."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import anyio
import pytest
from asgiref.sync import async_to_sync

from django_shedlock import (
    aexecute,
    ahold,
    background,
    execute,
    hold,
    locks_held,
    shut_down,
)
from django_shedlock.background import Timetable, end_threads, resume_threads
from django_shedlock.clocks import uptime
from django_shedlock.execution import shutdown
from django_shedlock.execution.keep_alive import late_releases
from django_shedlock.execution.shutdown import exit_timeout_seconds, process_ends
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockHolder
from django_shedlock.models import LockRecord
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.testing import ais_held, is_held, locked_in_memory
from tests.execution import endings
from tests.support.paths import ROOT
from tests.support.processes import addresses
from tests.support.runs import first_line
from tests.support.servers import Server, own_server
from tests.support.threads import threads_named
from tests.support.waiting import NEVER_SECONDS, PATIENCE, STARTUP_PATIENCE, wait_for

committed = pytest.mark.django_db(transaction=True)


def start(way: str, timeout: str = f"{NEVER_SECONDS}s") -> subprocess.Popen[str]:
    """Start a process that ends in this way of ``tests.execution.endings``."""
    return subprocess.Popen(
        [sys.executable, "-m", endings.__name__, way, json.dumps(addresses()), timeout],
        cwd=ROOT,
        # Without warnings of connections that Django leaves open at the end.
        env={**os.environ, "PYTHONWARNINGS": ""},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(way: str, timeout: str = f"{NEVER_SECONDS}s") -> tuple[int, str]:
    """Return the exit status and the errors of such a process."""
    process = start(way, timeout)
    try:
        _, errors = process.communicate(timeout=STARTUP_PATIENCE)
    finally:
        process.kill()
    return process.returncode, errors


@committed
@pytest.mark.parametrize(
    ("way", "locks"),
    [
        (endings.gathered_under_a_timeout, endings.BODY_COUNT),
        (endings.in_anyio_scope, endings.BODY_COUNT),
        (endings.cancelled_often, endings.BODY_COUNT),
        (endings.left_in_the_background, endings.BODY_COUNT),
        (endings.by_async_to_sync, endings.BODY_COUNT),
        (endings.never_left, 2),
        (endings.kept_in_a_generator, 1),
        (endings.left_by_a_thread, 2),
        (endings.by_os_exit, 2),
    ],
)
def test_process_that_ends_in_good_order_holds_nothing(way: Any, locks: int) -> None:
    """Each lock of the process is released, and the process ends without a word."""
    status, errors = end(way.__name__)
    assert (status, errors) == (0, "")
    records = LockRecord.objects.all()
    assert len(records) == locks
    assert [record.name for record in records if is_held(record.name)] == []


@committed
def test_process_that_is_interrupted_holds_nothing() -> None:
    """Ctrl-C over a gather() releases the locks of its tasks."""
    status, errors = end("interrupted")
    assert status != 0
    assert errors.endswith("KeyboardInterrupt\n")
    records = LockRecord.objects.all()
    assert len(records) == endings.BODY_COUNT
    assert [record.name for record in records if is_held(record.name)] == []


@committed
def test_body_in_a_daemon_thread_keeps_its_lock() -> None:
    """The end releases no lock whose body may still run, and says so."""
    status, errors = end("in_a_daemon_thread")
    assert status == 0
    assert "Lock 'job 0': its process ends while a daemon thread runs its job" in errors
    assert is_held("job 0")


@pytest.fixture
def server() -> Iterator[Server]:
    with own_server() as made:
        yield made


@committed
@pytest.mark.servers_only
def test_store_that_is_away_at_the_end_is_waited_for(server: Server) -> None:
    """A cron job releases its lock as soon as its store is back, and then ends."""
    process = start("without_its_store")
    assert first_line(process) == "inside"
    server.stop()
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write("go on\n")
    process.stdin.flush()
    errors = process.stderr.readline()
    assert "Lock 'job 0' could not be released, and is tried again" in errors
    server.start()
    assert process.wait(PATIENCE) == 0
    process.communicate()
    wait_for(lambda: not is_held("job 0"))


@committed
@pytest.mark.servers_only
def test_store_that_stays_away_stops_no_end(server: Server) -> None:
    """After SHEDLOCK_EXIT_TIMEOUT the process ends, and says how long the lease is."""
    process = start("without_its_store", "1s")
    assert first_line(process) == "inside"
    server.stop()
    _, errors = process.communicate("go on\n", timeout=PATIENCE)
    assert process.returncode == 0
    assert "Lock 'job 0' could not be released before its process ended" in errors
    assert "It stays held for 59m" in errors
    server.start()


def test_only_locks_that_nobody_runs_under_are_released() -> None:
    """A lock that another thread is inside of goes on, with its heartbeat."""
    inside, done = threading.Event(), threading.Event()
    held: list[Lock] = []

    def run() -> None:
        with hold("of a thread", lock_at_most_for="1h") as lock:
            held.append(lock)
            inside.set()
            wait_for(done.is_set)

    with locked_in_memory():
        thread = threading.Thread(target=run)
        thread.start()
        wait_for(inside.is_set)
        left = hold("of this thread", lock_at_most_for="1h")
        left.__enter__()
        assert len(locks_held()) == 2
        shut_down()
        assert locks_held() == held
        assert not is_held("of this thread")
        left.__exit__(None, None, None)
        done.set()
        thread.join(PATIENCE)
        assert locks_held() == []


def test_loop_that_stands_between_two_runs_keeps_its_locks() -> None:
    """
    A loop that stands between two runs keeps its locks at the shutdown.

    The thread may run the loop again, and the body goes on.
    """
    stands, goes_on = threading.Event(), threading.Event()
    held: list[Lock] = []

    def run() -> None:
        async def body(inside: asyncio.Event, ends: asyncio.Event) -> None:
            async with ahold("of a loop", lock_at_most_for="1h") as lock:
                held.append(lock)
                inside.set()
                await ends.wait()

        with closing(asyncio.new_event_loop()) as loop:
            inside, ends = asyncio.Event(), asyncio.Event()
            task = loop.create_task(body(inside, ends))
            loop.run_until_complete(inside.wait())
            stands.set()
            wait_for(goes_on.is_set)
            ends.set()
            loop.run_until_complete(task)

    with locked_in_memory():
        thread = threading.Thread(target=run)
        thread.start()
        wait_for(stands.is_set)
        shut_down()
        left = locks_held()
        goes_on.set()
        thread.join(PATIENCE)
        assert held
        assert left == held
        assert locks_held() == []


def test_integrations_are_asked_to_send() -> None:
    """A receiver that fails stops no end."""
    asked = []

    def send(**kwargs: object) -> None:
        asked.append(kwargs["signal"])
        raise ConnectionError

    process_ends.connect(send)
    try:
        shut_down()
    finally:
        process_ends.disconnect(send)
    assert asked == [process_ends]


def test_wrong_timeout_is_reported(
    settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The end then has the default."""
    settings.SHEDLOCK_EXIT_TIMEOUT = "soon"
    assert exit_timeout_seconds() == 10
    assert "SHEDLOCK_EXIT_TIMEOUT is ignored: 'soon'" in caplog.text


def test_threads_end_after_the_work_that_is_due() -> None:
    """
    A timetable's thread ends after the due work, and keeps the later work.

    A new thread starts if work is added, or if the threads are resumed.
    """
    timetable, calls = Timetable("that ends", retries=False), []
    go_on = threading.Event()

    def wait() -> None:
        wait_for(go_on.is_set)

    timetable.add("first", wait)
    for key in "second", "third":
        timetable.add(key, lambda key=key: calls.append(key))
    timetable.add("in an hour", lambda: calls.append("in an hour"), uptime() + 3600)
    timetable.ask_to_end()
    go_on.set()
    timetable.join(PATIENCE)
    assert calls == ["second", "third"]
    assert not threads_named("that ends")
    assert [*timetable.entries] == ["in an hour"]
    timetable.add("again", lambda: calls.append("again"))
    timetable.wait_until_done("again", PATIENCE)
    assert calls == ["second", "third", "again"]
    end_threads(PATIENCE)
    assert not threads_named("that ends")
    resume_threads()
    assert threads_named("that ends")
    timetable.remove("in an hour")
    end_threads(PATIENCE)
    assert not threads_named("that ends")


def test_work_for_a_thread_that_has_ended_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While threads end, one adds work to another, such as the ping of a lost lock."""
    calls: list[str] = []
    asked = threading.Event()

    class Asked(Timetable):
        def join(self, timeout: float) -> None:
            super().join(timeout)
            asked.set()

    earlier, later = Asked("that ended"), Timetable("that adds")
    monkeypatch.setattr(background, "_timetables", [earlier, later])

    def add() -> None:
        wait_for(asked.is_set)
        earlier.add("ping", lambda: calls.append("ping"))

    later.add("loss", add)
    end_threads(PATIENCE)
    assert calls == ["ping"]
    assert not threads_named("that ended")


def test_work_that_hangs_delays_an_end_for_its_timeout_only() -> None:
    """The thread is left behind."""
    timetable, go_on = Timetable("that hangs", retries=False), threading.Event()
    timetable.add("hangs", lambda: go_on.wait(PATIENCE) and None)
    wait_for(lambda: timetable._heap)
    timetable.ask_to_end()
    timetable.join(0.01)
    assert threads_named("that hangs")
    go_on.set()
    wait_for(lambda: not threads_named("that hangs"))


def test_work_that_comes_while_its_thread_ends_is_done() -> None:
    """Nothing is forgotten that was added after the thread was asked to end."""
    timetable, go_on = Timetable("that goes on", retries=False), threading.Event()
    calls: list[str] = []

    def wait() -> None:
        wait_for(go_on.is_set)

    timetable.add("first", wait)
    timetable.ask_to_end()
    timetable.add("soon", lambda: calls.append("soon"), uptime() + 0.05)
    go_on.set()
    wait_for(lambda: calls)
    end_threads(PATIENCE)


def acquire_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each acquisition wait for its row for longer than its own lease."""
    acquire = DatabaseLockProvider.acquire

    def wait(self: DatabaseLockProvider, lock: Lock) -> LockHolder | None:
        holder = acquire(self, lock)
        lock.lease_end = uptime() - 1  # it counts from before the statement
        return holder

    monkeypatch.setattr(DatabaseLockProvider, "acquire", wait)


@committed
def test_wait_that_is_longer_than_the_lease_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lease begins after the wait for the row, so the job has all of it."""
    acquire_slowly(monkeypatch)
    result = execute(lambda: "ran", "job", lock_at_most_for="1h")
    assert result.value == "ran"


@committed
def test_async_wait_that_is_longer_than_the_lease_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An async job has its whole lease as well."""
    acquire_slowly(monkeypatch)

    async def body() -> str:
        return "ran"

    result = async_to_sync(aexecute)(body, "job", lock_at_most_for="1h")
    assert result.value == "ran"


class SlowRelease:
    """Lets the release of each lock in memory wait."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.go_on = threading.Event()
        self.begun = threading.Event()
        release = MemoryLockProvider.release

        def wait(provider: MemoryLockProvider, lock: Lock, **options: Any) -> bool:
            self.begun.set()
            wait_for(self.go_on.is_set)
            return release(provider, lock, **options)

        monkeypatch.setattr(MemoryLockProvider, "release", wait)


async def held_until_cancelled(inside: asyncio.Event | None = None) -> None:
    async with ahold("job", lock_at_most_for="1h"):
        if inside is not None:
            inside.set()
        await asyncio.sleep(NEVER_SECONDS)


def test_release_outlasts_cancellations(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that is cancelled again and again ends when its lock is released."""
    settings.SHEDLOCK_EXIT_TIMEOUT = NEVER_SECONDS
    slow = SlowRelease(monkeypatch)

    async def cancel_often() -> None:
        inside = asyncio.Event()
        task = asyncio.create_task(held_until_cancelled(inside))
        await inside.wait()
        try:
            while not slow.begun.is_set():
                await asyncio.sleep(0.001)
                task.cancel()
            for _ in range(10):
                task.cancel()
                await asyncio.sleep(0)
            assert not task.done()
        finally:
            slow.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not await ais_held("job")

    with locked_in_memory():
        asyncio.run(cancel_often())


def test_release_that_takes_too_long_goes_on_in_the_background(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After SHEDLOCK_EXIT_TIMEOUT a cancelled task ends before its release."""
    settings.SHEDLOCK_EXIT_TIMEOUT = 0
    slow = SlowRelease(monkeypatch)

    async def cancel_once() -> None:
        inside = asyncio.Event()
        task = asyncio.create_task(held_until_cancelled(inside))
        await inside.wait()
        task.cancel()
        await asyncio.to_thread(wait_for, slow.begun.is_set)
        task.cancel()
        try:
            with pytest.raises(asyncio.CancelledError):
                await task
            assert late_releases.entries
            # asgiref's one thread for sync code still waits.
            assert await asyncio.to_thread(is_held, "job")
        finally:
            slow.go_on.set()

    with locked_in_memory():
        asyncio.run(cancel_once())
        wait_for(lambda: not is_held("job"))
        wait_for(lambda: not late_releases.entries)


def test_release_in_a_cancelled_scope_of_anyio_keeps_no_core_busy(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a release waits, anyio does not cancel its task at each turn."""
    settings.SHEDLOCK_EXIT_TIMEOUT = NEVER_SECONDS
    slow = SlowRelease(monkeypatch)
    cancelled: list[int] = []

    async def hold_in_scope() -> None:
        task = asyncio.current_task()
        assert task is not None
        with anyio.CancelScope() as scope:
            asyncio.get_running_loop().call_later(0.01, scope.cancel)
            try:
                await held_until_cancelled()
            finally:
                cancelled.append(task.cancelling())

    async def turn() -> None:
        task = asyncio.create_task(hold_in_scope())
        await asyncio.to_thread(wait_for, slow.begun.is_set)
        for _ in range(100):
            await asyncio.sleep(0)
        slow.go_on.set()
        await task

    with locked_in_memory():
        asyncio.run(turn())
        assert not is_held("job")
    assert cancelled[0] < 10


def test_interrupt_while_releases_are_waited_for_ends_the_rest_in_order(
    settings: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Ctrl-C ends the wait only: what stays held is logged, and integrations send."""
    settings.SHEDLOCK_EXIT_TIMEOUT = 0
    slow, asked = SlowRelease(monkeypatch), []

    def interrupt(timetable: Timetable, timeout: float) -> None:
        wait_for(slow.begun.is_set)
        raise KeyboardInterrupt

    def send(**kwargs: object) -> None:
        asked.append(kwargs["signal"])

    monkeypatch.setattr(Timetable, "wait_until_empty", interrupt)
    monkeypatch.setattr(shutdown, "THREADS_TIMEOUT_SECONDS", 0.0)
    process_ends.connect(send)
    try:
        with locked_in_memory():
            left = hold("job", lock_at_most_for="1h")
            left.__enter__()
            with pytest.raises(KeyboardInterrupt):
                shut_down()
            slow.go_on.set()
            wait_for(lambda: not is_held("job"))
            left.__exit__(None, None, None)
    finally:
        process_ends.disconnect(send)
    assert asked == [process_ends]
    assert "Lock 'job' could not be released before its process ended" in caplog.text


def test_acquisition_that_outlives_its_caller_is_taken_back(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    An acquisition that outlives its cancelled caller is released.

    Its lease begins with the answer, after the lease that the caller knew.
    """
    settings.SHEDLOCK_EXIT_TIMEOUT = 0
    begun, go_on, releases = threading.Event(), threading.Event(), []
    acquire, release = MemoryLockProvider.acquire, MemoryLockProvider.release

    def wait(provider: MemoryLockProvider, lock: Lock) -> LockHolder | None:
        lock.lease_end = uptime() - 1
        begun.set()
        wait_for(go_on.is_set)
        return acquire(provider, lock)

    def note(provider: MemoryLockProvider, lock: Lock, **options: Any) -> bool:
        releases.append(lock)
        return release(provider, lock, **options)

    monkeypatch.setattr(MemoryLockProvider, "acquire", wait)
    monkeypatch.setattr(MemoryLockProvider, "release", note)

    async def cancel() -> None:
        task = asyncio.create_task(held_until_cancelled())
        await asyncio.to_thread(wait_for, begun.is_set)
        while not task.done():  # the first one lets it wait for the answer
            task.cancel()
            await asyncio.sleep(0.001)
        assert task.cancelled()

    with locked_in_memory():
        asyncio.run(cancel())
        wait_for(lambda: releases)
        go_on.set()
        wait_for(lambda: not late_releases.entries)
        assert releases[0].known_token is not None
        assert not is_held("job")


def test_cancelled_acquisition_that_fails_is_taken_back(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a provider raises, the store may have carried it out."""
    begun, go_on = threading.Event(), threading.Event()
    acquire = MemoryLockProvider.acquire

    def fail(provider: MemoryLockProvider, lock: Lock) -> None:
        begun.set()
        wait_for(go_on.is_set)
        assert acquire(provider, lock) is None
        raise RuntimeError("the answer can't be read")

    monkeypatch.setattr(MemoryLockProvider, "acquire", fail)

    async def cancel() -> None:
        task = asyncio.create_task(held_until_cancelled())
        await asyncio.to_thread(wait_for, begun.is_set)
        task.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    with locked_in_memory():
        asyncio.run(cancel())
        wait_for(lambda: not is_held("job"))
        wait_for(lambda: not late_releases.entries)
