"""A child of this process: a program, or a fork that runs a body of Python."""

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import FrameType
from typing import ClassVar, NoReturn

from asgiref.sync import SyncToAsync
from django.core.cache import caches
from django.db import connections

from django_shedlock.background import end_threads, resume_threads, start_daemon
from django_shedlock.clocks import uptime
from django_shedlock.durations import format_duration
from django_shedlock.execution.shutdown import shut_down
from django_shedlock.locks.time_limits import (
    TimeLimit,
    TimeLimitExceeded,
    process_time_limit,
)
from django_shedlock.processes.guard import LOOK_INTERVAL_SECONDS
from django_shedlock.processes.inheritance import (
    inheritable_files,
    initial_environment,
    stream_for_program,
)
from django_shedlock.processes.process_signals import ignore
from django_shedlock.signals import logger
from django_shedlock.sql.connections import close

FORK_WAIT_SECONDS = 5.0
"""How long a fork waits for the package's threads, and for asgiref's."""
DEFAULT_KILL_AFTER = timedelta(seconds=5)
"""The time between SIGTERM and SIGKILL."""
RESEND_SECONDS = 0.01
"""How long a deallocator has to end before the signal that it swallowed comes again."""
BODY_SIGNALS = (signal.SIGTERM, signal.SIGINT)
"""These end a body of Python by ``SystemExit``."""


def status_of_signal(number: int) -> int:
    """Return the exit status of a shell for a command that this signal ended."""
    return 128 + number


