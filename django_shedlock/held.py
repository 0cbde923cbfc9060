"""The locks that this process holds."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from django_shedlock.exceptions import LockLost, ShedLockError
from django_shedlock.locks import Lock

_held: set[Lock] = set()

logger = logging.getLogger("django_shedlock")


def locks_held() -> list[Lock]:
    """Return the locks that this process holds, in the order of their names."""
    # copy() is atomic, so threads that come and go do not disturb it.
    return sorted(
        (lock for lock in _held.copy() if lock.is_active), key=lambda lock: lock.name
    )


def release_all() -> list[Lock]:
    """
    Release every lock that this process holds; return those that still were its own.

    For shutdown hooks: bodies that still run are not stopped and lose their protection,
    so call it when they have ended or are about to be killed. A lock that can't be
    released is logged, and its lease ends by itself.
    """
    return [lock for lock in locks_held() if _release(lock)]


@contextmanager
def registered(lock: Lock) -> Iterator[None]:
    """Count ``lock`` among those that this process holds while the body runs."""
    _held.add(lock)
    try:
        yield
    finally:
        _held.discard(lock)


def _release(lock: Lock) -> bool:
    try:
        return lock.release(LockLost("released by release_all() before its job ended"))
    except ShedLockError as error:
        logger.error("Lock %r could not be released: %s", lock.name, error)
        return False
