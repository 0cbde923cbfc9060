"""The signals that a process gets while it runs a child."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from django_shedlock.children import SIGNALLED, Child

PASSED_ON = [
    getattr(signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
]


class Signals:
    """
    The signals that this process gets, passed on to its child.

    Before it is started, they end this process, so that its lock is released: after a
    ``sleep()``, or else before the child would start. What a handler raises within a
    statement could leave its lock held, or be lost: SQLite swallows it. Where that
    lasts too long, a second signal ends this process wherever it is.
    """

    def __init__(self) -> None:
        self._child: Child | None = None
        self._is_starting = False
        self._received: list[int] = []

    @contextmanager
    def started(self, command: Sequence[str]) -> Iterator[Child]:
        """
        Start the child; what comes meanwhile is for the child as well.

        Whatever is raised, it has ended when the body has.
        """
        self._is_starting = True
        self.end_if_received()
        child = self._child = Child(command)
        try:
            for number in self._received:
                child.pass_on(number)
            yield child
        finally:
            child.close()

    def sleep(self, seconds: float) -> None:
        """Sleep; afterwards, end this process if it has been told to."""
        time.sleep(seconds)
        self.end_if_received()

    def end_if_received(self) -> None:
        """Raise ``SystemExit`` if a signal came before there was a child."""
        if self._received:
            sys.exit(SIGNALLED + self._received[0])

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
            with _statuses_kept():
                yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._child is not None:
            self._child.pass_on(number)
        elif self._is_starting or not self._received:
            self._received.append(number)
        else:
            sys.exit(SIGNALLED + number)


@contextmanager
def _statuses_kept() -> Iterator[None]:
    """Let the kernel keep the exit statuses of children, whatever was inherited."""
    number = getattr(signal, "SIGCHLD", None)
    if number is None or signal.getsignal(number) is not signal.SIG_IGN:
        yield
        return
    # For the command, too: it inherits this, and may have children of its own.
    signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(number, signal.SIG_IGN)
