"""The loss of a lock, and who is told of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

logger = logging.getLogger("django_shedlock")
LONGEST_TELLING = 5
"""Seconds for which the end of a body waits until everybody is told."""


class Loss:
    """
    Whether a lock is lost, which is told once, whatever thread learns of it.

    ``happened`` is set before anybody is told.
    """

    def __init__(self) -> None:
        self.happened = threading.Event()
        self._once = threading.Lock()
        self._told = threading.Event()
        self._teller: int | None = None
        self._watchers: list[Callable[[], None]] = []

    def tell(self, receivers: Callable[[], object]) -> None:
        """Tell the watchers and then the receivers, or wait until they are told."""
        with self._once:
            is_first = not self.happened.is_set()
            if is_first:
                self._teller = threading.get_ident()
                self.happened.set()
        if is_first:
            self._tell(receivers)
        elif self._teller != threading.get_ident():
            # The process may end right after this, and with it the other thread.
            self._told.wait(LONGEST_TELLING)

    @contextmanager
    def watched_by(self, watcher: Callable[[], None]) -> Iterator[None]:
        """Call ``watcher``, from whatever thread, if the loss happens in the body."""
        self._watchers.append(watcher)
        try:
            yield
        finally:
            self._watchers.remove(watcher)

    def _tell(self, receivers: Callable[[], object]) -> None:
        try:
            for watcher in self._watchers.copy():
                _call(watcher)
            receivers()
        finally:
            self._told.set()


def _call(watcher: Callable[[], None]) -> None:
    try:
        watcher()
    except Exception:  # the others have to be told
        logger.exception("%r failed when it was told that a lock is lost.", watcher)
