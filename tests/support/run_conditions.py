"""What a process may have to cope with while it is ``shedlock run``."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from django.db import connection
from django.db.backends.signals import connection_created

from django_shedlock import Lock
from django_shedlock.cli import run
from django_shedlock.locks import time_limits
from django_shedlock.locks.time_limits import TimeLimit
from django_shedlock.processes import child
from django_shedlock.processes import run as wrapper
from django_shedlock.processes.child import Child
from django_shedlock.processes.run import RunSignals
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.signals import lock_acquired, lock_released
from tests.support.statements import says

PR_SET_CHILD_SUBREAPER = 36
FAILED = "failed"
"""The line that a failed attempt to pass on a signal prints."""
LOOK_SECONDS = 0.02
PAUSES = "pauses"
"""The line that a pause prints."""
RELEASES = "releases"
"""The line that a release prints which never ends."""


def measure_guard() -> None:
    """Let the guard's coverage be measured, which needs the site's packages."""
    if "coverage" in sys.modules:
        Child.interpreter = [sys.executable]


def lack_an_interpreter() -> None:
    """Let Python's own program be gone, as in an upgrade."""
    Child.interpreter = ["/no/such/python"]


def have_no_room_for(program: str) -> None:
    """Let the host be out of processes when this program of the guard starts."""
    popen = subprocess.Popen

    def refuse(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        if program in command:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return popen(command, **options)

    child.subprocess.Popen = refuse  # type: ignore[misc, assignment]


def signal_nobody() -> None:
    """Fail to signal the command, as if that ran as root; print a line each time."""

    kill = os.kill

    def refuse(pid: int, number: int) -> None:
        if pid > 0:  # no group
            return kill(pid, number)
        print(FAILED, flush=True)
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    os.kill = refuse  # type: ignore[assignment]


def fail_to_pass_on() -> None:
    """Raise an error for each signal, after a line."""
    take = RunSignals.take

    def fail(signals: RunSignals) -> list[int]:
        if signals.received:
            print(FAILED, flush=True)
            raise RuntimeError("no signals, please")
        return take(signals)

    RunSignals.take = fail  # type: ignore[method-assign]


def lose_the_lock_while_it_starts(how: Callable[[Lock], None]) -> None:
    """Lose the lock between the start of the guard and that of the command."""
    locks: list[Lock] = []
    popen = subprocess.Popen

    def lose(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        if "become" in command:
            how(locks[0])
        return popen(command, **options)

    def note(*, lock: Lock, **kwargs: Any) -> None:
        locks.append(lock)

    lock_acquired.connect(note, weak=False)
    child.subprocess.Popen = lose  # type: ignore[misc, assignment]


def be_signalled_at_the_start(number: signal.Signals) -> None:
    """Get a signal between the start of the guard and that of the command."""
    popen = subprocess.Popen

    def signalled(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        if "become" in command:
            os.kill(os.getpid(), number)
        return popen(command, **options)

    child.subprocess.Popen = signalled  # type: ignore[misc, assignment]


def tell_of_release() -> None:
    """Print a line when the lock is released: whether the command has ended."""

    def tell(**kwargs: Any) -> None:
        try:
            os.waitpid(-1, os.WNOHANG)
            print("released before the command has ended", flush=True)
        except ChildProcessError:
            print("released after the command has ended", flush=True)

    lock_released.connect(tell, weak=False)


def be_ended_in(statement: str) -> None:
    """Get SIGTERM while the first such statement returns."""
    wrappers: list[Callable[..., Any]] = []

    def end(execute: Callable[..., Any], sql: str, *args: Any) -> Any:
        result = execute(sql, *args)
        if says(sql, statement) and end in wrappers:
            wrappers.remove(end)
            os.kill(os.getpid(), signal.SIGTERM)
        return result

    def watch(connection: Any, **kwargs: Any) -> None:
        nonlocal wrappers
        wrappers = connection.execute_wrappers
        wrappers.append(end)

    connection_created.connect(watch, weak=False)


def tell_of_pauses() -> None:
    """Print a line before each pause of the wait for a held lock."""
    sleep = RunSignals.sleep

    def telling_sleep(signals: RunSignals, seconds: float) -> None:
        print(PAUSES, flush=True)
        sleep(signals, seconds)

    RunSignals.sleep = telling_sleep  # type: ignore[method-assign]


def have_pauses_of_hours() -> None:
    """Print a line before each pause, and let time limits count two hours for it."""
    tell_of_pauses()
    sleep, uptime = RunSignals.sleep, time_limits.uptime

    def long_sleep(signals: RunSignals, seconds: float) -> None:
        time_limits.uptime = lambda: uptime() + 2 * 3600
        sleep(signals, seconds)

    RunSignals.sleep = long_sleep  # type: ignore[method-assign]


def nothing_left_once(condition: Callable[[], bool]) -> property:
    """Return a stand-in for ``TimeLimit.left`` that is 0 once the condition is true."""
    return property(lambda limit: 0.0 if condition() else LOOK_SECONDS)


def reach_time_limits_at(file: Path) -> None:
    """Let time limits be over as soon as that file is there, and not before."""
    TimeLimit.left = nothing_left_once(file.exists)  # type: ignore[method-assign]


def hang_in_release() -> None:
    """Never get the lock released; print a line when that begins."""

    def hang(*args: Any, **options: Any) -> bool:
        print(RELEASES, flush=True)
        while True:
            # Python notices a signal that comes just before a wait only after it.
            time.sleep(0.05)

    DatabaseLockProvider.release = hang  # type: ignore[method-assign]


def release_within(seconds: float) -> None:
    """Let a signal leave that time for the release."""
    RunSignals.release_timeout_seconds = seconds


def be_signalled_in_release() -> None:
    """Get SIGTERM as the lock is about to be released."""
    release = DatabaseLockProvider.release

    def signalled(provider: Any, lock: Any, /, **options: Any) -> bool:
        signal.raise_signal(signal.SIGTERM)
        return release(provider, lock, **options)

    DatabaseLockProvider.release = signalled  # type: ignore[method-assign]


def draw_the_longest() -> None:
    """Let the jitter be as long as it may be."""
    wrapper.random = SimpleNamespace(uniform=max)  # type: ignore[assignment]


def have_begun(moment: datetime) -> None:
    """Let the process have begun at this instant."""
    run.host_now = lambda: moment  # type: ignore[assignment]


def connect_again_when_acquired() -> None:
    """Be connected before, and anew as soon as the lock is acquired."""

    def connect_again(**kwargs: Any) -> None:
        connection.close()
        connection.ensure_connection()

    connection.ensure_connection()
    lock_acquired.connect(connect_again, weak=False)


def close_a_file_when_acquired() -> None:
    """Have an open file that a program would inherit, but close it before."""
    number = os.dup2(0, 50)
    lock_acquired.connect(lambda **kwargs: os.close(number), weak=False)


def have_path(path: str) -> None:
    """Look for programs there."""
    os.environ["PATH"] = path


def adopt_orphans() -> None:
    """Inherit orphans, as the first process of a container does."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    child.is_first_process = lambda: True
