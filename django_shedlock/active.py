"""The locks of the calling code, and those of this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from django_shedlock import conf
from django_shedlock.durations import Duration
from django_shedlock.exceptions import LockLost, NoActiveLock, message_of
from django_shedlock.locks.lock import Lock
from django_shedlock.signals import logger
from django_shedlock.threads import closing, outside_event_loop

# Never reset by token: asyncio may exit a context manager in another context.
_active_locks: ContextVar[tuple[Lock, ...]] = ContextVar(
    "django_shedlock_active_locks", default=()
)

_held: set[Lock] = set()


@contextmanager
def activated(lock: Lock, *, is_acquired: bool = False) -> Iterator[None]:
    """
    Make ``lock`` the current one of this thread or task while the body runs.

    With ``is_acquired`` it also counts among those that this process holds.
    """
    try:
        if is_acquired:
            _held.add(lock)
        _active_locks.set((*_active_locks.get(), lock))
        yield
    finally:
        if is_acquired:
            _held.discard(lock)
        locks = _active_locks.get()
        if lock in locks:
            innermost = len(locks) - 1 - locks[::-1].index(lock)
            _active_locks.set(locks[:innermost] + locks[innermost + 1 :])


def find_active_lock(provider: str, name: str) -> Lock | None:
    """Return the lock of this name that the calling code holds already, if any."""
    for lock in _active_locks.get():
        if (lock.provider.alias, lock.name) == (provider, name) and lock.is_active:
            return lock
    return None


def current_lock() -> Lock:
    """
    Return the innermost lock under which the calling code runs.

    Raises ``NoActiveLock`` if there is none.
    """
    for lock in reversed(_active_locks.get()):
        if lock.is_ours:
            return lock
    raise NoActiveLock(
        "This code runs under no lock. Call it in a job with @scheduler_lock, or "
        "inside `with hold(...)`, in the same thread or task."
    )


def assert_locked() -> None:
    """
    Do nothing if the calling code runs under a lock that is still held.

    Raises ``NoActiveLock`` if there is no lock, ``LockLost`` if it was lost. With
    ``SHEDLOCK_ENABLED = False`` it raises nothing.
    """
    if not conf.ENABLED.value:
        return
    lock = current_lock()
    if lock.is_lost:
        raise LockLost(
            f"Lock {lock.name!r} is no longer held by {lock.locked_by}. "
            "Another worker may be running the same job."
        )


def extend_active_lock(
    lock_at_most_for: Duration | None = None,
    lock_at_least_for: Duration | None = None,
) -> None:
    """
    Extend the lock under which the calling code runs; see ``Lock.extend()``.

    Raises ``NoActiveLock`` if there is none. With ``SHEDLOCK_ENABLED = False`` it
    does nothing.
    """
    if conf.ENABLED.value:
        current_lock().extend(lock_at_most_for, lock_at_least_for)


def locks_held() -> list[Lock]:
    """Return the locks that this process holds, in the order of their names."""
    # copy() is atomic, so other threads do not disturb it.
    return sorted(
        (lock for lock in _held.copy() if lock.is_active), key=lambda lock: lock.name
    )


def release_all() -> list[Lock]:
    """
    Release every lock that this process holds; return those that still were its own.

    For shutdown hooks. It does not stop bodies that still run, and they lose their
    protection: call it when they have ended or are about to be killed. If a lock can't
    be released, that is logged, the others are released, and its lease ends by itself.

    A signal's handler must not call it, since it may have interrupted the very
    statement or mutex that a release needs: let the handler raise ``SystemExit``, so
    that the bodies end and release, or start a thread that calls this.
    """

    def release(lock: Lock) -> bool:
        lost = LockLost("released by release_all() before its job ended")
        try:
            return lock.release(lost)
        except (Exception, SystemExit) as error:  # the others must be released
            text = "Lock %r could not be released: %s"
            logger.error(text, lock.name, message_of(error))
            return False

    return outside_event_loop(lambda: [lock for lock in locks_held() if release(lock)])


async def arelease_all() -> list[Lock]:
    """See release_all(). It does not wait for code that other coroutines run."""
    return await asyncio.to_thread(closing, release_all)
