"""Cron expressions, and how often they tick."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cronsim import CronSim

A_DAY = timedelta(days=1)
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
NAMES = re.compile(
    "JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC|SUN|MON|TUE|WED|THU|FRI|SAT"
)
"""The words of cron; other programs also know L, W and #."""


@dataclass(frozen=True)
class Schedule:
    """
    When cron starts a job: ``"*/5 * * * *"``, or a shorthand such as ``"@daily"``.

    Raises ``ValueError`` if cron would not take it, or if it never ticks twice, as
    ``"@reboot"``.
    """

    expression: str

    def __post_init__(self) -> None:
        self._refuse_unless_five_fields()
        _simulate(self._fields)

    @cached_property
    def interval(self) -> timedelta:
        """
        The shortest time between two ticks, where all days have 24 hours.

        Raises ``ValueError`` if there are no two ticks.
        """
        times = self._times()
        over_night = self._shortest_days() - (times[-1] - times[0])
        within_a_day = [after - before for before, after in pairwise(times)]
        return min([over_night, *within_a_day])

    @property
    def _fields(self) -> list[str]:
        return SHORTHANDS.get(self.expression, self.expression).split()

    def _refuse_unless_five_fields(self) -> None:
        if not isinstance(self.expression, str):
            raise ValueError(f"{self.expression!r} is no text")
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
        ticks = _simulate([minute, hour, "*", "*", "*"])
        return list(takewhile(lambda tick: tick <= BEGINNING + A_DAY, ticks))

    def _shortest_days(self) -> timedelta:
        shortest = min(self._gaps_of_days(), default=None)
        if shortest is None:
            raise ValueError(f"{self.expression!r} has no two ticks")
        return shortest

    def _gaps_of_days(self) -> Iterator[timedelta]:
        ticks = _simulate(["0", "0", *self._fields[2:]])
        days = takewhile(lambda tick: tick < END, ticks)
        for before, after in pairwise(days):
            yield after - before
            if after - before == A_DAY:
                return


def _simulate(fields: list[str]) -> CronSim:
    from cronsim import CronSim, CronSimError

    expression = " ".join(fields)
    try:
        return CronSim(expression, BEGINNING)
    except CronSimError as error:
        raise ValueError(f"{expression!r} is no cron expression: {error}") from error
