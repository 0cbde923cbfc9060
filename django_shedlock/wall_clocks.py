"""The clock of a time zone, which is changed now and then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from heapq import merge
from itertools import groupby, tee
from zoneinfo import ZoneInfo

A_DAY = timedelta(days=1)
"""No zone has ever changed its clock twice within a day, nor by more than one."""
A_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class WallClock:
    """
    The clock on a wall of the zone: the times that it shows are naive.

    Some it shows twice, others it leaves out. Of times in their order, or all from the
    newest to the oldest, it tells the instants in UTC in that order, and none twice.
    """

    zone: ZoneInfo

    def no_later(self, moment: datetime) -> datetime:
        """Return a time that is no later than any shown from this instant on."""
        return min(self._shown(moment), self._shown(moment + A_DAY) - A_DAY)

    def no_earlier(self, moment: datetime) -> datetime:
        """Return a time that is no earlier than any shown up to this instant."""
        return max(self._shown(moment), self._shown(moment - A_DAY) + A_DAY)

    def once(self, times: Iterable[datetime]) -> Iterator[datetime]:
        """Return when each is shown first, or passed over if it is left out."""
        return _each_once(map(self._first, times))

    def each_time(
        self, times: Iterable[datetime], *, reverse: bool = False
    ) -> Iterator[datetime]:
        """Return whenever one is shown, which may be twice or never."""
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
