"""The heartbeat: one thread that extends the leases of this process's locks."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import close_old_connections, connections

from django_shedlock.clocks import Backoff
from django_shedlock.exceptions import LockLost
from django_shedlock.locks.lock import Lock

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
        """Forget the locks: a forked child must not extend its parent's."""
        self._changed = threading.Condition()
        self._beats: dict[Lock, _Beat] = {}
        self._thread: threading.Thread | None = None

    def add(self, lock: Lock) -> None:
        """Keep ``lock`` alive from now on."""
        with self._changed:
            self._beats[lock] = _Beat(lock)
            if self._thread is None:
                self._start()
            self._changed.notify()

    def _start(self) -> None:
        # Kept only once it runs, so that the next lock tries again.
        thread = threading.Thread(
            target=self._run, name="django_shedlock keep alive", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            self._beats.clear()
            raise
        self._thread = thread

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
            # Under the condition, so that the next add() starts another thread.
            self._thread = None
            return None


class _Beat:
    """When one lock is due next."""

    def __init__(self, lock: Lock):
        self.lock = lock
        self._interval = lock.configuration.lock_at_most_for.total_seconds() / 3
        self._backoff = Backoff()
        self.due = time.monotonic() + self._interval

    def __call__(self) -> bool:
        """Extend the lease; return whether there will be a next beat."""
        asked = time.monotonic()
        try:
            self.lock.keep_alive()
        except LockLost as error:
            if error.__cause__ is not None:
                self._warn(error.__cause__)
            return False
        except Exception as error:
            self._retry(error)
        else:
            self._backoff = Backoff()
            self.due = asked + self._interval
        return True

    def _retry(self, error: Exception) -> None:
        left = self._warn(error)
        self.due = time.monotonic() + self._backoff.pause(left)

    def _warn(self, error: BaseException) -> float:
        left = self.lock.remaining().total_seconds()
        logger.warning(
            "Lock %r could not be extended, and is lost in %.1f s: %s",
            self.lock.name,
            left,
            error,
        )
        return left


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
