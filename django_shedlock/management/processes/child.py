"""A program that runs under a lock, as a child of this process."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

from django_shedlock.locks.lock import Lock

logger = logging.getLogger("django_shedlock")
KEYS = {signal.SIGINT, getattr(signal, "SIGQUIT", None)}
"""Ctrl-C and Ctrl-\\ send these to all processes in a terminal's foreground."""
SIGNALLED = 128
"""A shell adds this to the number of the signal that ended a program."""
PAUSE = 0.05
"""Seconds between two checks for processes that an ended command left behind."""
LONGEST_WAIT = 60
"""Seconds after which the wait for a command starts again."""
LAUNCHER = str(Path(__file__).with_name("launcher.py"))

PROC = Path("/proc")
STAT = re.compile(rb"\d+ \(.*\) (?P<state>\w) \d+ (?P<group>\d+) ", re.DOTALL)
"""The start of a line of proc_pid_stat(5); a program's name may have any byte."""
ENDED = {b"Z", b"X"}


class Child:
    """
    A program with this process's own standard input, output and error.

    In a terminal's foreground it shares the terminal. Elsewhere it leads a group of
    its own, and signals go to the whole group. On Linux it gets SIGTERM if this process
    is killed. Its exit status tells if it could not be started: see ``launcher``.
    """

    def __init__(self, command: Sequence[str]):
        self._name = command[0]
        self._ending = threading.Lock()
        self._killing: threading.Timer | None = None
        self._is_over = False
        self._shares_terminal = _is_in_foreground()
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-I", "-S", LAUNCHER, str(os.getpid()), *command],
            process_group=None if self._shares_terminal else 0,
        )

    def wait(self) -> int:
        """
        Return its exit status as a shell does.

        After ``end()``, its whole group has ended as well. An exception, as of a
        signal's handler, is raised only after that.
        """
        try:
            status = self._wait_for_process()
            self._wait_for_group()
        except BaseException:
            self.wait()
            raise
        return status if status >= 0 else SIGNALLED - status

    def pass_on(self, number: int) -> None:
        """Send it a signal that this process got, unless its terminal did."""
        if not self._shares_terminal or number not in KEYS:
            self.send(number)

    def send(self, number: int) -> None:
        """Send it a signal, unless it has ended; log it if that is not permitted."""
        if self._is_over:
            return
        try:
            with suppress(ProcessLookupError):
                if self._shares_terminal:
                    self._process.send_signal(number)
                else:
                    os.killpg(self._process.pid, number)
        except PermissionError as error:  # it runs as another user, as sudo does
            logger.warning(
                "Command %r, process %d, can't be sent %s, so it goes on: %s",
                self._name,
                self._process.pid,
                signal.Signals(number).name,
                error,
            )

    def end(self, grace: timedelta) -> None:
        """Send SIGTERM, once, and SIGKILL to what still runs after the grace."""
        with self._ending:
            if self._killing is not None:
                return
            self.send(signal.SIGTERM)
            seconds = grace.total_seconds()
            self._killing = threading.Timer(seconds, self.send, [signal.SIGKILL])
            self._killing.daemon = True
            self._killing.start()

    def close(self) -> None:
        """Wait for it, then send no more signals: another process may get its id."""
        self.wait()
        self._is_over = True

    def _wait_for_process(self) -> int:
        # Without a timeout, a signal that comes just before waitpid() would be handled
        # only when the command has ended.
        while True:
            with suppress(subprocess.TimeoutExpired):
                return self._process.wait(LONGEST_WAIT)

    def _wait_for_group(self) -> None:
        killing = self._killing
        if killing is None or self._shares_terminal:
            return
        while killing.is_alive() and not _is_empty(self._process.pid):
            killing.join(PAUSE)
        killing.cancel()


@contextmanager
def ended_when_lost(lock: Lock, child: Child, grace: timedelta) -> Iterator[None]:
    """End the child, with all that it has started, as soon as the lock is lost."""
    with lock.watched_by(lambda: child.end(grace)):
        if lock.is_lost:
            child.end(grace)
        yield
    if lock.lost.is_set():  # perhaps when the command itself had ended
        child.end(grace)


def _is_in_foreground() -> bool:
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except (OSError, AttributeError):
        return False


def _is_empty(group: int) -> bool:
    # No other group gets this id while the group has a member, so ask only until then.
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # another user's process
        return False
    # In a container the first process may never wait for orphans: they stay as zombies.
    states = set(_states(group))
    return bool(states) and states <= ENDED


def _states(group: int) -> Iterator[bytes]:
    # Without /proc there are none, and the group counts as running.
    for path in PROC.glob("[0-9]*/stat"):
        with suppress(OSError):
            stat = STAT.match(path.read_bytes())
            if stat is not None and int(stat["group"]) == group:
                yield stat["state"]
