"""Mutexes that no signal's handler, and no end of the process, can leave locked."""

import sys
import threading
from contextlib import suppress
from typing import Any

RLock: Any = type(threading.RLock())
"""Python's own, or what gevent has put there."""


class Mutex(RLock):  # type: ignore[misc]
    """
    A re-entrant mutex for ``with``, which no signal's handler can leave locked.

    In Python 3.14 a handler may raise between the acquisition of Python's own and the
    body, and nobody releases it then: https://github.com/python/cpython/issues/148874.

    While the interpreter ends, it has stopped the daemon threads wherever they were,
    and one of them may own the mutex for ever. Then ``with`` raises ``RuntimeError``.
    """

    def __enter__(self) -> bool:
        if sys.is_finalizing():
            if not self.acquire(blocking=False):
                raise RuntimeError("A thread was stopped while it owned the mutex.")
            return True
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
