"""Clocks and their instants, and the pauses between two tries."""

import math
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from django.utils import timezone

TOLERANCE = timedelta(seconds=30)
"""Clocks that are further apart make schedulers start jobs at unexpected times."""
EARLIEST = datetime(1, 1, 2, tzinfo=UTC)
LATEST = datetime(9999, 12, 30, tzinfo=UTC)
"""Every zone can show the instants between these two; Python knows no others."""
SHORTEST_PAUSE = 0.05
LONGEST_PAUSE = 1.0


def host_now() -> datetime:
    """Return this process's own clock; the store's clock decides, not this one."""
    return datetime.now(UTC)


def uptime() -> float:
    """
    Return the seconds of a clock of this host's that nobody sets: it ends leases.

    It goes on while the host is suspended, on Linux; ``time.monotonic()`` stands still.
    """
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def clock_difference(read: Callable[[], datetime]) -> timedelta:
    """
    Return how far the clock that is read is ahead of this process's, at the least.

    The store may have read it at any time between the question and the answer.
    """
    asked = time.time()
    moment = read()
    answered = time.time()
    told = aware(moment).timestamp()
    return timedelta(seconds=told - min(max(told, asked), answered))


def aware(moment: datetime) -> datetime:
    """
    Return the instant in UTC; a naive one is in the project's time zone.

    In other zones Python's arithmetic is wrong where the clocks change: it ignores the
    change, and confuses the hour that comes twice. Never before ``EARLIEST`` nor after
    ``LATEST``.
    """
    known = moment if timezone.is_aware(moment) else timezone.make_aware(moment)
    try:
        return min(max(known.astimezone(UTC), EARLIEST), LATEST)
    except OverflowError:
        return EARLIEST if known.year == EARLIEST.year else LATEST


def local_text(moment: datetime) -> str:
    """Return the instant for people, to the second, in the current time zone."""
    shown = timezone.localtime(moment) if timezone.is_aware(moment) else moment
    return shown.isoformat(sep=" ", timespec="seconds")


class Backoff:
    """
    Pauses that grow, are jittered, and end with ``wait`` if it is given.

    It counts by ``uptime()``, from construction on: in tests freezegun and time-machine
    stop the monotonic clock.
    """

    def __init__(self, wait: timedelta = timedelta.max):
        self._deadline = uptime() + wait.total_seconds()
        self._ceiling = SHORTEST_PAUSE

    def pause(self, longest: float = math.inf) -> float:
        """Return the seconds until the next try; zero if the wait is over."""
        left = max(0, self._deadline - uptime())
        pause = random.uniform(self._ceiling / 2, self._ceiling)
        self._ceiling = min(self._ceiling * 2, LONGEST_PAUSE)
        return min(pause, left, longest)

    @property
    def is_over(self) -> bool:
        """Whether the wait is over."""
        return uptime() >= self._deadline
