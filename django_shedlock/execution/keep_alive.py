"""What goes on in the background: heartbeats, the ends of leases, late releases."""

import logging
import math
from contextlib import suppress
from datetime import timedelta
from functools import partial

from django_shedlock.background import Timetable
from django_shedlock.clocks import Backoff, uptime
from django_shedlock.exceptions import LockLost, LockProviderError, message_of
from django_shedlock.execution.active import was_deserted
from django_shedlock.locks.lock import Lock
from django_shedlock.providers.base import LockProvider, LockQuery
from django_shedlock.signals import logger

LEASE_END_NOTICE = timedelta(seconds=5)
"""At the most so long before a lease ends, the store is asked if it was extended."""

# Note [A timetable each]
# Each has a thread, so that no work waits for other work: heartbeats, questions and
# history wait for their store (so each provider has its own), a release for a row, a
# receiver may take its time (see ``background.losses``), and the end of a lease never
# waits.
lease_ends: Timetable = Timetable("lease ends")
receivers: Timetable = Timetable("receivers", retries=False)
late_releases: Timetable = Timetable("releases")


class Heartbeat:
    """
    Extends one lease every third of ``lock_at_most_for``.

    An error is retried, with pauses that grow, until the lease is over by this
    host's ``uptime()``; then the lock is lost.
    """

    def __init__(self, lock: Lock):
        self._lock = lock
        self.interval: float = lock.configuration.lock_at_most_for.total_seconds() / 3
        self._backoff = Backoff()

    def __call__(self) -> float | None:
        """Extend the lease; return when the next heartbeat is due."""
        if was_deserted(self._lock):
            gone = LockLost("its event loop was closed before its job ended")
            unguard(self._lock)
            release_later(self._lock, gone)
            return None
        due = uptime() + self.interval
        try:
            self._lock.heartbeat()
        except BaseException as error:  # whatever a provider raises
            failure = error.__cause__ if isinstance(error, LockLost) else error
            left = self._lock.remaining().total_seconds()
            text = "Lock %r could not be extended, and is lost in %.1f s: %s"
            # A transaction that has its row, as after fence(), also keeps others out.
            is_calm = getattr(error, "is_blocked", False)
            level = logging.INFO if is_calm else logging.WARNING
            if failure is not None:
                logger.log(level, text, self._lock.name, left, failure)
            if failure is not error:
                return None
            due = uptime() + self._backoff.pause(left)
        else:
            self._backoff = Backoff()
            with suppress(RuntimeError):  # no room for a thread
                receivers.add(self._lock, self._lock.send_extended)
        return None if self._lock.lost.is_set() else due


def watch_lease(lock: Lock, notice: float) -> float | None:
    """
    Declare the lock lost once its lease is over; return when to look next.

    ``notice`` seconds before, the store is asked in another thread, with others that
    end soon: an operator may have extended the lease without this process knowing.
    """
    if lock.is_lost:
        lock.declare_lost(in_background=True)
        return None
    if not lock.is_ours:
        return None
    end = lock.lease_end
    if uptime() < end - notice:  # it was extended
        return end - notice
    # Without an answer the lease ends as it is known here.
    with suppress(RuntimeError):  # no room for a thread
        questions, soon = lock.provider.questions, 0.9 * uptime() + 0.1 * end
        questions.add(lock, partial(refresh_ending, lock.provider), soon)
    return end


def refresh_ending(provider: LockProvider) -> None:
    """Ask the store, with one statement, which leases that end soon were extended."""
    for lock in (soon := list(provider.questions.entries)):
        provider.questions.remove(lock)
    locks = {lock.locked_by: lock for lock in soon if lock.is_active}
    names = {lock.name for lock in locks.values()}
    with suppress(LockProviderError):
        statuses = list(provider.statuses(LockQuery(names=names))) if names else []
        answered_at = uptime()
        for status in statuses:
            lock = locks.get(status.locked_by)
            lease_end = answered_at + status.remaining.total_seconds()
            # By what the acquisition took, the lease is longer than the lock's count.
            if lock and lease_end > lock.lease_end + 1:
                lock.refresh()


class LateRelease:
    """
    Releases a lock, tried again until it works or the lease is over.

    ``exception`` ended the body. Unless it ``was_acquired``, the acquisition had no
    answer and may still arrive, so a release that finds nothing is not the end. While a
    thread of this process still waits for the answer, the end of the lease is not
    either: the lease begins with the answer.
    """

    longest_pause_seconds: float = 30.0

    def __init__(
        self, lock: Lock, exception: BaseException | None, *, was_acquired: bool
    ):
        self._lock = lock
        self._exception = exception
        self._was_acquired = was_acquired
        self._backoff, self._since = Backoff(), uptime()

    def __call__(self) -> float | None:
        """Try it; return when the next try is due."""
        name, is_under_way = self._lock.name, self._lock.is_being_acquired
        try:
            released = self._release()
        except BaseException as error:  # whatever a provider raises
            text = "Lock %r still could not be released: %s"
            logger.info(text, name, message_of(error))
        else:
            if released:
                late = uptime() - self._since
                level = logging.WARNING if late >= 1 else logging.INFO
                logger.log(level, "Lock %r was released, %.1f s late.", name, late)
            if released or self._was_acquired:
                return None
        left = self._lock.remaining().total_seconds()
        if left or is_under_way:
            late = uptime() - self._since
            pause = max(self._backoff.pause(), late / 4)
            longest = min(self.longest_pause_seconds, left or math.inf)
            return uptime() + min(pause, longest)
        if self._was_acquired:
            logger.error("Lock %r was not released before its lease ended.", name)
        return None

    def _release(self) -> bool:
        if self._was_acquired:
            return self._lock.release(self._exception)
        return self._lock.provider.release(self._lock, succeeded=False)


def release_later(
    lock: Lock,
    exception: BaseException | None = None,
    *,
    was_acquired: bool = True,
    wait: float = 0,
) -> None:
    """
    Release the lock in the background; see LateRelease.

    ``wait`` that many seconds for it at the most, since the process may end.
    """
    late_release = LateRelease(lock, exception, was_acquired=was_acquired)
    try:
        late_releases.add(lock, late_release)
    except RuntimeError as error:
        text = "Lock %r can't be released in the background: %s"
        logger.error(text, lock.name, error)
    late_releases.wait_until_done(lock, wait)


def guard(
    lock: Lock, keep_alive: bool | None = False, *, is_async: bool = False
) -> None:
    """
    Extend the lease until ``unguard()``, if it is to be kept alive.

    With ``None`` the provider decides. For such a lock, and for a body that
    ``is_async``, report the loss of the lock as soon as its lease ends.
    """
    if keep_alive is None:
        keep_alive = lock.provider.keeps_alive
    if keep_alive:
        heartbeat = Heartbeat(lock)
        due = uptime() + heartbeat.interval
        lock.provider.heartbeats.add(lock, heartbeat, due)
    if (keep_alive or is_async) and lock not in lease_ends.entries:
        lease = lock.configuration.lock_at_most_for
        notice = min(LEASE_END_NOTICE, lease / 3).total_seconds()
        watch = partial(watch_lease, lock, notice)
        lease_ends.add(lock, watch, lock.lease_end - notice)


def unguard(lock: Lock) -> None:
    """Extend its lease no more, and do not report its end."""
    for timetable in (lock.provider.heartbeats, lease_ends):
        if lock in timetable.entries:
            timetable.remove(lock)
