"""Cron expressions: when they tick, also on days on which the clocks change."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from heapq import merge
from itertools import dropwhile, groupby, pairwise, takewhile, tee
from operator import itemgetter
from typing import ClassVar, Self, cast
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from django.utils.functional import cached_property

ONE_DAY = timedelta(days=1)
SIMULATION_START = datetime(2000, 12, 31, 23, 59, tzinfo=UTC)

SHORTHANDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
EXPRESSION_MAX_LENGTH = 200
"""Maximum length: the time zone shares the column."""
MONTH_NAMES = "JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC"
WEEKDAY_NAMES = "SUN|MON|TUE|WED|THU|FRI|SAT"
FIELD_VALUE_PATTERN = f"[0-9]{{1,9}}|{MONTH_NAMES}|{WEEKDAY_NAMES}"
FIELD_PART_PATTERN = re.compile(
    rf"(\*|(?P<first>{FIELD_VALUE_PATTERN})-(?P<last>{FIELD_VALUE_PATTERN}))"
    rf"(/[0-9]{{1,9}})?|{FIELD_VALUE_PATTERN}",
    re.ASCII | re.IGNORECASE,
)
"""What stands between commas; cronsim would read more."""


@dataclass(frozen=True)
class Schedule:
    """
    When cron starts a job: ``"*/5 * * * *"``, or a shorthand such as ``"@daily"``.

    ``time_zone`` is a name such as ``"Europe/Berlin"``; by default, ``TIME_ZONE`` of
    the settings. Raises ``ValueError`` if cron would refuse it, or if it has no
    interval, as ``"@reboot"``.
    """

    expression: str
    time_zone: str | None = None

    # Python's calendar has room before and after them for a search in every zone.
    earliest_moment: ClassVar[datetime] = datetime(100, 1, 1, tzinfo=UTC)
    latest_moment: ClassVar[datetime] = datetime(9900, 1, 1, tzinfo=UTC)

    def __post_init__(self) -> None:
        if not isinstance(self.expression, str):
            raise ValueError(f"{self.expression!r} is no text")
        expression = " ".join(re.split("[ \t]+", self.expression.strip(" \t")))
        object.__setattr__(self, "expression", expression)
        if len(expression) > EXPRESSION_MAX_LENGTH:
            raise ValueError(
                f"{expression!r} has {len(expression)} characters; at most "
                f"{EXPRESSION_MAX_LENGTH} are allowed"
            )
        if expression.startswith("@") and expression not in SHORTHANDS:
            known = ", ".join(SHORTHANDS)
            raise ValueError(f"{expression!r} has no interval; there are {known}")
        _simulate(self._fields, SIMULATION_START)
        if self.time_zone is not None:
            _ = self._zone

    def __str__(self) -> str:
        return f"{self.expression} {self.time_zone or ''}".strip()

    def has_ticks_of(self, other: Self) -> bool:
        """Return whether both are the same, apart from their time zones."""
        return self._meaning == other._meaning

    def ticks_after(self, moment: datetime) -> Iterator[datetime]:
        """
        Return the ticks after the aware ``moment``, in UTC, the oldest first.

        A moment before ``earliest_moment``, or after ``latest_moment``, counts as that.
        """
        moment = self._within_calendar(moment)
        # No later than any time that the zone's clock shows from the moment on: no zone
        # ever changed its clock twice within a day, or by more than a day.
        start = min(self._shown(moment), self._shown(moment + ONE_DAY) - ONE_DAY)
        return dropwhile(moment.__ge__, self._ticks(start))

    def ticks_until(self, moment: datetime) -> Iterator[datetime]:
        """
        Return the ticks up to the aware ``moment``, in UTC, the newest first.

        See ticks_after().
        """
        moment = self._within_calendar(moment)
        # No earlier than any time that the zone's clock shows up to the moment.
        start = max(self._shown(moment), self._shown(moment - ONE_DAY) + ONE_DAY)
        # cronsim begins before its start, but would keep microseconds.
        start = start.replace(microsecond=0) + timedelta(seconds=1)
        return dropwhile(moment.__lt__, self._ticks(start, reverse=True))

    def around(self, moment: datetime) -> tuple[datetime, datetime]:
        """Return the newest tick up to the aware ``moment``, and the first after it."""
        known = vars(self).get("_around")
        # Until the next tick the answer stays the same.
        if known is None or not known[0] <= moment < known[1]:
            known = next(self.ticks_until(moment)), next(self.ticks_after(moment))
            vars(self)["_around"] = known
        return cast(tuple[datetime, datetime], known)

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
        ticks = _simulate([minute, hour, "*", "*", "*"], SIMULATION_START)
        times = list(takewhile((SIMULATION_START + ONE_DAY).__ge__, ticks))
        over_night = shortest_gap - (times[-1] - times[0])
        within_a_day = [after - before for before, after in pairwise(times)]
        return min([over_night, *within_a_day])

    @cached_property
    def _fields(self) -> Sequence[str]:
        return _parse(SHORTHANDS.get(self.expression, self.expression))

    @cached_property
    def _zone(self) -> ZoneInfo:
        try:
            return ZoneInfo(str(self.time_zone))
        except (LookupError, OSError, ValueError) as error:
            raise ValueError(f"there is no time zone {self.time_zone!r}") from error

    @cached_property
    def _follows_the_clock(self) -> bool:
        return any(field.startswith("*") for field in self._fields[:2])

    @property
    def _meaning(self) -> tuple[object, ...]:
        cron = _simulate(self._fields, SIMULATION_START)
        weekdays = {day % 7 for day in cast(set[int], cron.weekdays)}
        fields = (cron.minutes, cron.hours, cron.days, cron.months, weekdays)
        return (*fields, cron.day_and, self._follows_the_clock)

    def _within_calendar(self, moment: datetime) -> datetime:
        bounded = min(max(moment, self.earliest_moment), self.latest_moment)
        return bounded.astimezone(UTC)

    # Note [Days on which the clocks change]
    # cronsim counts the times of a clock that never changes, so all hosts see the same
    # ones, forwards and backwards. When the zone's own clock shows them, Debian's cron
    # decides: a job whose minute or hour begins with a star runs whenever its time is
    # shown, which may be twice or never; any other runs once, the first time, or right
    # after an hour left out.
    # cronsim 2.8 could count in the zone itself, but is wrong where clocks change at
    # midnight. It skips the ticks of a Sunday that begins at 1:00 (Azores), and of a
    # repeated hour before midnight (Santiago). A search backwards never ends over an
    # hour that is left out there (Nuuk).
    def _ticks(self, start: datetime, *, reverse: bool = False) -> Iterator[datetime]:
        times = _simulate(self._fields, start, reverse=reverse)
        if self._follows_the_clock:
            first, again = tee(times)
            shown, shown_again = self._instants(first, 0), self._instants(again, 1)
            instants: Iterator[datetime] = merge(shown, shown_again, reverse=reverse)
        else:
            instants = map(self._first, times)
        return map(itemgetter(0), groupby(instants))

    def _first(self, time: datetime) -> datetime:
        while (instant := self._instant(0, time)) is None:
            time += timedelta(minutes=1)
        return instant

    def _instants(self, times: Iterable[datetime], fold: int) -> Iterator[datetime]:
        for time in times:
            if (instant := self._instant(fold, time)) is not None:
                yield instant

    def _instant(self, fold: int, time: datetime) -> datetime | None:
        instant = time.replace(tzinfo=self._zone, fold=fold).astimezone(UTC)
        return instant if self._shown(instant) == time else None

    def _shown(self, moment: datetime) -> datetime:
        return moment.astimezone(self._zone).replace(tzinfo=None)


# Note [What cron reads]
# An expression is valid if Debian's cron and cronsim read it alike. Those that only
# cronsim reads are refused, as 5/15, and those that cron takes but never runs, as 22-4,
# or reads in part, as 5;7.
@lru_cache(maxsize=1000)
def _parse(expression: str) -> Sequence[str]:
    fields = [field.split(",") for field in expression.split(" ")]
    if len(fields) != 5:
        raise ValueError(
            f"{expression!r} is no cron expression: give minute, hour, day of the "
            'month, month and day of the week, as in "*/5 * * * *"'
        )
    for parts in fields:
        for index, part in enumerate(parts):
            match = FIELD_PART_PATTERN.fullmatch(part)
            if match is None:
                raise ValueError(
                    f"{expression!r} is no cron expression: {part!r} is none of *, "
                    "*/5, 7, 1-5 and 1-30/5, nor a name such as mon or jan"
                )
            if match["first"] is None:
                continue
            first, last = _value(match["first"]), _value(match["last"])
            if first > last:
                raise ValueError(
                    f"{expression!r} is no cron expression: the range {part!r} ends "
                    "before it begins, so cron never runs it. Write two, as in "
                    "22-23,0-4. Sunday is 0, and also 7"
                )
            if first == last:
                # With a step cronsim would take the end of the field, too.
                parts[index] = f"{match['first']},{match['last']}"
    return [",".join(parts) for parts in fields]


def _value(text: str) -> int:
    if text.isdecimal():
        return int(text)
    names, lowest = (
        (WEEKDAY_NAMES, 0) if text.upper() in WEEKDAY_NAMES else (MONTH_NAMES, 1)
    )
    return names.split("|").index(text.upper()) + lowest


@lru_cache(maxsize=1000)
def _shortest_gap(day: str, month: str, weekday: str) -> timedelta | None:
    # This may go through decades, so it is kept for all schedules on the same days.
    ticks = _simulate(["0", "0", day, month, weekday], SIMULATION_START)
    # Two ticks may be 28 years apart: then weekdays and leap years repeat.
    end = datetime(2057, 1, 1, tzinfo=UTC)
    shortest = None
    for before, after in pairwise(takewhile(end.__gt__, ticks)):
        shortest = min(shortest or after - before, after - before)
        if shortest == ONE_DAY:
            break
    return shortest


def _simulate(
    fields: Iterable[str], start: datetime, *, reverse: bool = False
) -> CronSim:
    expression = " ".join(fields)
    try:
        return CronSim(expression, start, reverse)
    except CronSimError as error:
        raise ValueError(f"{expression!r} is no cron expression: {error}") from error
