"""Mutexes that no signal's handler can leave locked."""

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
