"""The package's own threads: daemons, each of which closes its own connections."""

import asyncio
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from contextvars import Context
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any, NamedTuple, TypeVar
from weakref import WeakSet

from django.db import connections

from django_shedlock.clocks import uptime
from django_shedlock.forking import renewed_in_child
from django_shedlock.mutexes import Mutex
from django_shedlock.signals import logger

T = TypeVar("T")


def start_daemon(name: str, work: Callable[[], object]) -> threading.Thread:
    """
    Return a thread that was started with ``work``, in a context of its own.

    The thread may live long and serve other callers. In a free-threaded Python it would
    otherwise keep what its first caller had in the context.
    """
    thread = threading.Thread(
        target=Context().run, args=[work], name=f"django_shedlock {name}", daemon=True
    )
    thread.start()
    return thread


def run_in_background(work: Callable[[], T]) -> Future[T]:
    """Call ``work`` in a thread of its own; ``RuntimeError`` if none can be started."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # its thread has nothing else to do
            future.set_exception(error)
        finally:
            connections.close_all()

    start_daemon("background", run)
    return future


def outside_event_loop(work: Callable[[], T]) -> T:
    """
    Return what ``work`` returns, called in another thread if an event loop runs here.

    Django refuses to query a database in the thread of an event loop.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(max_workers=1) as other_thread:
        return other_thread.submit(closing, work).result()


def closing(work: Callable[[], T]) -> T:
    """Return what ``work`` returns, and close this thread's connections after it."""
    try:
        return work()
    finally:
        connections.close_all()


Work = Callable[[], float | None]
"""Returns when it is due again, by ``uptime()``; ``None`` if never."""


class TimedWork(NamedTuple):
    """Work of a timetable, in the order in which it is due, and then was added."""

    due: float
    number: int
    key: Hashable
    work: Work


_timetables: "WeakSet[Timetable]" = WeakSet()


