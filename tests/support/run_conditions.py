"""What a process may have to cope with while it is ``shedlock run``."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from typing import Any

from django.db.backends.signals import connection_created

from django_shedlock.management.processes.forwarding import SignalForwarder
from django_shedlock.signals import lock_released

PR_SET_CHILD_SUBREAPER = 36
FAILED = "failed"
"""The line that a failed attempt to pass on a signal prints."""
PAUSES = "pauses"
"""The line that a pause prints."""


def pass_on_nothing(error: type[Exception]) -> None:
    """Fail to signal the command, as if it ran as root; tell if it ends after all."""

    def fail(group: int, number: int) -> None:
        # While print() runs, the handler of a second signal can't call it.
        os.write(1, f"{FAILED}\n".encode())
        raise error("no signals, please")

    def tell(**kwargs: Any) -> None:
        try:
            os.waitpid(-1, os.WNOHANG)
            print("released before the command has ended", flush=True)
        except ChildProcessError:
            print("released after the command has ended", flush=True)

    os.killpg = fail
    lock_released.connect(tell, weak=False)


def be_ended_in(statement: str) -> None:
    """Get SIGTERM while the first such statement returns."""
    wrappers: list[Callable[..., Any]] = []

    def end(execute: Callable[..., Any], sql: str, *args: Any) -> Any:
        result = execute(sql, *args)
        if sql.startswith(statement) and end in wrappers:
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
