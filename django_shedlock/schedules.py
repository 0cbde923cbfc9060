"""Cron expressions, how often they tick, and when."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from itertools import dropwhile, islice, pairwise, takewhile
from typing import TYPE_CHECKING, cast
from zoneinfo import ZoneInfo

from django_shedlock.wall_clocks import WallClock

if TYPE_CHECKING:
    from cronsim import CronSim

A_DAY = timedelta(days=1)
A_SECOND = timedelta(seconds=1)
BEGINNING = datetime(2000, 12, 31, 23, 59, tzinfo=UTC)
END = datetime(2057, 1, 1, tzinfo=UTC)
"""Weekdays and leap years repeat every 28 years; two ticks may be that far apart."""

SHORTHANDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
LONGEST_EXPRESSION = 200
"""So many characters leave room for the time zone in its column."""
NAMES = re.compile(
    "JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC|SUN|MON|TUE|WED|THU|FRI|SAT"
)
"""The words of cron; other programs also know L, W and #."""
MISSING = "cronsim is missing. Install django-shedlock[schedules]"


@dataclass(frozen=True)
class Schedule:
    """
    When cron starts a job: ``"*/5 * * * *"``, or a shorthand such as ``"@daily"``.

    ``time_zone`` is the name of one, as in ``"Europe/Berlin"``; without it, it is that
    of the settings. Raises ``ValueError`` if cron would not take it, or if it never
    ticks twice, as ``"@reboot"``, ``ImportError`` without cronsim.
    """

    expression: str
    time_zone: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.expression, str):
            object.__setattr__(self, "expression", " ".join(self.expression.split()))
        self._refuse_unless_five_fields()
        _simulate(self._fields, BEGINNING)
        if self.time_zone is not None:
            _ = self._zone

    def __str__(self) -> str:
        return f"{self.expression} {self.time_zone or ''}".strip()

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """Return the schedule with a time zone that ``str()`` wrote."""
        expression, _, time_zone = text.rpartition(" ")
        return cls(expression, time_zone)

    def has_ticks_of(self, other: Schedule) -> bool:
        """Return whether both mean the same, apart from their time zones."""
        return self._meaning == other._meaning

    def ticks_after(self, moment: datetime) -> Iterator[datetime]:
        """Return what comes later than the aware ``moment``, in UTC and in order."""
        moment = moment.astimezone(UTC)
        ticks = self._ticks(self._clock.no_later(moment))
        return dropwhile(lambda tick: tick <= moment, ticks)

    def ticks_until(self, moment: datetime, count: int) -> list[datetime]:
        """Return the newest ticks that are not later than the aware ``moment``."""
        moment = moment.astimezone(UTC)
        # cronsim begins before its start, but takes microseconds for a tick.
        start = self._clock.no_earlier(moment).replace(microsecond=0) + A_SECOND
        ticks = self._ticks(start, reverse=True)
        newest = islice(dropwhile(lambda tick: tick > moment, ticks), count)
        return sorted(newest)

    @cached_property
    def interval(self) -> timedelta:
        """
        The shortest time between two ticks, where all days have 24 hours.

        Raises ``ValueError`` if there are no two ticks.
        """
        times = self._times()
        over_night = self._shortest_days - (times[-1] - times[0])
        within_a_day = [after - before for before, after in pairwise(times)]
        return min([over_night, *within_a_day])

    @property
    def _meaning(self) -> tuple[object, ...]:
        cron = _simulate(self._fields, BEGINNING)
        weekdays = {day % 7 for day in cast(set[int], cron.weekdays)}
        fields = (cron.minutes, cron.hours, cron.days, cron.months, weekdays)
        return (*fields, cron.day_and, self._follows_the_clock)

    @property
    def _fields(self) -> list[str]:
        return SHORTHANDS.get(self.expression, self.expression).split()

    # Note [Days on which the clocks change]
    # cronsim counts the times of a clock that is never changed, so all hosts see the
    # same ones, forwards and backwards. When ours shows them is Debian's cron's rule:
    # a job runs whenever one is shown if its minute or hour begins with a star; any
    # other once, the first time, or right after an hour that is left out.
    def _ticks(self, start: datetime, *, reverse: bool = False) -> Iterator[datetime]:
        times = _simulate(self._fields, start, reverse=reverse)
        if self._follows_the_clock:
            return self._clock.each_time(times, reverse=reverse)
        return self._clock.once(times)

    @property
    def _follows_the_clock(self) -> bool:
        return any(field.startswith("*") for field in self._fields[:2])

    @property
    def _clock(self) -> WallClock:
        return WallClock(self._zone)

    @property
    def _zone(self) -> ZoneInfo:
        try:
            return ZoneInfo(str(self.time_zone))
        except (LookupError, OSError, ValueError) as error:
            raise ValueError(f"there is no time zone {self.time_zone!r}") from error

    def _refuse_unless_five_fields(self) -> None:
        if not isinstance(self.expression, str):
            raise ValueError(f"{self.expression!r} is no text")
        if len(self.expression) > LONGEST_EXPRESSION:
            raise ValueError(
                f"{self.expression!r} has {len(self.expression)} characters; at most "
                f"{LONGEST_EXPRESSION} are allowed"
            )
        if self.expression in SHORTHANDS:
            return
        if self.expression.startswith("@"):
            known = ", ".join(SHORTHANDS)
            raise ValueError(f"{self.expression!r} has no interval; there are {known}")
        words = re.findall("[A-Z]+", self.expression.upper())
        is_known = "#" not in self.expression and all(map(NAMES.fullmatch, words))
        if len(self._fields) != 5 or not is_known:
            raise ValueError(
                f"{self.expression!r} is no cron expression: give minute, hour, day of "
                'the month, month and day of the week, as in "*/5 * * * *"'
            )

    def _times(self) -> list[datetime]:
        # Each day with a tick has the same ones.
        minute, hour, *_ = self._fields
        ticks = _simulate([minute, hour, "*", "*", "*"], BEGINNING)
        return list(takewhile(lambda tick: tick <= BEGINNING + A_DAY, ticks))

    @property
    def _shortest_days(self) -> timedelta:
        shortest = _shortest_gap(*self._fields[2:])
        if shortest is None:
            raise ValueError(f"{self.expression!r} has no two ticks")
        return shortest


@lru_cache(maxsize=1000)
def _shortest_gap(day: str, month: str, weekday: str) -> timedelta | None:
    # It counts up to decades, so once for all schedules on the same days.
    return min(_gaps(["0", "0", day, month, weekday]), default=None)


def _gaps(fields: list[str]) -> Iterator[timedelta]:
    days = takewhile(lambda tick: tick < END, _simulate(fields, BEGINNING))
    for before, after in pairwise(days):
        yield after - before
        if after - before == A_DAY:
            return


def _simulate(fields: list[str], start: datetime, *, reverse: bool = False) -> CronSim:
    try:
        from cronsim import CronSim, CronSimError
    except ImportError as error:
        raise ImportError(MISSING) from error
    expression = " ".join(fields)
    try:
        return CronSim(expression, start, reverse)
    except CronSimError as error:
        raise ValueError(f"{expression!r} is no cron expression: {error}") from error
