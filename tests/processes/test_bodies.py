"""A body of Python in a fork: what it begins with, and how its process ends."""

from __future__ import annotations

import asyncio
import atexit
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest
from asgiref.sync import sync_to_async
from django.core.cache import caches
from django.core.cache.backends.base import BaseCache
from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_shedlock import hold
from django_shedlock.background import Timetable
from django_shedlock.clocks import uptime
from django_shedlock.locks.status import LockState
from django_shedlock.processes import child
from django_shedlock.processes.child import Child
from tests.support.forks import forked
from tests.support.locks import state
from tests.support.processes import Parent, worker
from tests.support.runs import is_alive
from tests.support.threads import threads_named
from tests.support.waiting import PATIENCE, patience, wait_for

pytestmark = [pytest.mark.once, pytest.mark.django_db(transaction=True)]

SHOWS_BOTH_STREAMS = """
import os, sys
from contextlib import ExitStack, closing

import django

django.setup()

from django_shedlock.processes.child import Child

sys.stdout.write("before, ")
sys.stderr = open(os.dup(2), "w", buffering=1000)
sys.stderr.write("before, ")

def body():
    print("body")
    print("body", file=sys.stderr)

with closing(Child.of_body("job", body)):
    pass
"""


def status_of(body: Callable[[], object]) -> int | None:
    """Return the exit status of a body's process."""
    with closing(Child.of_body("job", body)) as started:
        pass
    return started.status


def leave(code: object) -> NoReturn:
    sys.exit(code)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "status"), [(None, 0), (0, 0), (7, 7), (256 + 3, 3), ("no disk", 1)]
)
def test_body_that_exits(
    capfd: pytest.CaptureFixture[str], code: object, status: int
) -> None:
    """A body that exits has the exit status and the output of any Python process."""
    assert status_of(lambda: leave(code)) == status
    assert capfd.readouterr().err == ("no disk\n" if code == "no disk" else "")


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_body_that_fails_is_logged(child_log: Path, error: type[BaseException]) -> None:
    """A body that fails is logged with its exception."""

    def fail() -> None:
        raise error("no disk")

    assert status_of(fail) == 1
    assert "job failed." in child_log.read_text()
    assert f"{error.__name__}: no disk" in child_log.read_text()


@pytest.mark.parametrize("error", [None, SystemExit, ValueError, KeyboardInterrupt])
def test_lock_is_given_back(child_log: Path, error: type[BaseException] | None) -> None:
    """A body's process ends in order, however the body ends, even inside a lock."""
    left = ExitStack()

    def leave_it() -> None:
        left.enter_context(hold("job", keep_alive=True))
        if error is not None:
            raise error

    status_of(leave_it)
    assert state("job") is LockState.FREE


