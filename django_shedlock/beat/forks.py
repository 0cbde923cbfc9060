"""Run bodies in forked processes, a few at once."""

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
from typing import TypeVarTuple

from django.db import connections

from django_shedlock.clocks import uptime
from django_shedlock.processes.launcher import status_of_signal
from django_shedlock.signals import logger
from django_shedlock.sql.connections import close, private_connections

Arguments = TypeVarTuple("Arguments")

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Forks:
    """
    Runs bodies in processes that are forked from this one, at most ``most`` at once.

    So a body starts with all that this process has imported. The other bodies wait for
    their turn, in the order in which they were added. Each body has a key. It waits for
    the end of a running body with the same key, and replaces a waiting one. After
    SIGTERM or SIGINT nothing more starts. Each of these signals ends a ``wait()``.
    """

    def __init__(self, most: int):
        # The first process of a container becomes the parent of all orphans.
        self.adopts_orphans: bool = os.getpid() == 1
        self._signals = 0
        self._most = most
        self._waiting: dict[str, tuple[Callable[..., object], tuple[object, ...]]] = {}
        self._running: dict[str, BaseProcess] = {}
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._waker, False)

    @contextmanager
    def handling_signals(self) -> Iterator[None]:
        """Handle the signals while the body runs. Only the main thread can do it."""
        before = {each: signal.signal(each, self._handle) for each in ENDING_SIGNALS}
        # If this process inherited an ignored SIGCHLD, it would not see a child end.
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

    def add(
        self, key: str, body: Callable[[*Arguments], object], *arguments: *Arguments
    ) -> None:
        """Call the body with these arguments as soon as there is room."""
        self._waiting[key] = body, arguments

    def wait(self, seconds: float) -> None:
        """
        Start the bodies for which there is room, and wait.

        The wait ends after ``seconds``, and sooner at a signal or the end of a body.
        """
        for key in [key for key in self._waiting if key not in self._running]:
            if len(self._running) < self._most and not self.is_ending:
                self._start(key)
        sentinels = [process.sentinel for process in self._running.values()]
        if self._woken in connection.wait([self._woken, *sentinels], max(0, seconds)):
            os.read(self._woken, 1)
        for key, process in list(self._running.items()):
            if not process.is_alive():
                if (number := -(process.exitcode or 0)) > 0:  # memory may have run out
                    logger.error("%s was killed by signal %d.", key, number)
                process.close()
                del self._running[key]
        if self.adopts_orphans:
            ours = {process.pid for process in self._running.values()}
            how = (os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            with suppress(ChildProcessError):
                while (ended := os.waitid(*how)) and ended.si_pid not in ours:
                    os.waitpid(ended.si_pid, 0)

    def end(self, grace: timedelta) -> None:
        """
        Send SIGTERM to all bodies, and SIGKILL to those that run after the grace.

        Return when all have ended. Another signal to this process ends the grace.
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
                os.killpg(_pid_of(process), number)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        with suppress(BlockingIOError):
            os.write(self._waker, b"!")

    def _start(self, key: str) -> None:
        # The child must share neither a connection nor the threads of a pool.
        for each in connections.all(initialized_only=True):
            close(each)
            if hasattr(each, "close_pool"):
                each.close_pool()
        # Until the child has its own handlers, its signals are blocked: its parent's
        # handlers must not handle them.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)
        try:
            given = (key, *self._waiting[key], mask, get_start_method(allow_none=True))
            process = get_context("fork").Process(target=_become, args=given)
            process.start()
            with suppress(OSError):  # the child was faster
                os.setpgid(_pid_of(process), _pid_of(process))
        except OSError as error:
            logger.error("No process can be started for %r: %s", key, error)
            return
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._running[key] = process
        del self._waiting[key]


def _pid_of(process: BaseProcess) -> int:
    if process.pid is None:
        raise AssertionError(f"{process.name} was started")
    return process.pid


def _become(
    key: str,
    body: Callable[..., object],
    arguments: tuple[object, ...],
    mask: set[signal.Signals],
    start_method: str | None,
) -> None:
    # Forget the parent's functions, as multiprocessing does from Python 3.14 on.
    atexit._clear()
    # multiprocessing has set "fork" for all that the body starts.
    set_start_method(start_method, force=True)
    os.setpgid(0, 0)  # so that all that the body starts ends with it
    for number in ENDING_SIGNALS:
        signal.signal(number, _exit)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        try:
            body(*arguments)
        finally:
            connections.close_all()
    except Exception:
        logger.exception("%s failed.", key)
        sys.exit(1)
    finally:
        atexit._run_exitfuncs()
        private_connections.close_idle()


def _exit(number: int, frame: FrameType | None) -> None:
    # A second signal, such as the beat's own, must not interrupt what tidies up.
    for each in ENDING_SIGNALS:
        signal.signal(each, _ignore)
    # An exception, so that the body releases its lock.
    sys.exit(status_of_signal(number))


def _ignore(number: int, frame: FrameType | None) -> None:
    pass
