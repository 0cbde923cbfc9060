"""Bodies that run in processes of their own, a few at once."""

import atexit
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from multiprocessing import connection, get_context, get_start_method, set_start_method
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

from django.db import connections

from django_shedlock.background import closing
from django_shedlock.clocks import uptime
from django_shedlock.processes.launcher import SIGNAL_STATUS_BASE
from django_shedlock.signals import logger
from django_shedlock.sql.connections import close, private_connections

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT)
FIRST_PROCESS_ID = 1
"""In a container this process may have it."""


class Forks:
    """
    Runs bodies in processes that are forked from this one, ``most`` at once.

    So a body starts with all that this process has imported. The others wait for their
    turn, in the order in which they came. Each has a key: it waits for the end of one
    with the same key, and replaces one that waits. After SIGTERM or SIGINT nothing
    starts; each of them ends a ``wait()``.
    """

    def __init__(self, most: int):
        self._signals = 0
        self._most = most
        self._waiting: dict[str, Callable[[], object]] = {}
        self._running: dict[str, BaseProcess] = {}
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._waker, False)

    @contextmanager
    def handling_signals(self) -> Iterator[None]:
        """Handle the signals while the body runs, in the main thread."""
        before = {each: signal.signal(each, self._handle) for each in ENDING_SIGNALS}
        # Where its parent ignored it, nobody could see a child end.
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(self._woken)
            os.close(self._waker)

    @property
    def is_ending(self) -> bool:
        """Whether a signal has come."""
        return self._signals > 0

    def add(self, key: str, body: Callable[[], object]) -> None:
        """Run the body as soon as there is room."""
        self._waiting[key] = body

    def wait(self, seconds: float) -> None:
        """Start what there is room for; wait for a signal, an end, or so long."""
        for key in [key for key in self._waiting if key not in self._running]:
            if len(self._running) < self._most and not self.is_ending:
                self._start(key, self._waiting[key])
        sentinels = [process.sentinel for process in self._running.values()]
        if self._woken in connection.wait([self._woken, *sentinels], max(0, seconds)):
            os.read(self._woken, 1)
        for key, process in list(self._running.items()):
            if not process.is_alive():
                if (number := -(process.exitcode or 0)) > 0:  # as for want of memory
                    logger.error("%s was killed by signal %d.", key, number)
                process.close()
                del self._running[key]
        if os.getpid() == FIRST_PROCESS_ID:  # orphans of bodies have become its own
            ours = {process.pid for process in self._running.values()}
            how = (os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            with suppress(ChildProcessError):
                while (ended := os.waitid(*how)) and ended.si_pid not in ours:
                    os.waitpid(ended.si_pid, 0)

    def end(self, grace: timedelta) -> None:
        """
        Send SIGTERM to all, and SIGKILL to what still runs after the grace.

        Another signal ends the grace.
        """
        self._waiting.clear()
        before, killing_at = self._signals, uptime() + grace.total_seconds()
        self._send(signal.SIGTERM)
        while self._running and self._signals == before and uptime() < killing_at:
            self.wait(killing_at - uptime())
        self._send(signal.SIGKILL)
        while self._running:
            self.wait(1)

    def _send(self, number: int) -> None:
        for process in self._running.values():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid or 0, number)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        with suppress(BlockingIOError):
            os.write(self._waker, b"!")

    def _start(self, key: str, body: Callable[[], object]) -> None:
        # The child must not share a connection, nor the threads of a pool.
        for each in connections.all(initialized_only=True):
            close(each)
            if hasattr(each, "close_pool"):
                each.close_pool()
        # Nor take a signal for its parent's before it has handlers of its own.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)
        try:
            given = (key, body, mask, get_start_method(allow_none=True))
            process: Any = get_context("fork").Process(target=_become, args=given)
            process.start()
            with suppress(OSError):  # the child was faster
                os.setpgid(process.pid, process.pid)
        except OSError as error:
            logger.error("No process can be started for %r: %s", key, error)
            return
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._running[key] = process
        del self._waiting[key]


def _become(
    key: str,
    body: Callable[[], object],
    mask: set[signal.Signals],
    start_method: str | None,
) -> None:
    atexit._clear()  # those of the parent: as multiprocessing does from 3.14 on
    # multiprocessing has set "fork" for all that the body starts.
    set_start_method(start_method, force=True)
    os.setpgid(0, 0)  # so that all that it starts ends with it
    for number in ENDING_SIGNALS:
        signal.signal(number, _exit)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        closing(body)
    except Exception:
        logger.exception("%s failed.", key)
        sys.exit(1)
    finally:
        atexit._run_exitfuncs()
        private_connections.close_idle()


def _exit(number: int, frame: FrameType | None) -> None:
    # Once: a signal to this process and the beat must not interrupt what tidies up.
    for each in ENDING_SIGNALS:
        signal.signal(each, _ignore)
    # An exception, so that the body releases its lock.
    sys.exit(SIGNAL_STATUS_BASE + number)


def _ignore(number: int, frame: FrameType | None) -> None:
    pass
