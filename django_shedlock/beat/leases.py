"""The end of a child whose lease ends: a kept-alive lock must not have two bodies."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from django_shedlock.background import start_daemon
from django_shedlock.clocks import uptime
from django_shedlock.locks.lock import Lock
from django_shedlock.processes.child import BODY_SIGNALS
from django_shedlock.signals import logger

LONGEST_NOTICE = timedelta(seconds=5)
"""At most so long before its lease ends, a body gets SIGTERM."""
SHORTEST_LOOK_SECONDS = 0.01


class LeaseGuard:
    """
    Ends the process of a body before the body's kept-alive lease ends.

    A heartbeat extends the lease every third of ``lock_at_most_for``. If the store does
    not let it, another host may begin the next tick once the lease is over. So the body
    gets SIGTERM when a sixth of the lease is left, five seconds at most. Its process
    group gets SIGKILL when half of that time is over.
    """

    def __init__(self, lock: Lock):
        self._lock = lock
        lease = lock.configuration.lock_at_most_for
        self._notice = min(LONGEST_NOTICE, lease / 6).total_seconds()
        self._has_ended = threading.Event()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the lease while the body of the ``with`` statement runs."""
        lease = self._lock.configuration.lock_at_most_for.total_seconds()
        if self._lock.lease_end - uptime() < lease / 2:
            # The acquisition took long, and the first heartbeat might come too late.
            self._lock.refresh()
        try:
            start_daemon("lease", self._watch)
        except RuntimeError as error:
            logger.warning(
                "Lock %r: no thread watches its lease, so the job may outlast it: %s",
                self._lock.name,
                error,
            )
        try:
            yield
        finally:
            self._has_ended.set()

    def _watch(self) -> None:
        if not self._lasts_until(self._notice):
            return
        if self._lock not in self._lock.provider.heartbeats.entries:
            return  # the lease is not kept alive, so it may end before its body
        logger.error(
            "Lock %r: its lease can't be extended and ends in %.1f s, so its job is "
            "ended before another host starts it.",
            self._lock.name,
            self._notice,
        )
        os.kill(os.getpid(), BODY_SIGNALS[0])
        if self._lasts_until(self._notice / 2):
            os.killpg(0, signal.SIGKILL)

    def _lasts_until(self, notice: float) -> bool:
        """Return whether the body runs on until so many seconds are left."""
        while (left := self._lock.lease_end - notice - uptime()) > 0:
            if self._has_ended.wait(max(left, SHORTEST_LOOK_SECONDS)):
                return False
        return not self._has_ended.is_set()
