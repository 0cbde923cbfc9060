"""Mutexes of the package, and what a forked child makes anew."""

import os
import threading
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakSet

from django_shedlock.signals import logger

T = TypeVar("T")

RLock: Any = type(threading.RLock())
"""Python's own, or what gevent has put there."""

# A child has none of its parent's threads, and must not share its sockets.
_renewed: WeakSet[Any] = WeakSet()


def renewed_in_child(thing: T) -> T:
    """Return ``thing``; its ``forget()`` is called in each child forked later."""
    _renewed.add(thing)
    return thing


def _renew_all() -> None:
    for thing in list(_renewed):
        try:
            thing.forget()
        except Exception:  # the others must still be renewed
            logger.exception("A forked child could not renew %r.", thing)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)


class Mutex(RLock):  # type: ignore[misc]
    """
    A re-entrant mutex for ``with``, which no signal's handler can leave locked.

    In Python 3.14 a handler may raise between the acquisition of Python's own and the
    body, and nobody releases it then: https://github.com/python/cpython/issues/148874.
    """

    def __enter__(self) -> bool:
        try:
            self.acquire()
        except BaseException:
            with suppress(RuntimeError):  # it was not acquired yet
                self.release()
            raise
        return True

    def forget(self) -> None:
        """Be free again: in a forked child nobody may be left to release it."""
        self._at_fork_reinit()
