"""Cron expressions: when they tick, also on days on which the clocks change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from heapq import merge
from itertools import dropwhile, groupby, pairwise, takewhile, tee
from typing import TYPE_CHECKING, cast
from zoneinfo import ZoneInfo

from django.utils.functional import cached_property

if TYPE_CHECKING:
    from cronsim import CronSim

A_DAY = timedelta(days=1)
"""No zone ever changed its clock twice within a day, or by more than a day."""
A_MINUTE = timedelta(minutes=1)
A_SECOND = timedelta(seconds=1)
FIRST = datetime(100, 1, 1, tzinfo=UTC)
LAST = datetime(9900, 1, 1, tzinfo=UTC)
"""Between these two Python's calendar has room for a search in every zone."""
BEGINNING = datetime(2000, 12, 31, 23, 59, tzinfo=UTC)
END = datetime(2057, 1, 1, tzinfo=UTC)
"""Two ticks may be 28 years apart: then weekdays and leap years repeat."""

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
"""Maximum length: the time zone shares the column."""
MONTHS = "JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC"
WEEKDAYS = "SUN|MON|TUE|WED|THU|FRI|SAT"
BLANKS = re.compile("[ \t]+")
VALUE = f"[0-9]{{1,9}}|{MONTHS}|{WEEKDAYS}"
PART = re.compile(
    rf"(\*|(?P<first>{VALUE})-(?P<last>{VALUE}))(/[0-9]{{1,9}})?|{VALUE}",
    re.ASCII | re.IGNORECASE,
)
"""What stands between commas; cronsim would read more."""
MISSING = "cronsim is missing. Install django-shedlock[schedules]"


@dataclass(frozen=True)
class Schedule:
    """
    When cron starts a job: ``"*/5 * * * *"``, or a shorthand such as ``"@daily"``.

    ``time_zone`` is a name such as ``"Europe/Berlin"``; by default, ``TIME_ZONE`` of
    the settings. Raises ``ValueError`` if cron would refuse it, or if it has no
    interval, as ``"@reboot"``; ``ImportError`` without cronsim.
    """

    expression: str
    time_zone: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.expression, str):
            written = " ".join(BLANKS.split(self.expression.strip(" \t")))
            object.__setattr__(self, "expression", written)
        self._refuse_other_texts()
        _simulate(self._fields, BEGINNING)
        if self.time_zone is not None:
            _ = self._clock

    def __str__(self) -> str:
        return f"{self.expression} {self.time_zone or ''}".strip()

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """Return the schedule from ``str()`` of one with a time zone."""
        expression, _, time_zone = text.rpartition(" ")
        return cls(expression, time_zone)

    def has_ticks_of(self, other: Schedule) -> bool:
        """Return whether both are the same, apart from their time zones."""
        return self._meaning == other._meaning

    def ticks_after(self, moment: datetime) -> Iterator[datetime]:
        """
        Return the ticks after the aware ``moment``, in UTC, the oldest first.

        What is before ``FIRST`` counts as that, and what is after ``LAST``, too.
        """
        moment = _within_calendar(moment)
        ticks = self._ticks(self._clock.no_later(moment))
        return dropwhile(lambda tick: tick <= moment, ticks)

    def ticks_until(self, moment: datetime) -> Iterator[datetime]:
        """
        Return the ticks up to the aware ``moment``, in UTC, the newest first.

        See ticks_after().
        """
        moment = _within_calendar(moment)
        # cronsim begins before its start, but would keep microseconds.
        start = self._clock.no_earlier(moment).replace(microsecond=0) + A_SECOND
        ticks = self._ticks(start, reverse=True)
        return dropwhile(lambda tick: tick > moment, ticks)

    @cached_property
    def interval(self) -> timedelta:
        """
        The shortest time between two ticks, where all days have 24 hours.

        Raises ``ValueError`` if there are no two ticks.
        """
        minute, hour, *days = self._fields
        shortest_gap = _shortest_gap(*days)
        if shortest_gap is None:
            raise ValueError(f"{self.expression!r} has no two ticks")
        # Each day with a tick has the same times.
        ticks = _simulate([minute, hour, "*", "*", "*"], BEGINNING)
        times = list(takewhile(lambda tick: tick <= BEGINNING + A_DAY, ticks))
        over_night = shortest_gap - (times[-1] - times[0])
        within_a_day = [after - before for before, after in pairwise(times)]
        return min([over_night, *within_a_day])

    @property
    def _meaning(self) -> tuple[object, ...]:
        cron = _simulate(self._fields, BEGINNING)
        weekdays = {day % 7 for day in cast(set[int], cron.weekdays)}
        fields = (cron.minutes, cron.hours, cron.days, cron.months, weekdays)
        return (*fields, cron.day_and, self._follows_the_clock)

    @property
    def _fields(self) -> tuple[str, ...]:
        return _fields(SHORTHANDS.get(self.expression, self.expression))

    # Note [Days on which the clocks change]
    # cronsim counts the times of a clock that never changes, so all hosts see the same
    # ones, forwards and backwards. When the zone's own clock shows them, Debian's cron
    # decides: a job whose minute or hour begins with a star runs whenever its time is
    # shown; any other runs once, the first time, or right after an hour left out.
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
        try:
            return WallClock(ZoneInfo(str(self.time_zone)))
        except (LookupError, OSError, ValueError) as error:
            raise ValueError(f"there is no time zone {self.time_zone!r}") from error

    def _refuse_other_texts(self) -> None:
        if not isinstance(self.expression, str):
            raise ValueError(f"{self.expression!r} is no text")
        if len(self.expression) > LONGEST_EXPRESSION:
            raise ValueError(
                f"{self.expression!r} has {len(self.expression)} characters; at most "
                f"{LONGEST_EXPRESSION} are allowed"
            )
        if self.expression.startswith("@") and self.expression not in SHORTHANDS:
            known = ", ".join(SHORTHANDS)
            raise ValueError(f"{self.expression!r} has no interval; there are {known}")