def test_process_that_cannot_end_in_order(
    child_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure is logged, and the parent's code does not go on in the child."""

    def fail() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(child, "shut_down", fail)
    assert status_of(bool) == 0
    assert "job: its process did not end in order." in child_log.read_text()


class Deallocated:
    """Does something in its deallocator, where Python swallows what is raised."""

    def __init__(self, work: Callable[[], object]):
        self._work = work

    def __del__(self) -> None:
        self._work()


def terminate_itself() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_signal_within_a_deallocator(tmp_path: Path) -> None:
    """A signal within a deallocator still ends the body, which releases its lock."""

    def body() -> None:
        with hold("job"):
            try:
                Deallocated(terminate_itself)
                for _ in range(3):  # also if it comes again within one
                    Deallocated(lambda: time.sleep(0.05))
                for _ in range(1000):
                    time.sleep(0.01)
            finally:
                (tmp_path / "tidied up").touch()

    assert status_of(body) == 128 + signal.SIGTERM
    assert (tmp_path / "tidied up").exists()
    assert state("job") is LockState.FREE


def test_other_errors_of_deallocators_are_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Other errors of a child's deallocators reach the inherited unraisable hook."""

    def report(unraisable: Any) -> None:
        (tmp_path / "report").write_text(repr(unraisable.exc_value))

    monkeypatch.setattr(sys, "unraisablehook", report)
    assert status_of(lambda: Deallocated(lambda: 1 / 0) and None) == 0
    assert "ZeroDivisionError" in (tmp_path / "report").read_text()


def test_signal_right_after_the_fork_waits_for_the_childs_handlers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The parent's handler does not run, and the child ends before its body."""

    def fork() -> int:
        if (pid := os_fork()) == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        return pid

    def note(who: str) -> None:
        (tmp_path / who).touch()

    os_fork = os.fork
    monkeypatch.setattr(os, "fork", fork)
    before = signal.signal(signal.SIGTERM, lambda number, frame: note("parent"))
    try:
        assert status_of(lambda: note("body")) == 128 + signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not list(tmp_path.iterdir())


def test_nothing_is_printed_twice() -> None:
    """What waits in the streams of the parent is not the child's."""
    settings = {"DJANGO_SETTINGS_MODULE": "tests.support.lean_settings"}
    ended = subprocess.run(
        [sys.executable, "-c", SHOWS_BOTH_STREAMS],
        env={**os.environ, **settings, "PYTHONWARNINGS": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout == "before, body\n"
    assert ended.stderr == "before, body\n"


def test_random_numbers_differ(capfd: pytest.CaptureFixture[str]) -> None:
    """Two bodies that begin from the same state draw different numbers."""
    for _ in range(2):
        status_of(lambda: print(random.random()))
    first, second = capfd.readouterr().out.split()
    assert first != second


def test_standard_input_is_empty(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The standard input of a body, and of what it starts, is empty."""
    reader, writer = os.pipe()
    os.write(writer, b"of the parent\n")
    os.close(writer)
    kept = os.dup(0)
    os.dup2(reader, 0)

    def body() -> None:
        print(repr(sys.stdin.read()), flush=True)
        subprocess.run(["cat"], check=True)

    try:
        status_of(body)
        assert os.read(0, 100) == b"of the parent\n"
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(reader)
    assert capfd.readouterr().out == "''\n"


def test_signals_of_the_child_do_not_wake_its_parent() -> None:
    """A signal to the child writes nothing into the wakeup pipe of its parent."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    former = signal.set_wakeup_fd(writer)
    try:
        status = status_of(lambda: signal.raise_signal(signal.SIGTERM))
    finally:
        signal.set_wakeup_fd(former)
    os.close(writer)
    assert os.read(reader, 10) == b""
    os.close(reader)
    assert status == 128 + signal.SIGTERM


def test_children_share_no_connection() -> None:
    """The parent closes its own before each fork."""
    connection.ensure_connection()
    assert status_of(bool) == 0
    assert connection.connection is None


def test_children_share_no_connection_of_a_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A child drops a cache connection that it shares, even if closing it fails."""
    closed = []

    def close(cache: BaseCache) -> NoReturn:
        closed.append(cache)
        raise OSError("no server")

    monkeypatch.setattr(BaseCache, "close", close)
    cache = caches["default"]
    assert status_of(bool) == 0
    assert closed == [cache]
    # Some clients are closed only when they are deleted.
    assert caches["default"] is not cache


def test_no_function_of_atexit_is_called(tmp_path: Path) -> None:
    """A fork that ends is not the end of the program."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    atexit.register(ours.touch)
    try:
        assert status_of(lambda: atexit.register(theirs.touch)) == 0
    finally:
        atexit.unregister(ours.touch)
    assert not ours.exists()
    assert not theirs.exists()


def test_threads_of_a_body_are_waited_for(tmp_path: Path) -> None:
    """As at the end of each process of Python, unless they are daemons."""
    file, done = tmp_path / "done", threading.Event()

    def finish() -> None:
        wait_for(done.is_set)
        file.touch()

    def body() -> None:
        threading.Thread(target=finish).start()
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        threading.Timer(0.05, done.set).start()

    assert status_of(body) == 0
    assert file.exists()


def test_async_body_of_a_process_that_was_async(tmp_path: Path) -> None:
    """asgiref's thread for synchronous calls belongs to the parent; a fork has none."""
    file = tmp_path / "done"

    def connect() -> BaseDatabaseWrapper:
        connection.ensure_connection()
        return connections["default"]

    async def body() -> None:
        async with patience():
            await sync_to_async(file.touch)()

    of_its_thread = asyncio.run(sync_to_async(connect)())
    assert of_its_thread is not connections["default"]
    assert status_of(lambda: asyncio.run(body())) == 0
    assert file.exists()
    assert of_its_thread.connection is None


def test_signal_ends_the_wait_for_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM ends the process of a body that waits for its thread."""
    ready = tmp_path / "ready"
    wait_for_threads = threading._shutdown  # type: ignore[attr-defined]

    def wait() -> None:
        ready.touch()
        wait_for_threads()

    monkeypatch.setattr(threading, "_shutdown", wait)

    def body() -> None:
        threading.Thread(target=threading.Event().wait).start()

    started = Child.of_body("job", body)
    wait_for(ready.exists)
    wait_for(
        lambda: started.send(signal.SIGTERM) and not started.is_running(), pause=0.2
    )
    started.close()
    assert started.killed_by is None


def test_all_that_a_body_started_is_ended(tmp_path: Path) -> None:
    """SIGKILL reaches what a body started, even if the body's process has ended."""
    file = tmp_path / "pid"

    def body() -> None:
        stubborn = ["sh", "-c", 'trap "" TERM; echo; exec sleep 1000']
        started = subprocess.Popen(stubborn, stdout=subprocess.PIPE)
        assert started.stdout is not None
        started.stdout.readline()  # it ignores SIGTERM by now
        file.write_text(str(started.pid))
        threading.Event().wait()

    started = Child.of_body("job", body)
    rest = int(wait_for(lambda: file.exists() and file.read_text()))
    started.end(timedelta(hours=1))
    assert wait_for(lambda: started.is_running() and started.status)
    assert started.status == 128 + signal.SIGTERM
    started.send(signal.SIGKILL)
    wait_for(lambda: not is_alive(rest))


def test_host_without_room_for_a_process() -> None:
    """A fork that fails leaves no file, no process and no blocked signal behind."""

    def begin_nothing() -> bool:
        # Root may have any number.
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
        if os.getuid() == 0:
            os.setuid(65534)

        def condition() -> tuple[set[str], set[int]]:
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
            return set(os.listdir("/dev/fd")), set(mask)  # noqa: PTH208

        connections.close_all()  # a fork closes them, which changes the open files
        before = condition()
        try:
            Child.of_body("job", bool)
        except BlockingIOError:
            with pytest.raises(ChildProcessError):
                os.waitpid(-1, os.WNOHANG)
            return condition() == before
        return False

    assert forked(begin_nothing)


def fork_after_a_lock(parent: Parent) -> tuple[int | None, list[str], list[str]]:
    """Return a body's status, the threads at its fork, and the warnings."""
    with hold("job", keep_alive=True):
        pass
    assert any(name.startswith("django_shedlock") for name in thread_names())
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        status = status_of(bool)
    return status, thread_names(), [str(each.message) for each in shown]


def thread_names() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


def test_no_threads_at_the_fork() -> None:
    """Python 3.12 and later warn of a fork in a process with threads."""
    with worker(fork_after_a_lock) as forking:
        assert forking.result() == (0, ["MainThread"], [])


def test_threads_of_the_parent_go_on_after_a_fork() -> None:
    """Work that was due later, such as a late release, is not forgotten."""
    timetable, calls = Timetable("of a parent", retries=False), []
    timetable.add("later", lambda: calls.append("later"), uptime() + 3600)
    assert status_of(bool) == 0
    assert threads_named("of a parent")
    timetable.add("later", lambda: calls.append("at once"))
    timetable.wait_until_empty(PATIENCE)
    assert calls == ["at once"]
