"""Cron expressions, and their ticks, also on days on which the clocks change."""

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

SHORTHANDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
NAMED_VALUES = {
    "SUN": 0,
    "MON": 1,
    "TUE": 2,
    "WED": 3,
    "THU": 4,
    "FRI": 5,
    "SAT": 6,
    "JAN": 1,
    "FEB": 2,
    "MAR": 3,
    "APR": 4,
    "MAY": 5,
    "JUN": 6,
    "JUL": 7,
    "AUG": 8,
    "SEP": 9,
    "OCT": 10,
    "NOV": 11,
    "DEC": 12,
}


@dataclass(frozen=True)
class Schedule:
    """
    When cron starts a job: ``"*/5 * * * *"``, or a shorthand such as ``"@daily"``.

    ``time_zone`` is a name such as ``"Europe/Berlin"``; the default is ``TIME_ZONE`` of
    the settings. Raises ``ValueError`` if cron refuses the expression, if the
    expression has no interval (``"@reboot"``), or if there is no such time zone.
    """

    expression: str
    time_zone: str | None = None

    # The record's column holds the expression, a space and the time zone.
    expression_max_length: ClassVar[int] = 200
    # Python's calendar leaves room on both sides for a search in every zone.
    earliest_moment: ClassVar[datetime] = datetime(100, 1, 1, tzinfo=UTC)
    latest_moment: ClassVar[datetime] = datetime(9900, 1, 1, tzinfo=UTC)

    def __post_init__(self) -> None:
        if not isinstance(self.expression, str):
            raise ValueError(f"{self.expression!r} is no text")
        expression = " ".join(re.split("[ \t]+", self.expression.strip(" \t")))
        object.__setattr__(self, "expression", expression)
        if len(expression) > self.expression_max_length:
            raise ValueError(
                f"{expression!r} has {len(expression)} characters; at most "
                f"{self.expression_max_length} are allowed"
            )
        if expression.startswith("@") and expression not in SHORTHANDS:
            known = ", ".join(SHORTHANDS)
            raise ValueError(f"{expression!r} has no interval; there are {known}")
        _simulate(self._fields)
        if self.time_zone is not None:
            _ = self._zone

    def __str__(self) -> str:
        return f"{self.expression} {self.time_zone or ''}".strip()

    def has_ticks_of(self, other: Self) -> bool:
        """Return whether both schedules are the same, apart from their time zones."""
        return self._meaning == other._meaning

    def ticks_after(self, moment: datetime) -> Iterator[datetime]:
        """
        Return the ticks after the aware ``moment``, in UTC, the oldest first.

        A moment before ``earliest_moment`` counts as ``earliest_moment``, and one after
        ``latest_moment`` as ``latest_moment``.
        """
        moment, day = self._within_calendar(moment), timedelta(days=1)
        # The zone's clock shows no earlier time from the moment on: no zone ever
        # changed its clock twice within a day, or by more than a day.
        start = min(self._shown(moment), self._shown(moment + day) - day)
        return dropwhile(moment.__ge__, self._ticks(start))

    def ticks_until(self, moment: datetime) -> Iterator[datetime]:
        """
        Return the ticks up to the aware ``moment``, in UTC, the newest first.

        The limits of ``ticks_after()`` apply.
        """
        moment, day = self._within_calendar(moment), timedelta(days=1)
        # The zone's clock shows no later time up to the moment.
        start = max(self._shown(moment), self._shown(moment - day) + day)
        # cronsim begins before its start, and keeps the microseconds of the start.
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

    @property
    def five_fields(self) -> str:
        """The expression as five fields: those that a shorthand stands for."""
        return SHORTHANDS.get(self.expression, self.expression)

    @cached_property
    def interval(self) -> timedelta:
        """
        The shortest time between two ticks, if each day has 24 hours.

        Raises ``ValueError`` if there are no two ticks.
        """
        minute, hour, *days = self._fields
        shortest_gap = _shortest_gap(*days)
        if shortest_gap is None:
            raise ValueError(f"{self.expression!r} has no two ticks")
        # Each day with a tick has the same times.
        ticks = _simulate([minute, hour, "*", "*", "*"])
        _, ticks_of_a_day = next(groupby(ticks, datetime.date))
        times = list(ticks_of_a_day)
        over_night = shortest_gap - (times[-1] - times[0])
        within_a_day = [after - before for before, after in pairwise(times)]
        return min([over_night, *within_a_day])

    @cached_property
    def _fields(self) -> Sequence[str]:
        return _parse(self.five_fields)

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
        cron = _simulate(self._fields)
        weekdays = {day % 7 for day in cast(set[int], cron.weekdays)}
        fields = (cron.minutes, cron.hours, cron.days, cron.months, weekdays)
        return (*fields, cron.day_and, self._follows_the_clock)

    def _within_calendar(self, moment: datetime) -> datetime:
        bounded = min(max(moment, self.earliest_moment), self.latest_moment)
        return bounded.astimezone(UTC)

    # Note [Days on which the clocks change]
    # cronsim counts the times of a clock that never changes, so all hosts see the same
    # times, forwards and backwards. The rules of Debian's cron say when the zone's own
    # clock shows them. A job whose minute or hour begins with a star runs each time
    # that the clock shows its time, which may be twice or never. Any other job runs
    # once: the first time, or right after an hour that is left out.
    # cronsim 2.8 can count in the zone itself, but is wrong where clocks change at
    # midnight. It skips the ticks of a Sunday that begins at 1:00 (Azores), and those
    # of a repeated hour before midnight (Santiago). A backward search over an hour that
    # is left out there never ends (Nuuk).
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
# An expression is valid if Debian's cron and cronsim read it alike. Expressions that
# only cronsim reads (5/15) are refused. So are those that cron accepts but never runs
# (22-4), or reads only in part (5;7).
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
            match = _match_part(part)
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
                # With a step, cronsim would go on to the end of the field.
                parts[index] = f"{match['first']},{match['last']}"
    return [",".join(parts) for parts in fields]


def _match_part(part: str) -> re.Match[str] | None:
    """Match what stands between two commas; a range has groups ``first``, ``last``."""
    value = "|".join(["[0-9]{1,9}", *NAMED_VALUES])
    every_or_range = rf"\*|(?P<first>{value})-(?P<last>{value})"
    step = "/(?=0*[1-9])[0-9]{1,9}"
    pattern = rf"({every_or_range})({step})?|{value}"
    return re.fullmatch(pattern, part, re.ASCII | re.IGNORECASE)


def _value(text: str) -> int:
    return int(text) if text.isdecimal() else NAMED_VALUES[text.upper()]


@lru_cache(maxsize=1000)
def _shortest_gap(day: str, month: str, weekday: str) -> timedelta | None:
    # A search may go through decades, so its result is kept for all schedules that run
    # on the same days.
    ticks = _simulate(["0", "0", day, month, weekday])
    # Two ticks may be 28 years apart: then weekdays and leap years repeat.
    end = datetime(2057, 1, 1, tzinfo=UTC)
    shortest = None
    for before, after in pairwise(takewhile(end.__gt__, ticks)):
        shortest = min(shortest or after - before, after - before)
        if shortest == timedelta(days=1):
            break
    return shortest


def _simulate(
    fields: Iterable[str],
    start: datetime = datetime(2000, 12, 31, 23, 59, tzinfo=UTC),
    *,
    reverse: bool = False,
) -> CronSim:
    expression = " ".join(fields)
    try:
        return CronSim(expression, start, reverse)
    except CronSimError as error:
        raise ValueError(f"{expression!r} is no cron expression: {error}") from error