# Note [What cron reads]
# An expression is valid if Debian's cron and cronsim read it alike. Those that only
# cronsim reads are refused, as 5/15, and those that cron takes but never runs, as 22-4,
# or reads in part, as 5;7.
@lru_cache(maxsize=1000)
def _fields(expression: str) -> tuple[str, ...]:
    fields = [field.split(",") for field in expression.split(" ")]
    if len(fields) != 5:
        raise ValueError(
            f"{expression!r} is no cron expression: give minute, hour, day of the "
            'month, month and day of the week, as in "*/5 * * * *"'
        )
    return tuple(
        ",".join(_part(expression, part) for part in parts) for parts in fields
    )


def _part(expression: str, part: str) -> str:
    match = PART.fullmatch(part)
    if match is None:
        raise ValueError(
            f"{expression!r} is no cron expression: {part!r} is none of *, */5, 7, "
            "1-5 and 1-30/5, nor a name such as mon or jan"
        )
    if match["first"] is None:
        return part
    first, last = _value(match["first"]), _value(match["last"])
    if first > last:
        raise ValueError(
            f"{expression!r} is no cron expression: the range {part!r} ends before it "
            "begins, so cron never runs it. Write two, as in 22-23,0-4. Sunday is 0, "
            "and also 7"
        )
    # Of a range of one value with a step cronsim would take the end of the field, too.
    return part if first < last else match["first"]


def _value(text: str) -> int:
    if text.isdecimal():
        return int(text)
    names, lowest = (WEEKDAYS, 0) if text.upper() in WEEKDAYS else (MONTHS, 1)
    return names.split("|").index(text.upper()) + lowest


@lru_cache(maxsize=1000)
def _shortest_gap(day: str, month: str, weekday: str) -> timedelta | None:
    # This may go through decades, so it is kept for all schedules on the same days.
    return min(_gaps(["0", "0", day, month, weekday]), default=None)


def _gaps(fields: Iterable[str]) -> Iterator[timedelta]:
    days = takewhile(lambda tick: tick < END, _simulate(fields, BEGINNING))
    for before, after in pairwise(days):
        yield after - before
        if after - before == A_DAY:
            return


def _simulate(
    fields: Iterable[str], start: datetime, *, reverse: bool = False
) -> CronSim:
    try:
        from cronsim import CronSim, CronSimError
    except ImportError as error:
        raise ImportError(MISSING) from error
    expression = " ".join(fields)
    try:
        return CronSim(expression, start, reverse)
    except CronSimError as error:
        raise ValueError(f"{expression!r} is no cron expression: {error}") from error


def _within_calendar(moment: datetime) -> datetime:
    return min(max(moment, FIRST), LAST).astimezone(UTC)


@dataclass(frozen=True)
class WallClock:
    """
    A clock on the wall of a zone: it shows naive times, some twice, others never.

    Its methods turn times, in order or in reverse order, into their instants in UTC, in
    the same order and without repetition.
    """

    zone: ZoneInfo

    def no_later(self, moment: datetime) -> datetime:
        """Return a time not later than any shown from this instant on."""
        return min(self._shown(moment), self._shown(moment + A_DAY) - A_DAY)

    def no_earlier(self, moment: datetime) -> datetime:
        """Return a time not earlier than any shown up to this instant."""
        return max(self._shown(moment), self._shown(moment - A_DAY) + A_DAY)

    def once(self, times: Iterable[datetime]) -> Iterator[datetime]:
        """Return when each time is first shown, or passed if it is left out."""
        return _each_once(map(self._first, times))

    def each_time(
        self, times: Iterable[datetime], *, reverse: bool = False
    ) -> Iterator[datetime]:
        """Return whenever a time is shown, which may be twice or never."""
        first, again = tee(times)
        shown = (self._all(first, fold=0), self._all(again, fold=1))
        return _each_once(merge(*shown, reverse=reverse))

    def _first(self, time: datetime) -> datetime:
        instant = self._instant(time, fold=0)
        while instant is None:
            time += A_MINUTE
            instant = self._instant(time, fold=0)
        return instant

    def _all(self, times: Iterable[datetime], *, fold: int) -> Iterator[datetime]:
        instants = (self._instant(time, fold=fold) for time in times)
        return (instant for instant in instants if instant is not None)

    def _instant(self, time: datetime, *, fold: int) -> datetime | None:
        instant = time.replace(tzinfo=self.zone, fold=fold).astimezone(UTC)
        return instant if self._shown(instant) == time else None

    def _shown(self, moment: datetime) -> datetime:
        return moment.astimezone(self.zone).replace(tzinfo=None)


def _each_once(instants: Iterable[datetime]) -> Iterator[datetime]:
    return (instant for instant, _ in groupby(instants))
