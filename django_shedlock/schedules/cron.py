"""Schedules: their ticks, also on days on which the clocks change."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from heapq import merge
from itertools import dropwhile, groupby, permutations, product, tee
from operator import attrgetter, itemgetter
from typing import ClassVar, Self, cast
from zoneinfo import ZoneInfo

from django.utils.functional import cached_property

from django_shedlock.schedules.expressions import CronExpression
from django_shedlock.schedules.intervals import Interval, is_interval

WrittenSchedule = str | timedelta | Sequence[str | timedelta]
"""A cron expression, an interval, or a list of these, as people write it."""


@dataclass(frozen=True, init=False)
class Schedule:
    """
    When a job is due: by a cron expression, by an interval, or by a list of these.

    A cron expression is ``"*/5 * * * *"``, or a shorthand such as ``"@daily"``. An
    interval is a ``timedelta`` or a text such as ``"every 20s"``, in whole seconds; its
    ticks are the multiples since 1970-01-01 00:00 UTC. A list such as
    ``["15 6 * * *", "every 2h"]`` has the ticks of all its parts.

    ``expression`` is the one text of a schedule, whatever the order of its list:
    ``"15 6 * * * | every 2h"``. Cron expressions are sorted by their first time of a
    day, and intervals, which follow them, by length. ``time_zone`` is a name such as
    ``"Europe/Berlin"``; the default is ``TIME_ZONE`` of the settings. That of intervals
    alone is always ``"UTC"``. Raises ``ValueError`` if cron refuses an expression, if
    one has no interval (``"@reboot"``), if an interval is too short, too long or no
    whole number of seconds, or if there is no such time zone.
    """

    expression: str
    time_zone: str | None
    _crons: Sequence[CronExpression] = field(init=False, repr=False, compare=False)
    _intervals: Sequence[Interval] = field(init=False, repr=False, compare=False)

    # The record's column holds the expression, a space and the time zone.
    expression_max_length: ClassVar[int] = 200
    # Python's calendar leaves room on both sides for a search in every zone.
    earliest_moment: ClassVar[datetime] = datetime(100, 1, 1, tzinfo=UTC)
    latest_moment: ClassVar[datetime] = datetime(9900, 1, 1, tzinfo=UTC)

    def __init__(self, expression: WrittenSchedule, time_zone: str | None = None):
        is_one = isinstance(expression, str | timedelta)
        given = [expression] if is_one else expression
        if not isinstance(given, list | tuple):
            raise _wrong_type(expression)
        if not given:
            raise ValueError(
                "the list is empty; give a cron expression, or an interval such as "
                '"every 20s"'
            )
        parts = {part for written in given for part in _parse(written)}
        crons = [part for part in parts if isinstance(part, CronExpression)]
        intervals = [part for part in parts if isinstance(part, Interval)]
        crons.sort(key=attrgetter("first_time", "text"))
        intervals.sort(key=attrgetter("length"))
        texts = [*(cron.text for cron in crons), *(each.text for each in intervals)]
        joined = " | ".join(texts)
        if len(joined) > self.expression_max_length:
            raise ValueError(
                f"{joined!r} has {len(joined)} characters; at most "
                f"{self.expression_max_length} are allowed, so write it with fewer "
                "or shorter parts"
            )
        if time_zone is not None:
            _ = _find_zone(time_zone)
        if not crons:
            time_zone = "UTC"  # one text for one schedule, whatever the settings
        vars(self).update(expression=joined, time_zone=time_zone)
        vars(self).update(_crons=crons, _intervals=intervals)

    def __str__(self) -> str:
        return f"{self.expression} {self.time_zone or ''}".strip()

    def has_ticks_of(self, other: Self) -> bool:
        """Return whether both schedules are the same, apart from their time zones."""
        is_same = self.expression == other.expression
        return is_same or self._meaning == other._meaning

    def ticks_after(self, moment: datetime) -> Iterator[datetime]:
        """
        Return the ticks after the aware ``moment``, in UTC, the oldest first.

        A moment before ``earliest_moment`` counts as ``earliest_moment``, and one after
        ``latest_moment`` as ``latest_moment``.
        """
        moment = self._within_calendar(moment)
        parts = [each.ticks_after(moment) for each in self._intervals]
        if self._crons:
            parts.append(self._cron_ticks_after(moment))
        return _union(parts)

    def ticks_until(self, moment: datetime) -> Iterator[datetime]:
        """
        Return the ticks up to the aware ``moment``, in UTC, the newest first.

        The limits of ``ticks_after()`` apply.
        """
        moment = self._within_calendar(moment)
        parts = [each.ticks_until(moment) for each in self._intervals]
        if self._crons:
            parts.append(self._cron_ticks_until(moment))
        return _union(parts, reverse=True)

    def around(self, moment: datetime) -> tuple[datetime, datetime]:
        """Return the newest tick up to the aware ``moment``, and the first after it."""
        known = vars(self).get("_around")
        # Until the next tick the answer stays the same.
        if known is None or not known[0] <= moment < known[1]:
            known = next(self.ticks_until(moment)), next(self.ticks_after(moment))
            vars(self)["_around"] = known
        return cast(tuple[datetime, datetime], known)

    @property
    def five_fields(self) -> str | None:
        """The schedule as five fields; ``None`` if it isn't one cron expression."""
        if len(self._crons) > 1 or self._intervals:
            return None
        return self._crons[0].five_fields

    @property
    def single_interval(self) -> timedelta | None:
        """The time between all ticks; ``None`` if the schedule isn't one interval."""
        if len(self._intervals) > 1 or self._crons:
            return None
        return self._intervals[0].length

    @cached_property
    def interval(self) -> timedelta:
        """
        The shortest time between two ticks, if each day has 24 hours.

        It may be shorter than that between a cron expression which does not tick on
        each day and an interval which does not divide a day.
        """
        pairs = product(self._crons, repeat=2)
        gaps = [first.shortest_gap(second) for first, second in pairs]
        for one, other in product(self._intervals, repeat=2):
            gaps.append(one.shortest_gap(other))
        for interval, cron in product(self._intervals, self._crons):
            times = product(cron.times, self._offsets)
            shown = (time - offset for time, offset in times)
            gaps.append(interval.shortest_gap_to_daily(shown))
        return min(gaps)

    @cached_property
    def _zone(self) -> ZoneInfo:
        return _find_zone(str(self.time_zone))

    @property
    def _offsets(self) -> Collection[timedelta]:
        """How far the zone's clock is ahead of UTC in a year, by its present rules."""
        if self.time_zone is None:
            return [timedelta(0)]
        # Only the rules that hold for good reach so far.
        months = (datetime(2100, month, 1, tzinfo=self._zone) for month in range(1, 13))
        return {month.utcoffset() or timedelta(0) for month in months}

    @cached_property
    def _meaning(self) -> tuple[Mapping[tuple[bool, timedelta], int], Set[Interval]]:
        """
        The days with a tick at each time of a day, by how it follows a clock.

        The intervals are those that no cron expression expresses.
        """
        intervals = set(self._intervals)
        for one, other in permutations(self._intervals, 2):
            if one.is_multiple_of(other):  # it adds no tick
                intervals.discard(one)
        crons = [*self._crons]
        for interval in set(intervals):
            if (same := _same_in_cron(interval)) is not None:
                intervals.discard(interval)
                crons.append(same)
        days: dict[tuple[bool, timedelta], int] = defaultdict(int)
        for cron in crons:
            for time in cron.times:
                days[cron.follows_the_clock, time] |= cron.days
        return days, intervals

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
    def _cron_ticks_after(self, moment: datetime) -> Iterator[datetime]:
        # The zone's clock shows no earlier time from the moment on: no zone ever
        # changed its clock twice within a day, or by more than a day.
        day = timedelta(days=1)
        start = min(self._shown(moment), self._shown(moment + day) - day)
        ticks = _union(self._ticks(cron, start, reverse=False) for cron in self._crons)
        return dropwhile(moment.__ge__, ticks)

    def _cron_ticks_until(self, moment: datetime) -> Iterator[datetime]:
        # The zone's clock shows no later time up to the moment.
        day = timedelta(days=1)
        start = max(self._shown(moment), self._shown(moment - day) + day)
        # cronsim begins before its start, and keeps the microseconds of the start.
        start = start.replace(microsecond=0) + timedelta(seconds=1)
        parts = (self._ticks(cron, start, reverse=True) for cron in self._crons)
        return dropwhile(moment.__lt__, _union(parts, reverse=True))

    def _ticks(
        self, expression: CronExpression, start: datetime, *, reverse: bool
    ) -> Iterator[datetime]:
        times = expression.simulate(start, reverse=reverse)
        if not expression.follows_the_clock:
            return map(self._first, times)
        first, again = tee(times)
        shown, shown_again = self._instants(first, 0), self._instants(again, 1)
        return merge(shown, shown_again, reverse=reverse)

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


