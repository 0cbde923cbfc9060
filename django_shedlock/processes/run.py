"""Hold a lock while a command runs, and pass signals on to the command."""

import random
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from datetime import timedelta
from enum import IntEnum
from types import FrameType
from typing import ClassVar

from django.core.management import CommandError

from django_shedlock.exceptions import LockLost, LockProviderError
from django_shedlock.execution.executor import attempt
from django_shedlock.locks.configuration import LockRequest
from django_shedlock.locks.status import CONTENDED, LockHolder
from django_shedlock.processes.child import Child, inheritable_files
from django_shedlock.processes.launcher import status_of_signal
from django_shedlock.registry.migrate import before_first_migrate


class RunStatus(IntEnum):
    """The exit statuses that ``shedlock run`` adds to those of a shell."""

    LOST = 123
    STORE_FAILED = 125


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

    ``grace`` is the time between SIGTERM and SIGKILL, if the lock is lost. ``jitter``
    is the longest random delay before the lock is acquired. If the lock is lost, the
    command is ended, and the status is ``RunStatus.LOST``. If the store fails, the
    command does not run, and the status is ``RunStatus.STORE_FAILED``.
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
                with (
                    signals.started(command, grace=grace, files=files) as child,
                    lock.watched_by(child.end),
                ):
                    if lock.is_lost:
                        child.end()
                    status = child.wait()
                # An exception, because a run whose status is not 0 has failed.
                sys.exit(RunStatus.LOST if lock.lost.is_set() else status)
    except LockLost as error:
        raise CommandError(str(error), returncode=RunStatus.LOST) from error
    except LockProviderError as error:
        text = f"{error} The command did not run."
        raise CommandError(text, returncode=RunStatus.STORE_FAILED) from error


class SignalForwarder:
    """
    Forwards this process's signals to its child.

    Before the child starts, a signal ends this process, so that the lock is released.
    This happens in a ``sleep()``, or just before the child would start. A signal's
    handler must not raise within a statement: the lock could stay held, and SQLite
    swallows the exception. If the end takes too long, a second signal ends this process
    wherever it is. After the child's end, the first signal limits the time for the
    release.
    """

    forwarded: ClassVar[Sequence[signal.Signals]] = (
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
    )
    release_timeout_seconds: ClassVar[float] = 5.0
    # An alarm just before a wait in C does not end that wait, so the alarm repeats.
    alarm_interval_seconds: ClassVar[float] = 1.0

    def __init__(self) -> None:
        self._child: Child | None = None
        self._is_starting = False
        self._is_sleeping = False
        self._received: list[int] = []

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle signals while the body runs. Only the main thread can do it."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        others = (signal.SIGALRM, signal.SIGCHLD)
        before = {each: signal.getsignal(each) for each in (*self.forwarded, *others)}
        for number in self.forwarded:
            if before[number] is not signal.SIG_IGN:  # nohup ignores SIGHUP
                signal.signal(number, self._handle)
        if before[signal.SIGCHLD] is signal.SIG_IGN:  # the child's status would be lost
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        try:
            yield
        finally:
            if signal.getsignal(signal.SIGALRM) == self._end_by_alarm:
                signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def started(
        self, command: Sequence[str], *, grace: timedelta, files: Iterable[int] = ()
    ) -> Iterator[Child]:
        """
        Start the command as a child, and wait for its end after the body.

        The body may raise: this waits all the same. See ``Child`` for the parameters.
        """
        self._is_starting = True
        try:
            self.end_if_received()
            with closing(Child(command, grace=grace, files=files)) as child:
                self._child = child
                self._is_starting = False
                while self._received:
                    child.pass_on(self._received.pop(0))
                yield child
        finally:
            self._is_starting = False

    def sleep(self, seconds: float) -> None:
        """Sleep for so long; end this process if a signal comes, or came before."""
        self._is_sleeping = True
        try:
            self.end_if_received()
            time.sleep(seconds)
        finally:
            self._is_sleeping = False

    def end_if_received(self) -> None:
        """Raise ``SystemExit`` if a signal came before there was a child."""
        if self._received:
            sys.exit(status_of_signal(self._received[0]))

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._child is not None and self._child.pass_on(number):
            return
        if self._is_sleeping or (self._received and not self._is_starting):
            sys.exit(status_of_signal(number))
        self._received.append(number)
        if self._child is not None:  # it has ended
            # An alarm, and no thread: a second signal may interrupt this handler.
            signal.signal(signal.SIGALRM, self._end_by_alarm)
            signal.setitimer(
                signal.ITIMER_REAL,
                self.release_timeout_seconds,
                self.alarm_interval_seconds,
            )

    def _end_by_alarm(self, number: int, frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)  # no alarm may interrupt the exit
        self.end_if_received()