class Child:
    """
    A process that this one has started, with this process's own standard streams.

    It leads a process group of its own, and signals go to that group. In a terminal
    they go to the program alone: it shares the group of this process, which may have
    other members, such as the rest of a pipe.
    """

    interpreter: ClassVar[list[str]] = [sys.executable, "-I", "-S"]
    guard: ClassVar[str] = str(Path(__file__).with_name("guard.py"))

    def __init__(
        self,
        name: str,
        pid: int,
        *,
        leads_group: bool = True,
        time_limit: TimeLimit | None = None,
        kill_after: timedelta = DEFAULT_KILL_AFTER,
    ):
        self.name = name
        self.pid = pid
        self.leads_group = leads_group
        self.status: int | None = None
        """Its exit status as a shell gives it, once ``is_running()`` sees its end."""
        self.killed_by: int | None = None
        """The signal that ended it, if one did."""
        self.has_timed_out: bool = False
        """Whether it still ran when its time limit was over, so that it was ended."""
        self._time_limit = time_limit
        self._kill_after = kill_after
        self._killing_at: float | None = None
        self._resources = ExitStack()

    @classmethod
    def of_program(
        cls,
        command: Sequence[str],
        *,
        kill_after: timedelta,
        time_limit: timedelta | None = None,
        files: Iterable[int] = (),
    ) -> "Child":
        """
        Start a program with the environment that this process was started with.

        A second process, the guard, ends it if this one dies. ``kill_after`` is the
        time between SIGTERM and SIGKILL. ``is_running()`` ends it after the
        ``time_limit``, which counts from now. ``files`` are file descriptors that the
        program inherits if they are still open. Raises ``OSError`` if the host can't
        start a process; then there is none.
        """
        environment = initial_environment()
        has_terminal = False
        # Standard input says nothing: it may be a pipe or a file.
        with suppress(OSError):
            os.close(os.open(os.ctermid(), os.O_RDONLY | os.O_NOCTTY))
            has_terminal = True
        # If a file was closed since, its number may be a connection to the store now.
        inherited = set(files).intersection(inheritable_files())
        start = [*cls.interpreter, cls.guard]
        locale = environment.get("LC_CTYPE", "")
        with ExitStack() as resources, _signals_blocked():
            reader, writer = os.pipe()
            resources.callback(os.close, writer)
            try:
                guard = subprocess.Popen(  # noqa: S603
                    [*start, "watch", str(reader), str(kill_after.total_seconds())],
                    pass_fds=[reader],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            finally:
                os.close(reader)
            # First in, last out: while the pipe's end is open, it ends nothing.
            resources.callback(guard.wait)
            resources.callback(guard.kill)
            process = subprocess.Popen(  # noqa: S603
                [*start, "become", str(writer), locale, *command],
                stdin=stream_for_program(sys.__stdin__),
                stdout=stream_for_program(sys.__stdout__),
                stderr=stream_for_program(sys.__stderr__),
                env=environment,
                pass_fds=[*inherited, writer],
                process_group=None if has_terminal else 0,
            )
            process.returncode = 0  # its end is seen here, and not there
            child = cls(
                command[0],
                process.pid,
                leads_group=not has_terminal,
                time_limit=TimeLimit.of(time_limit),
                kill_after=kill_after,
            )
            child._resources = resources.pop_all()
        return child

    @classmethod
    def of_body(
        cls,
        name: str,
        body: Callable[[], object],
        *,
        time_limit: timedelta | None = None,
        kill_after: timedelta = DEFAULT_KILL_AFTER,
    ) -> "Child":
        """
        Fork this process and call ``body`` there.

        So it starts with all that this process has imported. SIGTERM and SIGINT end it
        by ``SystemExit``. ``is_running()`` ends it after the ``time_limit``, which
        counts from now, with SIGKILL ``kill_after`` later. The run that this ends
        counts as *timed out*; if it had to be killed, its parent has to say so.
        ``name`` is for the log. Raises ``OSError`` if the host can't start a process;
        then there is none.
        """
        # A fork has none of its parent's threads, but any mutex that they hold.
        end_threads(FORK_WAIT_SECONDS)
        try:
            limit = TimeLimit.of(time_limit)
            return cls._fork(name, body, limit, kill_after)
        finally:
            with suppress(RuntimeError):  # no room for a thread
                resume_threads()

    @classmethod
    def _fork(
        cls,
        name: str,
        body: Callable[[], object],
        time_limit: TimeLimit | None,
        kill_after: timedelta,
    ) -> "Child":
        _close_connections()
        _end_thread_of_asgiref()
        _flush()  # else both would print what waits
        with _signals_blocked() as mask:
            # Until it has its own handlers, it must not run those of its parent.
            if (pid := os.fork()) == 0:
                process_time_limit.begin(time_limit)
                _run_and_exit(name, body, mask)
        with suppress(OSError):  # it was faster
            os.setpgid(pid, pid)
        return cls(name, pid, time_limit=time_limit, kill_after=kill_after)

    def is_running(self) -> bool:
        """
        Return whether it runs; after ``end()``, whether anything of its group does.

        End it if its time limit is over. Kill what still runs ``kill_after`` after its
        SIGTERM. Call it at least as often as ``look_within_seconds`` says.
        """
        if self.status is None:
            self._reap()
        self.end_if_time_is_over()
        if self._killing_at is None:
            return self.status is None
        if uptime() < self._killing_at:
            return self.send(0)
        self.send(signal.SIGKILL)
        return self.status is None

    def has_exited(self) -> bool:
        """
        Return whether the process itself has ended.

        If so, kill what it has left behind in its process group.
        """
        if self.status is not None:
            return True
        # While nobody has waited for it, no other process gets its number.
        has_ended = os.WEXITED | os.WNOHANG | os.WNOWAIT
        with suppress(ChildProcessError):
            if os.waitid(os.P_PID, self.pid, has_ended) is None:
                return False
            self.send(signal.SIGKILL)
        self._reap()
        return self.status is not None

    @property
    def look_within_seconds(self) -> float:
        """How long the next ``is_running()`` may wait; its end sends SIGCHLD."""
        if self._killing_at is not None:
            return LOOK_INTERVAL_SECONDS
        if self._time_limit is None or self.status is not None:
            return math.inf
        return self._time_limit.left

    def end_if_time_is_over(self) -> None:
        """End it if its time limit is over, unless it is ending or has ended."""
        if self._killing_at is not None or self.status is not None:
            return
        if self._time_limit is None or self._time_limit.left:
            return
        self.has_timed_out = True
        logger.warning(
            "%s has reached its time limit of %s, so its process %d gets SIGTERM, and "
            "%s later SIGKILL.",
            self.name,
            format_duration(self._time_limit.length),
            self.pid,
            format_duration(self._kill_after),
        )
        self.end(self._kill_after)

    def send(self, number: int) -> bool:
        """Send it a signal; return whether there is anything that runs."""
        if not self.leads_group and self.status is not None:
            return False
        try:
            os.kill(-self.pid if self.leads_group else self.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError as error:  # it runs as another user, as with sudo
            # If one was refused, SIGTERM was, and that is enough to know.
            if number not in {0, signal.SIGCONT, signal.SIGKILL}:
                logger.error(
                    "Command %r, process %d, can't be sent %s, so it goes on: %s",
                    self.name,
                    self.pid,
                    signal.Signals(number).name,
                    error.strerror,
                )
        return True

    def end(self, kill_after: timedelta) -> None:
        """
        Send SIGTERM once; ``is_running()`` sends SIGKILL so much later.

        If it is ending already, the earlier of both times counts.
        """
        killing_at = uptime() + kill_after.total_seconds()
        if self._killing_at is None:
            self._killing_at = killing_at
            self.send(signal.SIGTERM)
            self.send(signal.SIGCONT)  # a stopped process can't tidy up
        self._killing_at = min(self._killing_at, killing_at)

    def kill_if_due(self) -> None:
        """Send SIGKILL if it runs on for too long after its SIGTERM."""
        if self._killing_at is not None and uptime() >= self._killing_at:
            self.send(signal.SIGKILL)

    def close(self) -> None:
        """Wait for its end, and free what would end it if this process died."""
        while self.is_running():
            time.sleep(LOOK_INTERVAL_SECONDS)
        self._resources.close()

    def _reap(self) -> None:
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:  # another part of this process was faster
            self.status = 1
            return
        if pid:
            code = os.waitstatus_to_exitcode(status)
            self.killed_by = -code if code < 0 else None
            self.status = code if code >= 0 else status_of_signal(-code)


def reap_orphans(ours: Collection[Child]) -> None:
    """
    In the first process of a container, wait for orphans that have ended.

    The kernel makes it their parent, and they would stay zombies. ``is_running()``
    waits for ``ours``.
    """
    if not is_first_process():
        return
    pids = {child.pid for child in ours}
    has_ended = os.WEXITED | os.WNOHANG | os.WNOWAIT
    with suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, has_ended):
            if ended.si_pid in pids:
                break
            os.waitpid(ended.si_pid, 0)


def is_first_process() -> bool:
    """Return whether orphans become children of this process."""
    return os.getpid() == 1


@contextmanager
def _signals_blocked() -> Iterator[set[int]]:
    """Yield the signals that were blocked before."""
    mask = set(signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()))
    try:
        yield mask
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _close_connections() -> None:
    """Close this thread's connections to servers: a fork must not use them as well."""
    for each in connections.all(initialized_only=True):
        close(each)
        if hasattr(each, "close_pool"):
            each.close_pool()
    for cache in caches.all(initialized_only=True):
        with suppress(Exception):  # its server may be gone
            cache.close()
    for alias in caches:  # some clients are closed only when they are deleted
        with suppress(AttributeError):  # this thread has none
            del caches[alias]


