"""The package's own threads: daemons, each of which closes its own connections."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar
from weakref import WeakSet

from django.db import close_old_connections, connections

from django_shedlock.signals import logger

IDLE = 1.0
"""Seconds without work for which a connection is worth keeping open."""


class Renewable(Protocol):
    """What a forked child must not share with its parent: threads, sockets, mutexes."""

    def forget(self) -> None:
        """Begin as if new."""


T = TypeVar("T")
RenewableT = TypeVar("RenewableT", bound=Renewable)

_renewed: WeakSet[Renewable] = WeakSet()


def renewed_in_child(thing: RenewableT) -> RenewableT:
    """Return ``thing``; call its ``forget()`` in each child that is forked from now."""
    _renewed.add(thing)
    return thing


def _renew_all() -> None:
    for thing in list(_renewed):
        try:
            thing.forget()
        except Exception:  # the others must be renewed, too
            logger.exception("A forked child could not renew %r.", thing)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)


class ForkSafeMutex:
    """
    A mutex that a forked child makes anew.

    The child may inherit it locked by a thread that it does not have.
    """

    def __init__(self) -> None:
        self.forget()
        renewed_in_child(self)

    def forget(self) -> None:
        """Make the mutex anew."""
        self.mutex = threading.RLock()


def run_aside(work: Callable[[], object]) -> None:
    """Call ``work`` in a thread of its own; ``RuntimeError`` if none can be started."""
    threading.Thread(
        target=closing, args=[work], name="django_shedlock aside", daemon=True
    ).start()


def outside_event_loop(work: Callable[[], T]) -> T:
    """
    Return what ``work`` returns, called in another thread if an event loop runs here.

    Django refuses to query a database in the thread of an event loop.
    """
    if not _is_in_event_loop():
        return work()
    with ThreadPoolExecutor(max_workers=1) as other_thread:
        return other_thread.submit(closing, work).result()


def closing(work: Callable[[], T]) -> T:
    """Return what ``work`` returns, and close this thread's connections after it."""
    try:
        return work()
    finally:
        connections.close_all()


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class Entry(Protocol):
    """What a timetable calls as soon as ``due``, by the monotonic clock, has come."""

    @property
    def due(self) -> float: ...

    def __call__(self) -> bool:
        """Do what is due; return whether there will be a next time."""


class Timetable:
    """
    Calls its entries when they are due, one after the other, in one thread.

    The thread starts with the first entry, ends after the last one, and is replaced by
    the next entry if it died. Nothing that an entry raises ends it.
    """

    def __init__(self, name: str):
        self.name = name
        self.forget()
        renewed_in_child(self)

    def forget(self) -> None:
        """Forget the entries: a forked child must not do its parent's work."""
        self._changed = threading.Condition()
        self._entries: dict[Hashable, Entry] = {}
        self._thread: threading.Thread | None = None

    def add(self, key: Hashable, entry: Entry) -> None:
        """
        Call ``entry`` from now on, in place of an earlier one with this key.

        Raises ``RuntimeError`` if no thread can be started; then nothing is added.
        """
        with self._changed:
            if self._thread is None or not self._thread.is_alive():
                self._thread = self._start()
            self._entries[key] = entry
            self._changed.notify_all()

    def remove(self, key: Hashable) -> None:
        """Call the entry with this key no more."""
        with self._changed:
            self._entries.pop(key, None)
            self._changed.notify_all()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._entries

    def is_done(self, key: Hashable, timeout: float = 0) -> bool:
        """Wait for so many seconds at the most; return whether the entry is gone."""
        with self._changed:
            return self._changed.wait_for(lambda: key not in self._entries, timeout)

    def _start(self) -> threading.Thread:
        # It finds the first entry, since the caller has the condition.
        thread = threading.Thread(
            target=self._run, name=f"django_shedlock {self.name}", daemon=True
        )
        thread.start()
        return thread

    def _run(self) -> None:
        try:
            while found := self._next():
                key, entry = found
                if not _goes_on(entry):
                    self._remove_finished(key, entry)
        finally:
            self._forget_thread()
            connections.close_all()

    def _forget_thread(self) -> None:
        with self._changed:
            # Perhaps the next add() has started another one already.
            if self._thread is threading.current_thread():
                self._thread = None

    def _next(self) -> tuple[Hashable, Entry] | None:
        """Wait for the next entry that is due; ``None`` ends the thread."""
        is_idle = False
        while True:
            with self._changed:
                if not self._entries:
                    # Under the condition, so that the next add() starts a thread.
                    self._thread = None
                    return None
                found = min(self._entries.items(), key=lambda item: item[1].due)
                pause = found[1].due - time.monotonic()
                if pause <= 0:
                    return found
                if pause <= IDLE or is_idle:
                    self._changed.wait(min(pause, threading.TIMEOUT_MAX))
                    continue
            # Not under the condition, which each new entry needs.
            _close_idle_connections()
            is_idle = True

    def _remove_finished(self, key: Hashable, entry: Entry) -> None:
        with self._changed:
            if self._entries.get(key) is entry:
                del self._entries[key]
                self._changed.notify_all()


def _goes_on(entry: Entry) -> bool:
    try:
        return entry()
    except BaseException:  # SystemExit, too: the other entries need the thread
        logger.exception("%r failed, and is not called again.", entry)
        return False


def _close_idle_connections() -> None:
    try:
        close_old_connections()
    except Exception as error:
        logger.warning("An idle connection could not be closed: %s", error)
