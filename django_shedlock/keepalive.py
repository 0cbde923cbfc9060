"""What goes on beside the bodies: beats, the ends of leases, and late releases."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from django_shedlock.clocks import Backoff
from django_shedlock.exceptions import LockLost, LockProviderError, message_of
from django_shedlock.locks.lock import Lock
from django_shedlock.threads import Timetable, run_aside

LONGEST_ANSWER = timedelta(seconds=5)
"""How long before its end at the most the store is asked whether a lease is longer."""

LONGEST_FAREWELL = 1.0
"""Seconds for which a caller that was interrupted waits for its lock's release."""
LONGEST_PAUSE = 30.0
"""Seconds between two tries of a late release at the most."""

logger = logging.getLogger("django_shedlock")

heartbeat = Timetable("keep alive")
lease_ends = Timetable("lease ends")
"""Apart from the heartbeat, which waits for stores: this one never does."""
tellers = Timetable("receivers")
"""Apart from the heartbeat, since receivers may take their time."""
late_releases = Timetable("releases")
"""Apart from the heartbeat, since a release waits for a row."""


class Beat:
    """
    Extends one lease every third of ``lock_at_most_for``.

    An error is retried, with pauses that grow, until the lease is over by this
    process's monotonic clock; then the lock is lost.
    """

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
        except BaseException as error:  # whatever a provider raises
            left = self._warn(error)
            self.due = time.monotonic() + self._backoff.pause(left)
        else:
            self._backoff = Backoff()
            self.due = asked + self._interval
            with suppress(RuntimeError):  # no room for a thread
                tellers.add(self.lock, Telling(self.lock))
        return not self.lock.lost.is_set()

    def _warn(self, error: BaseException) -> float:
        left = self.lock.remaining().total_seconds()
        logger.warning(
            "Lock %r could not be extended, and is lost in %.1f s: %s",
            self.lock.name,
            left,
            error,
        )
        return left


class Telling:
    """Tells the receivers that a lease was extended."""

    def __init__(self, lock: Lock):
        self._lock = lock
        self.due = time.monotonic()

    def __call__(self) -> bool:
        """Tell them once."""
        self._lock.tell_extended()
        return False


class LeaseEnd:
    """
    Tells that a lock is lost as soon as its lease ends, whatever its store does.

    Shortly before, the store is asked in another thread: an operator may have extended
    the lease without this process knowing.
    """

    def __init__(self, lock: Lock):
        self.lock = lock
        self._answer = min(LONGEST_ANSWER, lock.configuration.lock_at_most_for / 3)
        self._asked_for: float | None = None

    @property
    def due(self) -> float:
        """When to ask the store, or when the lease ends if it was asked."""
        end = self.lock.lease_end
        return end if self._asked_for == end else end - self._answer.total_seconds()

    def __call__(self) -> bool:
        """Ask, or tell; return whether the lease may go on."""
        if self.lock.is_lost:
            self.lock.declare_lost(aside=True)
            return False
        if self.lock.is_ours and self.due <= time.monotonic():
            self._asked_for = self.lock.lease_end
            self._ask()
        return self.lock.is_ours  # and perhaps lost by now: the next call tells

    def _ask(self) -> None:
        # Without an answer the lease ends as it is known here.
        with suppress(RuntimeError):  # no room for a thread
            run_aside(self._refresh)

    def _refresh(self) -> None:
        with suppress(LockProviderError):
            self.lock.refresh()


class LateRelease:
    """
    Tries to release a lock until it works or the lease is over.

    ``release`` returns whether the lock was ours. If it ``was_acquired``, the answer no
    is the end. Otherwise its acquisition, which had no answer, may still arrive.
    """

    def __init__(self, lock: Lock, release: Callable[[], bool], *, was_acquired: bool):
        self.lock = lock
        self._release = release
        self._was_acquired = was_acquired
        self._backoff = Backoff()
        self._since = self.due = time.monotonic()

    def __call__(self) -> bool:
        """Try once; return whether there will be a next try."""
        if self._is_done():
            return False
        left = self.lock.remaining().total_seconds()
        if not left:
            if self._was_acquired:
                text = "Lock %r was not released before its lease ended."
                logger.error(text, self.lock.name)
            return False
        late = time.monotonic() - self._since
        pause = max(self._backoff.pause(), late / 4)
        self.due = time.monotonic() + min(pause, LONGEST_PAUSE, left)
        return True

    def _is_done(self) -> bool:
        try:
            released = self._release()
        except Exception as error:
            text = "Lock %r still could not be released: %s"
            logger.info(text, self.lock.name, message_of(error))
            return False
        if released:
            late = time.monotonic() - self._since
            logger.warning("Lock %r was released, %.1f s late.", self.lock.name, late)
        return released or self._was_acquired


def release_later(
    lock: Lock, release: Callable[[], bool], *, was_acquired: bool = True
) -> None:
    """Release the lock in the background, see ``LateRelease``."""
    late_release = LateRelease(lock, release, was_acquired=was_acquired)
    try:
        late_releases.add(lock, late_release)
    except RuntimeError as error:
        logger.error("Lock %r is not tried to be released again: %s", lock.name, error)


def release_aside(
    lock: Lock, release: Callable[[], bool], *, was_acquired: bool = True
) -> None:
    """
    See release_later(). Wait a moment for it, since the process may end.

    No signal's handler interrupts it there, and a store that hangs keeps nobody.
    """
    release_later(lock, release, was_acquired=was_acquired)
    late_releases.is_done(lock, LONGEST_FAREWELL)


@contextmanager
def kept_alive(lock: Lock) -> Iterator[None]:
    """Keep ``lock`` alive while the body runs, and see told_in_time()."""
    try:
        heartbeat.add(lock, Beat(lock))
        with told_in_time(lock):
            yield
    finally:
        heartbeat.remove(lock)


@contextmanager
def told_in_time(lock: Lock) -> Iterator[None]:
    """Tell of the loss of ``lock`` when its lease ends while the body runs."""
    if math.isinf(lock.lease_end) or lock in lease_ends:
        yield
        return
    try:
        lease_ends.add(lock, LeaseEnd(lock))
        yield
    finally:
        lease_ends.remove(lock)