def _parse(written: object) -> Iterator[CronExpression | Interval]:
    """Return the parts of a text, which may be a schedule's, or of a ``timedelta``."""
    if isinstance(written, timedelta):
        yield Interval.parse(written)
    elif isinstance(written, str):
        for part in written.split("|"):
            text = re.sub("[ \t]+", " ", part.strip(" \t"))
            yield Interval.parse(text) if is_interval(text) else CronExpression(text)
    else:
        raise _wrong_type(written)


def _find_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (LookupError, OSError, ValueError) as error:
        raise ValueError(f"there is no time zone {name!r}") from error


def _wrong_type(written: object) -> ValueError:
    return ValueError(
        f"{written!r} is no schedule: give a cron expression, an interval such as "
        '"every 20s" or timedelta(seconds=20), or a list of these'
    )


def _union(
    parts: Iterable[Iterator[datetime]], *, reverse: bool = False
) -> Iterator[datetime]:
    return map(itemgetter(0), groupby(merge(*parts, reverse=reverse)))


def _same_in_cron(interval: Interval) -> CronExpression | None:
    """Return the cron expression with the same ticks in each time zone, if any."""
    # The clocks of all zones are ahead of UTC by a multiple of a quarter of an hour.
    if not Interval(timedelta(minutes=15)).is_multiple_of(interval):
        return None
    minutes, rest = divmod(interval.length, timedelta(minutes=1))
    return None if rest else CronExpression(f"*/{minutes} * * * *")
