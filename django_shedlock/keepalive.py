"""The heartbeat: one thread that extends the leases of this process's locks."""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import close_old_connections, connections

from django_shedlock.exceptions import LockLost
from django_shedlock.locks import Lock

SHORTEST_PAUSE = 0.1
LONGEST_PAUSE = 1.0
IDLE = 1.0
"""Seconds without a beat for which a connection is worth keeping open."""

logger = logging.getLogger("django_shedlock")


class Heartbeat:
    """
    Extends each of its locks every third of ``lock_at_most_for``.

    Its daemon thread starts with the first lock and ends after the last one, with
    connections of its own that it closes. An error is retried, with pauses that grow,
    until the lease is over by this process's monotonic clock; then the lock is lost.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, without locks: what a forked child has to do."""
        self._changed = threading.Condition()
        self._beats: dict[Lock, _Beat] = {}
        self._thread: threading.Thread | None = None

    def add(self, lock: Lock) -> None:
        """Keep ``lock`` alive from now on."""
        with self._changed:
            self._beats[lock] = _Beat(lock)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="django_shedlock keep alive", daemon=True
                )
                self._thread.start()
            self._changed.notify()

    def remove(self, lock: Lock) -> None:
        """Let the lease of ``lock`` end by itself."""
        with self._changed:
            self._beats.pop(lock, None)
            self._changed.notify()

    def _run(self) -> None:
        try:
            while beat := self._next_beat():
                if not beat():
                    self.remove(beat.lock)
        finally:
            connections.close_all()

    def _next_beat(self) -> _Beat | None:
        with self._changed:
            while self._beats:
                beat = min(self._beats.values(), key=lambda beat: beat.due)
                pause = beat.due - time.monotonic()
                if pause <= 0:
                    return beat
                if pause > IDLE:
                    _close_idle_connections()
                self._changed.wait(pause)
            # Under the condition, so that add() starts another one if it comes now.
            self._thread = None
            return None


class _Beat:
    """When one lock is due next."""

    def __init__(self, lock: Lock):
        self.lock = lock
        self._interval = lock.configuration.lock_at_most_for.total_seconds() / 3
        self._ceiling = SHORTEST_PAUSE
        self.due = time.monotonic() + self._interval

    def __call__(self) -> bool:
        """Extend the lease; return whether there will be a next beat."""
        asked = time.monotonic()
        try:
            self.lock.keep_alive()
        except LockLost:
            return False
        except Exception as error:
            self._retry(error)
        else:
            self._ceiling = SHORTEST_PAUSE
            self.due = asked + self._interval
        return True

    def _retry(self, error: Exception) -> None:
        left = self.lock.remaining().total_seconds()
        logger.warning(
            "Lock %r could not be extended, and is lost in %.1f s: %s",
            self.lock.name,
            left,
            error,
        )
        pause = random.uniform(self._ceiling / 2, self._ceiling)
        self._ceiling = min(self._ceiling * 2, self._interval, LONGEST_PAUSE)
        self.due = time.monotonic() + min(pause, left)


def _close_idle_connections() -> None:
    try:
        close_old_connections()
    except Exception as error:  # nothing may end the thread
        logger.warning("The heartbeat could not close its connection: %s", error)


heartbeat = Heartbeat()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=heartbeat.forget)


@contextmanager
def kept_alive(lock: Lock) -> Iterator[None]:
    """Keep ``lock`` alive while the body runs."""
    heartbeat.add(lock)
    try:
        yield
    finally:
        heartbeat.remove(lock)
