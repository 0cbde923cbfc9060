"""What goes on in the background: beats, the ends of leases, and late releases."""

import logging
from collections.abc import Callable
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

ASK_BEFORE_END = timedelta(seconds=5)
"""How long before its end at the most the store is asked if a lease was extended."""
SLACK = timedelta(seconds=1)
"""The store's lease is longer than the holder's count by what the acquisition took."""
LONGEST_PAUSE = 30.0
"""Seconds between two tries of a late release at the most."""

# Note [A timetable each]
# Each has a thread, so that no work waits for other work: beats, questions and history
# wait for their store (so each provider has its own), a release for a row, a receiver
# may take its time (for ``losses`` see threads.py), and the end of a lease never waits.
lease_ends: Timetable = Timetable("lease ends")
receivers: Timetable = Timetable("receivers", retries=False)
late_releases: Timetable = Timetable("releases")


class Beat:
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
        """Extend the lease; return when the next beat is due."""
        if was_deserted(self._lock):
            gone = LockLost("its event loop was closed before its job ended")
            unguard(self._lock)
            release_later(self._lock, partial(self._lock.release, gone))
            return None
        due = uptime() + self.interval
        try:
            self._lock.beat()
        except BaseException as error:  # whatever a provider raises
            failure = error.__cause__ if isinstance(error, LockLost) else error
            left = self._lock.remaining().total_seconds()
            text = "Lock %r could not be extended, and is lost in %.1f s: %s"
            # A transaction that has its row, as after fence(), keeps others out, too.
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
    Tell that the lock is lost once its lease is over; return when to look next.

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
        questions.add(lock, partial(ask, lock.provider), soon)
    return end


def ask(provider: LockProvider) -> None:
    """Ask the store, with one statement, which leases that end soon were extended."""
    for lock in (soon := list(provider.questions.entries)):
        provider.questions.remove(lock)
    locks = {lock.locked_by: lock for lock in soon if lock.is_active}
    names = {lock.name for lock in locks.values()}
    with suppress(LockProviderError):
        for status in provider.statuses(LockQuery(names=names)) if names else ():
            lock = locks.get(status.locked_by)
            if lock and status.remaining > lock.remaining() + SLACK:
                lock.refresh()


def release_later(
    lock: Lock,
    release: Callable[[], bool],
    *,
    was_acquired: bool = True,
    wait: float = 0,
) -> None:
    """
    Try in the background to release the lock, until it works or the lease is over.

    ``release`` returns whether the lock was ours. If it ``was_acquired``, the answer no
    is the end. Otherwise its acquisition, which had no answer, may still arrive.
    ``wait`` that many seconds for it at the most, since the process may end.
    """
    backoff, since = Backoff(), uptime()

    def try_release() -> float | None:
        try:
            released = release()
        except BaseException as error:  # whatever a provider raises
            text = "Lock %r still could not be released: %s"
            logger.info(text, lock.name, message_of(error))
        else:
            if released:
                late = uptime() - since
                logger.warning("Lock %r was released, %.1f s late.", lock.name, late)
            if released or was_acquired:
                return None
        if left := lock.remaining().total_seconds():
            late = uptime() - since
            pause = max(backoff.pause(), late / 4)
            return uptime() + min(pause, LONGEST_PAUSE, left)
        if was_acquired:
            logger.error("Lock %r was not released before its lease ended.", lock.name)
        return None

    try:
        late_releases.add(lock, try_release)
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
    ``is_async``, tell of the loss of the lock as soon as its lease ends.
    """
    if keep_alive is None:
        keep_alive = lock.provider.keeps_alive
    if keep_alive:
        beat = Beat(lock)
        lock.provider.heartbeats.add(lock, beat, uptime() + beat.interval)
    if (keep_alive or is_async) and lock not in lease_ends.entries:
        lease = lock.configuration.lock_at_most_for
        notice = min(ASK_BEFORE_END, lease / 3).total_seconds()
        watch = partial(watch_lease, lock, notice)
        lease_ends.add(lock, watch, lock.lease_end - notice)


def unguard(lock: Lock) -> None:
    """Extend its lease no more, and tell nobody of its end."""
    for timetable in (lock.provider.heartbeats, lease_ends):
        if lock in timetable.entries:
            timetable.remove(lock)
