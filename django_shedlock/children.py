"""A program that runs under a lock, as a child of this process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import FrameType

from django_shedlock.locks import Lock

PASSED_ON = [
    getattr(signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
]
KEYS = {signal.SIGINT, getattr(signal, "SIGQUIT", None)}
"""What Ctrl-C and Ctrl-\\ send to all that runs in a terminal's foreground."""
SIGNALLED = 128
"""A shell's exit status of a program that a signal ended is that much more."""
LAUNCHER = str(Path(__file__).with_name("launcher.py"))


class Child:
    """
    A program with this process's own standard input, output and error.

    In a terminal's foreground it shares the terminal. Elsewhere it leads a group of
    its own, and signals are for all of the group. On Linux it gets SIGTERM if this
    process is killed. Its exit status says if it can't be started: see ``launcher``.
    """

    def __init__(self, command: Sequence[str]):
        self._shares_terminal = _is_in_foreground()
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-I", "-S", LAUNCHER, str(os.getpid()), *command],
            process_group=None if self._shares_terminal else 0,
        )

    def wait(self) -> int:
        """Return its exit status as a shell does."""
        status = self._process.wait()
        return status if status >= 0 else SIGNALLED - status

    def pass_on(self, number: int) -> None:
        """Send it a signal that this process got, unless its terminal has done so."""
        if not self._shares_terminal or number not in KEYS:
            self.send(number)

    def send(self, number: int) -> None:
        """Send a signal; nothing happens if it has ended."""
        with suppress(ProcessLookupError):
            if self._shares_terminal:
                self._process.send_signal(number)
            else:
                os.killpg(self._process.pid, number)

    def end(self, grace: timedelta) -> None:
        """Ask it to end, and kill it if it still runs after the grace."""
        self.send(signal.SIGTERM)
        killing = threading.Timer(grace.total_seconds(), self._kill)
        killing.daemon = True
        killing.start()

    def _kill(self) -> None:
        if self._process.poll() is None:
            self.send(signal.SIGKILL)


class Signals:
    """
    The signals that this process gets, passed on to its child.

    Before it is started, they end this process, so that its lock is released.
    """

    def __init__(self) -> None:
        self._child: Child | None = None
        self._is_starting = False
        self._pending: list[int] = []

    def start(self, command: Sequence[str]) -> Child:
        """Start the child; what comes meanwhile is for the child as well."""
        self._is_starting = True
        child = self._child = Child(command)
        for number in self._pending:
            child.pass_on(number)
        return child

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle them while the body runs; only a main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in PASSED_ON}
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:  # as nohup asks for
                signal.signal(number, self._handle)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._child is not None:
            self._child.pass_on(number)
        elif self._is_starting:
            self._pending.append(number)
        else:
            sys.exit(SIGNALLED + number)


@contextmanager
def ended_when_lost(lock: Lock, child: Child, grace: timedelta) -> Iterator[None]:
    """End the child as soon as the lock is lost in the body."""
    with lock.watched_by(lambda: child.end(grace)):
        if lock.is_lost:
            child.end(grace)
        yield


def _is_in_foreground() -> bool:
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except (OSError, AttributeError):
        return False