class Timetable:
    """
    Calls work as soon as it is due, one after the other, in one daemon thread.

    The thread starts with the first work, and ends when it had none for a while, or
    when ``end_threads()`` asks it to. It keeps no connection meanwhile. Nothing else
    ends it, whatever is raised. Work that raises is called again soon, if it
    ``retries``.
    """

    watch_interval_seconds: float = 1.0
    """Waits stand still in a suspended host, so none is longer than this."""
    idle_seconds: float = 1.0
    """A start costs more than a lock, so the thread waits for more work."""
    retry_seconds: float = 1.0
    ends_last: bool = False
    """Whether it serves the work of other timetables until these have ended."""

    def __init__(self, name: str, *, retries: bool = True):
        self.name = name
        self._retries = retries
        self.forget()
        _timetables.add(renewed_in_child(self))

    def forget(self) -> None:
        """Forget the work: a forked child must not do its parent's."""
        # A `with` of the mutex, since a signal's handler may raise in a condition's.
        self._mutex = Mutex()
        self._changed = threading.Condition(self._mutex)
        self._done = threading.Condition(self._mutex)
        self.entries: dict[Any, TimedWork] = {}
        self._heap: list[TimedWork] = []
        """The entries by time, and some that were removed or replaced since."""
        self._numbers = count()
        self._thread: threading.Thread | None = None
        self._is_over = False  # the thread does no more work
        self._is_ending = False
        self._looks_at = 0.0  # when the thread, which waits, does so next

    def add(self, key: Hashable, work: Work, due: float = 0) -> None:
        """
        Call ``work`` when it is due; it replaces earlier work with this key.

        Raises ``RuntimeError`` if no thread can be started; then nothing is added.
        """
        with self._mutex:
            self._start_thread()
            self._put(key, work, due)

    def resume(self) -> None:
        """Start the thread again if it was ended, and has work left."""
        with self._mutex:
            if self.entries:
                self._start_thread()

    def _start_thread(self) -> None:
        if self._thread is None or self._is_over or not self._thread.is_alive():
            # It waits for the mutex, and then finds the work.
            self._thread = start_daemon(self.name, self._run)
            self._is_over = False
        self._is_ending = False

    def _put(self, key: Hashable, work: Work, due: float) -> None:
        entry = TimedWork(due, next(self._numbers), key, work)
        heappush(self._heap, entry)
        self.entries[key] = entry
        if len(self._heap) > 2 * len(self.entries):
            self._heap = sorted(self.entries.values())
        if not uptime() < self._looks_at <= due:
            self._changed.notify_all()

    def remove(self, key: Hashable) -> None:
        """Call the work with this key no more."""
        with self._mutex:
            self.entries.pop(key, None)
            self._done.notify_all()

    def wait_until_done(self, key: Hashable, timeout: float) -> None:
        """Wait until the work with this key is done, for ``timeout`` at the most."""
        with self._mutex:
            self._done.wait_for(lambda: key not in self.entries, timeout)

    def wait_until_empty(self, timeout: float) -> None:
        """Wait until all work is done, for ``timeout`` seconds at the most."""
        with self._mutex:
            self._done.wait_for(lambda: not self.entries, timeout)

    @property
    def is_running(self) -> bool:
        """Whether its thread runs, and the caller is not in it."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return False
        return thread.is_alive()

    def ask_to_end(self) -> None:
        """Let the thread end after the work that is due; the rest stays."""
        with self._mutex:
            self._is_ending = True
            self._changed.notify_all()

    def join(self, timeout: float) -> None:
        """Wait for the end of the thread, for ``timeout`` seconds at the most."""
        if self._thread is not None and self.is_running:
            self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            try:
                if (entry := self._next()) is None:
                    return
                self._call(entry)
                del entry  # and the lock that it knows
            except BaseException:  # even SystemExit: other work needs the thread
                with suppress(BaseException):
                    logger.exception("Work of the timetable %r failed.", self.name)
                time.sleep(0.05)

    def _call(self, entry: TimedWork) -> None:
        due = uptime() + self.retry_seconds if self._retries else None
        try:
            due = closing(entry.work)
        finally:
            with self._mutex:
                is_current = self._is_current(entry)
                if is_current and due is not None:
                    self._put(entry.key, entry.work, due)
                elif is_current:
                    self.remove(entry.key)

    def _is_current(self, entry: TimedWork) -> bool:
        return self.entries.get(entry.key) is entry

    def _next(self) -> TimedWork | None:
        """Wait for the next work that is due; ``None`` ends the thread."""
        with self._mutex:
            was_used = True
            while True:
                while self._heap and not self._is_current(self._heap[0]):
                    heappop(self._heap)
                    was_used = True
                pause = self.idle_seconds
                if self._heap and (pause := self._heap[0].due - uptime()) <= 0:
                    return self._heap[0]
                if self._is_ending or (not self._heap and not was_used):
                    # Under the condition, so that the next add() starts a thread.
                    self._is_over = True
                    return None
                pause, was_used = min(pause, self.watch_interval_seconds), False
                self._looks_at = uptime() + pause
                self._changed.wait(pause)


class Background(Timetable):
    """Calls work that may take its time, each in a thread of its own, a few at once."""

    thread_limit: int = 8
    hanging_after_seconds: float = 5.0
    """Work that takes longer no longer counts towards ``thread_limit``."""

    def forget(self) -> None:
        """See Timetable.forget()."""
        super().forget()
        self._under_way: list[Future[object]] = []

    def call(self, work: Callable[[], object]) -> None:
        """Call ``work`` soon; ``RuntimeError`` if no thread can be started."""
        self.add(object(), partial(self._start, work))

    def join(self, timeout: float) -> None:
        """See Timetable.join(); wait for the work under way as well."""
        until = uptime() + timeout
        super().join(timeout)
        wait(self._under_way, max(0.0, until - uptime()))

    def _start(self, work: Callable[[], object]) -> None:
        self._under_way = [each for each in self._under_way if not each.done()]
        if len(self._under_way) == self.thread_limit:
            timeout = self.hanging_after_seconds
            done, _ = wait(self._under_way, timeout, FIRST_COMPLETED)
            self._under_way.remove(done.pop() if done else self._under_way[0])
        self._under_way.append(run_in_background(work))


losses: Background = Background("losses")


def end_threads(timeout: float) -> None:
    """
    End the threads of all timetables, each after the work that is due.

    Wait for them for ``timeout`` seconds at the most. Work that is due later stays:
    new work, or ``resume_threads()``, starts a thread again.
    """
    until = uptime() + timeout
    for ends_last in (False, True):
        is_over = False
        while not is_over:
            ending = [each for each in list(_timetables) if each.ends_last == ends_last]
            for timetable in ending:
                timetable.ask_to_end()
            for timetable in ending:
                timetable.join(max(0.0, until - uptime()))
            # Work of one may have added work to another, which had ended before.
            is_over = uptime() >= until or not any(each.is_running for each in ending)


def resume_threads() -> None:
    """Start the threads again that ``end_threads()`` has ended, if they have work."""
    for timetable in list(_timetables):
        timetable.resume()
