"""A program that runs under a lock, as a child of this process."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

from django_shedlock import process_groups
from django_shedlock.locks import Lock

logger = logging.getLogger("django_shedlock")
KEYS = {signal.SIGINT, getattr(signal, "SIGQUIT", None)}
"""What Ctrl-C and Ctrl-\\ send to all that runs in a terminal's foreground."""
SIGNALLED = 128
"""A shell's exit status of a program that a signal ended is that much more."""
PAUSE = 0.05
"""Seconds between two looks at what an ended command has left behind."""
LONGEST_WAIT = 60
"""Seconds after which the wait for a command begins anew."""
LAUNCHER = str(Path(__file__).with_name("launcher.py"))


class Child:
    """
    A program with this process's own standard input, output and error.

    In a terminal's foreground it shares the terminal. Elsewhere it leads a group of
    its own, and signals are for all of the group. On Linux it gets SIGTERM if this
    process is killed. Its exit status says if it can't be started: see ``launcher``.
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

        After ``end()``, what it has started has ended as well. An exception, as of a
        signal's handler, is raised only then.
        """
        try:
            status = self._wait_for_process()
            self._wait_for_group()
        except BaseException:
            self.wait()
            raise
        return status if status >= 0 else SIGNALLED - status

    def pass_on(self, number: int) -> None:
        """Send it a signal that this process got, unless its terminal has done so."""
        if not self._shares_terminal or number not in KEYS:
            self.send(number)

    def send(self, number: int) -> None:
        """Send a signal; nothing happens if it has ended, or is not ours to signal."""
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
                "Command %r, process %d, can't be sent %s, and runs on: %s",
                self._name,
                self._process.pid,
                signal.Signals(number).name,
                error,
            )

    def end(self, grace: timedelta) -> None:
        """Ask it to end, once, and kill what of it still runs after the grace."""
        with self._ending:
            if self._killing is None:
                self.send(signal.SIGTERM)
                self._killing = self._kill_after(grace)

    def close(self) -> None:
        """Wait for it, and send no more signals: its id may then be another's."""
        self.wait()
        self._is_over = True

    def _kill_after(self, grace: timedelta) -> threading.Timer:
        killing = threading.Timer(grace.total_seconds(), self.send, [signal.SIGKILL])
        killing.daemon = True
        killing.start()
        return killing

    def _wait_for_process(self) -> int:
        # With a limit it looks again and again. Without, a signal that comes just
        # before waitpid() would be handled only when the command has ended.
        while True:
            with suppress(subprocess.TimeoutExpired):
                return self._process.wait(LONGEST_WAIT)

    def _wait_for_group(self) -> None:
        killing = self._killing
        if killing is None or self._shares_terminal:
            return
        while killing.is_alive() and not process_groups.is_empty(self._process.pid):
            killing.join(PAUSE)
        killing.cancel()


@contextmanager
def ended_when_lost(lock: Lock, child: Child, grace: timedelta) -> Iterator[None]:
    """End the child, with what it has started, as soon as the lock is lost."""
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
