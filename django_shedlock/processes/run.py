"""Hold a lock while a command runs, and pass signals on to the command."""

import random
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from enum import IntEnum
from types import FrameType
from typing import ClassVar

from django.core.management import CommandError
from django.core.management.base import OutputWrapper

from django_shedlock.clocks import uptime
from django_shedlock.exceptions import LockLost, LockProviderError
from django_shedlock.execution.executor import attempt
from django_shedlock.execution.skips import show_skip
from django_shedlock.locks.configuration import LockRequest, full_name
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockHolder
from django_shedlock.locks.time_limits import TIMED_OUT_STATUS, TimeLimitExceeded
from django_shedlock.processes.child import (
    Child,
    reap_orphans,
    status_of_signal,
)
from django_shedlock.processes.guard import LOOK_INTERVAL_SECONDS, ShellStatus
from django_shedlock.processes.inheritance import (
    inheritable_files,
    open_standard_streams,
)
from django_shedlock.processes.process_signals import ProcessSignals

TERMINAL_SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
"""A terminal sends these to the whole group, so that the command has them already."""


class RunStatus(IntEnum):
    """The exit statuses that ``shedlock run`` adds to those of a shell."""

    LOST = 123
    TIMED_OUT = TIMED_OUT_STATUS
    STORE_FAILED = 125


def run_command(
    command: Sequence[str],
    request: LockRequest,
    *,
    kill_after: timedelta,
    time_limit: timedelta | None,
    jitter: timedelta,
    on_skip_exit: int,
    stderr: OutputWrapper,
    verbosity: int,
) -> int:
    """
    Return ``on_skip_exit`` if the lock is held; else exit with the command's status.

    ``jitter`` is the longest random delay before the lock is acquired. If the lock is
    lost, the command is ended, and the status is ``RunStatus.LOST``. If it runs for
    longer than ``time_limit``, it is ended, the run counts as *timed out*, and the
    status is ``RunStatus.TIMED_OUT``. In both cases it gets SIGTERM, and SIGKILL
    ``kill_after`` later. If the store fails, the command does not run, and the status
    is ``RunStatus.STORE_FAILED``. A skip is reported on ``stderr`` if that is a
    terminal, or if ``verbosity`` is 2 or more.

    The signals that this process gets are passed on at once.
    """
    open_standard_streams()
    files = inheritable_files()
    signals = RunSignals()
    try:
        with signals.handled():
            if jitter:
                signals.sleep(random.uniform(0, jitter.total_seconds()))
            with attempt(request, sleep=signals.sleep) as lock:
                if isinstance(lock, LockHolder):
                    signals.end_if_received()
                    show_skip(
                        stderr,
                        verbosity,
                        full_name(request.name),
                        lock,
                        alias=request.provider,
                        run_now="add `--force`",
                    )
                    return on_skip_exit
                with signals.passed_on():
                    lock.assert_locked()
                    try:
                        child = Child.of_program(
                            command,
                            kill_after=kill_after,
                            time_limit=time_limit,
                            files=files,
                        )
                    except (OSError, ValueError) as error:  # a full host; a null byte
                        raise CommandError(
                            f"{command[0]} can't be started: {error}",
                            returncode=ShellStatus.CANNOT_START,
                        ) from error
                    status = _supervise(child, lock, signals, kill_after)
                # An exception, because a run whose status is not 0 has failed.
                if time_limit and child.has_timed_out and not lock.is_lost:
                    raise TimeLimitExceeded(time_limit)
                sys.exit(RunStatus.LOST if lock.is_lost else status)
    except LockLost as error:
        raise CommandError(str(error), returncode=RunStatus.LOST) from error
    except LockProviderError as error:
        text = f"{error} The command did not run."
        raise CommandError(text, returncode=RunStatus.STORE_FAILED) from error


def _supervise(
    child: Child, lock: Lock, signals: "RunSignals", kill_after: timedelta
) -> int | None:
    """
    Return the exit status of the child.

    It is ended if the lock is lost, or if its time limit is over.
    """
    with closing(child):
        try:
            while child.is_running():
                if lock.is_lost:
                    child.end(kill_after)
                for number in signals.take():
                    if child.leads_group or number not in TERMINAL_SIGNALS:
                        child.send(number)
                signals.wait(min(LOOK_INTERVAL_SECONDS, child.look_within_seconds))
                reap_orphans([child])
        except BaseException:
            child.end(kill_after)  # nobody would see that the lock is lost
            raise
    return child.status


class RunSignals(ProcessSignals):
    """
    The signals of ``shedlock run``.

    Before the command starts, a signal ends this process, so that the lock is released:
    in a ``sleep()``, or just before the start. A signal's handler must not raise within
    a statement: the lock could stay held, and SQLite swallows the exception. If the end
    takes too long, a second signal ends this process wherever it is. While the command
    runs, signals are passed on to it. After its end, the first one limits the time for
    the release.
    """

    release_timeout_seconds: ClassVar[float] = 5.0

    def __init__(self) -> None:
        others = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
        super().__init__((*TERMINAL_SIGNALS, *others))
        self._has_command = False
        self._is_releasing = False

    @contextmanager
    def passed_on(self) -> Iterator[None]:
        """Keep the signals for ``take()`` while the body runs a command."""
        self._has_command = True
        try:
            self.end_if_received()
            yield
        finally:
            self._has_command, self._is_releasing = False, True
            if self.received:
                self._limit_release()

    def sleep(self, seconds: float) -> None:
        """Sleep for so long; end this process if a signal comes, or came before."""
        ends_at = uptime() + seconds
        self.end_if_received()
        while (left := ends_at - uptime()) > 0:
            self.wait(min(left, 3600))
            self.end_if_received()

    def take(self) -> list[int]:
        """Return the signals since the last call."""
        taken, self.received = self.received, []
        return taken

    def end_if_received(self) -> None:
        """Raise ``SystemExit`` if a signal has come."""
        if self.received:
            sys.exit(status_of_signal(self.received[0]))

    def note(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self.received and not self._has_command:
            if self._is_releasing:  # nothing may interrupt the exit
                self.set_alarm(0, 0)
            self.end_if_received()
        self.received.append(number)
        if self._is_releasing:
            self._limit_release()

    def _limit_release(self) -> None:
        # No thread, since a second signal may interrupt this. The alarm repeats, since
        # one just before a wait in C does not end that wait.
        self.set_alarm(self.release_timeout_seconds, 1.0)
