"""Forward the signals that a process gets to the child that it runs."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from types import FrameType

from django_shedlock.wrapper.child import Child, Program
from django_shedlock.wrapper.launcher import SIGNALLED

PASSED_ON = [
    getattr(signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
]
LONGEST_RELEASE = 5.0
"""Seconds after which a signal ends the release of a lock."""
AGAIN = 1.0
"""Seconds until it rings again: a ring just before a wait in C ends no wait."""
SOON = 0.001
"""Seconds until an alarm rings that was due meanwhile."""


class SignalForwarder:
    """
    Forwards this process's signals to its child.

    Before the child starts, a signal ends this process, so that its lock is released:
    in a ``sleep()``, or just before the child would start. A handler must not raise
    within a statement: that could leave the lock held, and SQLite swallows it. If this
    takes too long, a second signal ends this process wherever it is. After the child's
    end the first signal counts twice if the lock is not released soon.
    """

    def __init__(self) -> None:
        self._child: Child | None = None
        self._is_starting = False
        self._is_sleeping = False
        self._received: list[int] = []
        self._restore_alarm: Callable[[], None] = lambda: None

    @contextmanager
    def started(self, program: Program) -> Iterator[Child]:
        """Start the child, and wait for its end after the body, whatever is raised."""
        self._is_starting = True
        try:
            self.end_if_received()
            with closing(Child(program)) as child:
                self._child = child
                self._is_starting = False
                while self._received:
                    child.pass_on(self._received.pop(0))
                yield child
        finally:
            self._is_starting = False

    def sleep(self, seconds: float) -> None:
        """Sleep; end this process if a signal comes, or came before."""
        self._is_sleeping = True
        try:
            self.end_if_received()
            time.sleep(seconds)
        finally:
            self._is_sleeping = False

    def end_if_received(self) -> None:
        """Raise ``SystemExit`` if a signal came before there was a child."""
        if self._received:
            sys.exit(SIGNALLED + self._received[0])

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle signals while the body runs; only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in PASSED_ON}
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:  # as nohup asks for
                signal.signal(number, self._handle)
        try:
            with _statuses_kept():
                yield
        finally:
            self._restore_alarm()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._child is not None and self._child.pass_on(number):
            return
        if self._is_sleeping or (self._received and not self._is_starting):
            sys.exit(SIGNALLED + number)
        self._received.append(number)
        if self._child is not None:
            # No thread: a second signal may interrupt this.
            self._restore_alarm = _alarmed(LONGEST_RELEASE, self.end_if_received)


def _alarmed(seconds: float, call: Callable[[], None]) -> Callable[[], None]:
    # Return what restores the process's own alarm.
    def ring(number: int, frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        call()

    begun = time.monotonic()
    handler = signal.signal(signal.SIGALRM, ring)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)

    def restore() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:
            rest = max(left - (time.monotonic() - begun), SOON)
            signal.setitimer(signal.ITIMER_REAL, rest, interval)

    return restore


@contextmanager
def _statuses_kept() -> Iterator[None]:
    """Let the kernel keep the exit statuses of children, even if SIGCHLD is ignored."""
    number = getattr(signal, "SIGCHLD", None)
    if number is None or signal.getsignal(number) is not signal.SIG_IGN:
        yield
        return
    # The command inherits this, and may have children of its own.
    signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(number, signal.SIG_IGN)