def _end_thread_of_asgiref() -> None:
    """End the thread of asgiref's synchronous calls; a fork would wait for it."""
    former = SyncToAsync.single_thread_executor
    if former._threads:
        SyncToAsync.single_thread_executor = ThreadPoolExecutor(max_workers=1)
        with suppress(Exception):
            former.submit(connections.close_all).result(FORK_WAIT_SECONDS)
        former.shutdown(wait=False)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # it may be closed
            stream.flush()


def _run_and_exit(name: str, body: Callable[[], object], mask: set[int]) -> NoReturn:
    status = 1
    try:
        _renew()
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            try:
                body()
            finally:
                # As each process of Python, it waits for its threads.
                threading._shutdown()  # type: ignore[attr-defined]
                _ignore_signals()
            status = 0
        except SystemExit as error:
            status = _status_of(error)
        except BaseException:
            logger.exception("%s failed.", name)
        connections.close_all()
        shut_down()
    except BaseException:
        logger.exception("%s: its process did not end in order.", name)
    finally:
        _flush()
        os._exit(status)


def _renew() -> None:
    """Be a process of its own: Python itself renews its mutexes and random numbers."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in BODY_SIGNALS:
        signal.signal(number, _exit)
    sys.unraisablehook = partial(_exit_later, sys.unraisablehook)
    os.setpgid(0, 0)
    # The standard input is its parent's.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115


def _exit(number: int, frame: FrameType | None) -> None:
    # A second signal, such as the beat's own, must not interrupt what tidies up.
    _ignore_signals()
    # An exception, so that the body releases its lock.
    if number == signal.SIGTERM:
        process_time_limit.raise_if_over()
    sys.exit(status_of_signal(number))


def _exit_later(
    otherwise: Callable[["sys.UnraisableHookArgs"], object],
    unraisable: "sys.UnraisableHookArgs",
) -> None:
    """
    Send a signal again if a deallocator has swallowed what its handler raised.

    The garbage collector may call one within any line of the body.
    """
    error = unraisable.exc_value
    for number in BODY_SIGNALS:
        if _was_raised_for(number, error):
            signal.signal(number, _exit)
            # Sent from here, it would be handled, and swallowed, within this hook.
            start_daemon("signal", partial(_send_soon, number))
            return
    otherwise(unraisable)


def _was_raised_for(number: int, error: BaseException | None) -> bool:
    if isinstance(error, TimeLimitExceeded):
        return number == signal.SIGTERM
    return isinstance(error, SystemExit) and error.code == status_of_signal(number)


def _send_soon(number: int) -> None:
    time.sleep(RESEND_SECONDS)
    os.kill(os.getpid(), number)


def _ignore_signals() -> None:
    for number in BODY_SIGNALS:
        signal.signal(number, ignore)


def _status_of(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    sys.stderr.write(f"{error.code}\n")
    return 1
