"""How long a run may take, and what counts as a run that took too long."""

import math
import time
from datetime import timedelta

from django_shedlock.clocks import uptime
from django_shedlock.durations import format_duration

TIMED_OUT_STATUS = 124
"""The exit status of what its time limit ended, as ``timeout(1)`` gives it."""


class TimeLimitExceeded(SystemExit):
    """
    The time limit of a run is over, so the run counts as *timed out*.

    It ends the process with ``TIMED_OUT_STATUS``. As a ``SystemExit`` it passes
    through an ``except Exception`` of the job.
    """

    def __init__(self, length: timedelta):
        super().__init__(length)
        self.code = TIMED_OUT_STATUS
        self.length = length

    def __str__(self) -> str:
        return f"the time limit of {format_duration(self.length)} is over"


class TimeLimit:
    """A limit of this ``length`` for what begins now, by ``uptime()``."""

    def __init__(self, length: timedelta):
        self.length = length
        self.ends_at: float = uptime() + length.total_seconds()

    @classmethod
    def of(cls, length: timedelta | None) -> "TimeLimit | None":
        """Return a limit of this length; ``None`` for no limit."""
        return None if length is None else cls(length)

    @property
    def left(self) -> float:
        """How many seconds are left; not negative."""
        return max(0.0, self.ends_at - uptime())


class ProcessTimeLimit:
    """
    The time limit of this process, which its parent enforces by SIGTERM.

    Whoever handles that signal calls ``raise_if_over()``. The run that goes on then
    has timed out, whatever becomes of that exception: an event loop turns it into a
    cancellation, and a job may catch it.
    """

    def __init__(self) -> None:
        self._limit: TimeLimit | None = None
        self._reached_at = math.inf

    def begin(self, limit: TimeLimit | None) -> None:
        """Note the limit of this process, if it has one."""
        self._limit, self._reached_at = limit, math.inf

    def raise_if_over(self) -> None:
        """Raise ``TimeLimitExceeded`` if the limit is over."""
        if self._limit is not None and not self._limit.left:
            self._reached_at = min(self._reached_at, time.monotonic())
            raise TimeLimitExceeded(self._limit.length)

    def judge(
        self, exception: BaseException | None, began: float, ended: float
    ) -> BaseException | None:
        """
        Return ``TimeLimitExceeded`` for a run that the limit has ended.

        Its ``__cause__`` is the ``exception`` with which the run really ended, if any.
        Return the ``exception`` of any other run. ``began`` and ``ended`` are by
        ``time.monotonic()``.
        """
        if self._limit is None or not began <= self._reached_at <= ended:
            return exception
        if isinstance(exception, TimeLimitExceeded):
            return exception
        exceeded = TimeLimitExceeded(self._limit.length)
        exceeded.__cause__ = exception
        return exceeded


process_time_limit: ProcessTimeLimit = ProcessTimeLimit()
