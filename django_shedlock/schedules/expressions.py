"""One cron expression: what it means by a clock that never changes."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, cast

from django.utils.functional import cached_property

if TYPE_CHECKING:
    from cronsim import CronSim

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
CALENDAR_DAYS = 10227
"""After 28 years, weekdays and leap years repeat."""


@dataclass(frozen=True)
class CronExpression:
    """
    A cron expression such as ``"*/5 * * * *"``, or a shorthand such as ``"@daily"``.

    Raises ``ValueError`` if cron refuses it, or if it has no ticks (``"@reboot"``).
    """

    text: str

    def __post_init__(self) -> None:
        if self.text.startswith("@") and self.text not in SHORTHANDS:
            known = ", ".join(SHORTHANDS)
            raise ValueError(f"{self.text!r} has no interval; there are {known}")
        _ = self._cron

    @property
    def five_fields(self) -> str:
        """The expression as five fields: those that a shorthand stands for."""
        return SHORTHANDS.get(self.text, self.text)

    @cached_property
    def follows_the_clock(self) -> bool:
        """Whether it ticks each time that a clock shows its time."""
        return any(field.startswith("*") for field in self._fields[:2])

    @cached_property
    def times(self) -> Sequence[timedelta]:
        """The ticks of a day, from its midnight on. Each day with a tick has all."""
        return [
            timedelta(hours=hour, minutes=minute)
            for hour in sorted(self._cron.hours)
            for minute in sorted(self._cron.minutes)
        ]

    @property
    def first_time(self) -> timedelta:
        """The first of the ``times``, without reckoning all of them."""
        hour, minute = min(self._cron.hours), min(self._cron.minutes)
        return timedelta(hours=hour, minutes=minute)

    @property
    def days(self) -> int:
        """The days with a tick: each bit is a day of ``CALENDAR_DAYS``."""
        return _days_of(*self._fields[2:])

    def shortest_gap(self, other: "CronExpression") -> timedelta:
        """Return the shortest time from a tick to a later one that ``other`` has."""
        apart = timedelta(days=_days_apart(self.days, other.days))
        gaps = [apart + other.times[0] - self.times[-1]]
        if self.days & other.days:
            times = sorted({*self.times, *other.times})
            gaps += [after - before for before, after in pairwise(times)]
        return min(gaps)

    def simulate(self, start: datetime, *, reverse: bool) -> Iterator[datetime]:
        """Return the ticks after ``start``, or those before it, the newest first."""
        return _simulate(self._fields, start, reverse=reverse)

    @cached_property
    def _cron(self) -> "CronSim":
        return _simulate(self._fields)

    @cached_property
    def _fields(self) -> Sequence[str]:
        return _parse_fields(self.five_fields)


# Note [What cron reads]
# An expression is valid if Debian's cron and cronsim read it alike. Expressions that
# only cronsim reads (5/15) are refused. So are those that cron accepts but never runs
# (22-4), or reads only in part (5;7).
@lru_cache(maxsize=1000)
def _parse_fields(expression: str) -> Sequence[str]:
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
def _days_of(day: str, month: str, weekday: str) -> int:
    # Many schedules run on the same days, so the result is kept for all of them.
    cron = _simulate(["0", "0", day, month, weekday])
    weekdays = {number % 7 for number in cast(set[int], cron.weekdays)}
    combine = all if cron.day_and else any
    first = date(2001, 1, 1).toordinal()
    bits = [
        each.month in cron.months
        and combine((each.day in cron.days, each.isoweekday() % 7 in weekdays))
        for each in map(date.fromordinal, range(first, first + CALENDAR_DAYS))
    ]
    return int("".join("01"[has_tick] for has_tick in reversed(bits)), 2)


def _days_apart(these: int, those: int) -> int:
    """Return how many days lie at least between one of these and a later of those."""
    those |= those << CALENDAR_DAYS
    return next(n for n in range(1, CALENDAR_DAYS + 1) if these << n & those)


def _simulate(
    fields: Iterable[str],
    start: datetime = datetime(2000, 12, 31, 23, 59, tzinfo=UTC),
    *,
    reverse: bool = False,
) -> "CronSim":
    # Only jobs with a cron expression need it.
    from cronsim import CronSim, CronSimError

    expression = " ".join(fields)
    try:
        return CronSim(expression, start, reverse)
    except CronSimError as error:
        raise ValueError(f"{expression!r} is no cron expression: {error}") from error
