"""Hold a lock while a command runs, and pass signals on to the command."""

import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from types import FrameType
from typing import ClassVar

from django.core.management import CommandError

from django_shedlock.exceptions import LockLost, LockProviderError
from django_shedlock.execution.executor import attempt
from django_shedlock.locks.configuration import LockRequest
from django_shedlock.locks.status import CONTENDED, LockHolder
from django_shedlock.processes.child import Child, inheritable_files
from django_shedlock.processes.launcher import SIGNAL_STATUS_BASE
from django_shedlock.registry.migrate import before_first_migrate

LOST_STATUS = 123
STORE_FAILED_STATUS = 125
FORWARDED_SIGNALS = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


def run_command(
    command: Sequence[str],
    request: LockRequest,
    *,
    grace: timedelta,
    jitter: timedelta,
    on_skip_exit: int,
) -> int:
    """
    Return ``on_skip_exit`` if the lock is held; else exit with the command's status.

    If the lock is lost, the command is ended, and the status is ``LOST_STATUS``. If
    the store fails, the command does not run, and it is ``STORE_FAILED_STATUS``.
    """
    files = inheritable_files()
    signals = SignalForwarder()
    try:
        with signals.handled():
            if jitter:
                signals.sleep(random.uniform(0, jitter.total_seconds()))
            with (
                before_first_migrate(request, signals.sleep) as goes_on,
                attempt(request, sleep=signals.sleep)
                if goes_on
                else nullcontext(CONTENDED) as lock,
            ):
                if isinstance(lock, LockHolder):
                    signals.end_if_received()
                    return on_skip_exit
                start = partial(Child, command, grace=grace, files=files)
                with signals.started(start) as child, lock.watched_by(child.end):
                    if lock.is_lost:
                        child.end()
                    status = child.wait()
                # An exception, since a run whose status is not 0 has failed.
                sys.exit(LOST_STATUS if lock.lost.is_set() else status)
    except LockLost as error:
        raise CommandError(str(error), returncode=LOST_STATUS) from error
    except LockProviderError as error:
        text = f"{error} The command did not run."
        raise CommandError(text, returncode=STORE_FAILED_STATUS) from error


class SignalForwarder:
    """
    Forwards this process's signals to its child.

    Before the child starts, a signal ends this process, so that its lock is released:
    in a ``sleep()``, or just before the child would start. A handler must not raise
    within a statement: that could leave the lock held, and SQLite swallows it. If this
    takes too long, a second signal ends this process wherever it is. After the child's
    end, the first signal limits the time for the release.
    """

    release_timeout_seconds: ClassVar[float] = 5.0
    ring_interval_seconds: ClassVar[float] = 1.0
    """A ring just before a wait in C ends no wait, so it rings again."""

    def __init__(self) -> None:
        self._child: Child | None = None
        self._is_starting = False
        self._is_sleeping = False
        self._received: list[int] = []

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle signals while the body runs; only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        others = (signal.SIGALRM, signal.SIGCHLD)
        before = {
            each: signal.getsignal(each) for each in (*FORWARDED_SIGNALS, *others)
        }
        for number in FORWARDED_SIGNALS:
            if before[number] is not signal.SIG_IGN:  # as nohup asks for
                signal.signal(number, self._handle)
        if before[signal.SIGCHLD] is signal.SIG_IGN:  # the child's status would be lost
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        try:
            yield
        finally:
            if signal.getsignal(signal.SIGALRM) == self._ring:
                signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def started(self, start: Callable[[], Child]) -> Iterator[Child]:
        """Start the child, and wait for its end after the body, whatever is raised."""
        self._is_starting = True
        try:
            self.end_if_received()
            with closing(start()) as child:
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
            sys.exit(SIGNAL_STATUS_BASE + self._received[0])

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._child is not None and self._child.pass_on(number):
            return
        if self._is_sleeping or (self._received and not self._is_starting):
            sys.exit(SIGNAL_STATUS_BASE + number)
        self._received.append(number)
        if self._child is not None:  # it has ended
            # An alarm, and no thread: a second signal may interrupt this.
            signal.signal(signal.SIGALRM, self._ring)
            signal.setitimer(
                signal.ITIMER_REAL,
                self.release_timeout_seconds,
                self.ring_interval_seconds,
            )

    def _ring(self, number: int, frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)  # it must not interrupt the exit
        self.end_if_received()
