"""Clocks and their instants, and the pauses between two tries."""

import math
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from django.utils import timezone

CLOCK_TOLERANCE = timedelta(seconds=30)
"""Two clocks that differ by more make schedulers start jobs at unexpected times."""
EARLIEST_INSTANT = datetime(1, 1, 2, tzinfo=UTC)
LATEST_INSTANT = datetime(9999, 12, 30, tzinfo=UTC)
"""Every time zone can show an instant between these two; Python knows no others."""


def host_now() -> datetime:
    """Return this process's own clock; the store's clock decides, not this one."""
    return datetime.now(UTC)


def uptime() -> float:
    """
    Return the seconds of a host clock that can't be adjusted: it ends leases.

    On Linux it runs on while the host is suspended; ``time.monotonic()`` stands still.
    """
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def clock_difference(read: Callable[[], datetime]) -> timedelta:
    """
    Return by how much, at least, the clock that is read is ahead of this process's.

    The store may have read it at any time between the question and the answer.
    """
    asked = time.time()
    moment = read()
    answered = time.time()
    read_time = aware(moment).timestamp()
    return timedelta(seconds=read_time - min(max(read_time, asked), answered))


def aware(moment: datetime) -> datetime:
    """
    Return the instant in UTC; a naive one is in the project's time zone.

    In other zones Python's arithmetic is wrong where the clocks change: it ignores the
    change, and confuses the hour that comes twice. The result is never before
    ``EARLIEST_INSTANT`` nor after ``LATEST_INSTANT``.
    """
    known = moment if timezone.is_aware(moment) else timezone.make_aware(moment)
    try:
        return min(max(known.astimezone(UTC), EARLIEST_INSTANT), LATEST_INSTANT)
    except OverflowError:
        return (
            EARLIEST_INSTANT if known.year == EARLIEST_INSTANT.year else LATEST_INSTANT
        )


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

    first_pause_seconds: float = 0.05
    longest_pause_seconds: float = 1.0

    def __init__(self, wait: timedelta = timedelta.max):
        self._deadline = uptime() + wait.total_seconds()
        self._ceiling = self.first_pause_seconds

    def pause(self, longest: float = math.inf) -> float:
        """Return the seconds until the next try; zero if the wait is over."""
        left = max(0, self._deadline - uptime())
        pause = random.uniform(self._ceiling / 2, self._ceiling)
        self._ceiling = min(self._ceiling * 2, self.longest_pause_seconds)
        return min(pause, left, longest)

    @property
    def is_over(self) -> bool:
        """Whether the wait is over."""
        return uptime() >= self._deadline
