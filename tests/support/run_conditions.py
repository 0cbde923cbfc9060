"""What a process may have to cope with while it is ``shedlock run``."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from django.db import connection
from django.db.backends.signals import connection_created

from django_shedlock.cli import run
from django_shedlock.processes import child
from django_shedlock.processes import run as wrapper
from django_shedlock.processes.child import Child
from django_shedlock.processes.run import SignalForwarder
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.signals import lock_acquired, lock_released
from tests.support.statements import says
from tests.support.waiting import PATIENCE

PR_SET_CHILD_SUBREAPER = 36
FAILED = "failed"
"""The line that a failed attempt to pass on a signal prints."""
PAUSES = "pauses"
"""The line that a pause prints."""
RELEASES = "releases"
"""The line that a release prints which never ends."""


def measure_launcher() -> None:
    """Let the launcher's coverage be measured, which needs the site's packages."""
    if "coverage" in sys.modules:
        child.Child.interpreter = [sys.executable]


def lack_an_interpreter() -> None:
    """Let Python's own program be gone, as in an upgrade."""
    child.Child.interpreter = ["/no/such/python"]


def signal_nobody() -> None:
    """Let the launcher fail to signal the command, as if that ran as root."""
    child.Child.launcher = str(Path(__file__).with_name("unpermitted_launcher.py"))


def lose_the_launcher() -> None:
    """Let the launcher be killed before it knows that it has started the command."""
    child.Child.launcher = str(Path(__file__).with_name("dying_launcher.py"))


def fail_to_pass_on() -> None:
    """Raise an error for each signal."""

    def fail(child: Child, number: int) -> bool:
        # While print() runs, the handler of a second signal can't call it.
        os.write(1, f"{FAILED}\n".encode())
        raise RuntimeError("no signals, please")

    Child.pass_on = fail  # type: ignore[method-assign]


def send_nonsense() -> None:
    """Let the launcher fail, with a signal that there is not."""
    passed_on = Child.pass_on

    def fail(child: Child, number: int) -> bool:
        return passed_on(child, 200)

    Child.pass_on = fail  # type: ignore[method-assign]


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
    sleep = SignalForwarder.sleep

    def telling_sleep(signals: SignalForwarder, seconds: float) -> None:
        print(PAUSES, flush=True)
        sleep(signals, seconds)

    SignalForwarder.sleep = telling_sleep  # type: ignore[method-assign]


def hang_in_release() -> None:
    """Never get the lock released; print a line when that begins."""

    def hang(*args: Any, **options: Any) -> bool:
        print(RELEASES, flush=True)
        while True:
            time.sleep(PATIENCE)

    DatabaseLockProvider.release = hang  # type: ignore[method-assign]


def release_within(seconds: float) -> None:
    """Let a signal leave that time for the release."""
    wrapper.SignalForwarder.release_timeout_seconds = seconds


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


def be_child_of_adopter() -> None:
    """Go on in a child of a process that inherits orphans and waits for none."""
    adopt_orphans()
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status))
