"""Ticks among which a clock chooses."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice, pairwise

from django_shedlock.schedules import Schedule

MARGIN = 2
"""So many ticks before and after, in case that the two clocks differ."""
NEIGHBOURS = 3
"""The nearest tick, and one on each side of it."""


@dataclass(frozen=True)
class TickChoice:
    """
    Ticks, each of which is the one from an instant on, up to ``until``.

    They are made with one clock for another one to choose.
    """

    ticks: tuple[datetime, ...]
    since: tuple[datetime, ...]
    until: datetime

    def at(self, now: datetime) -> datetime:
        """Return the tick of this instant; beyond the ends the one at the end."""
        return self.ticks[max(0, bisect_right(self.since, now) - 1)]


def nearest(schedule: Schedule, around: datetime) -> TickChoice:
    """
    Let the tick be the nearest one, be it past or to come.

    A scheduler whose clock runs ahead starts the job before the tick.
    """
    # One on each side of the nearest is enough, and each one more costs the statement.
    by_distance = sorted(_ticks(schedule, around), key=lambda tick: abs(tick - around))
    ticks = sorted(by_distance[:NEIGHBOURS])
    halfway = [before + (after - before) / 2 for before, after in pairwise(ticks)]
    return TickChoice(tuple(ticks), (ticks[0], *halfway), ticks[-1])


def newest(
    schedule: Schedule, around: datetime, age: timedelta = timedelta(0)
) -> TickChoice:
    """Let the tick be the newest one that is at least so old."""
    *ticks, end = _ticks(schedule, around - age)
    return TickChoice(tuple(ticks), tuple(tick + age for tick in ticks), end + age)


def _ticks(schedule: Schedule, around: datetime) -> Sequence[datetime]:
    before = schedule.ticks_until(around, MARGIN)
    return [*before, *islice(schedule.ticks_after(around), MARGIN)]
