"""Schedules: their ticks, also on days on which the clocks change."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from heapq import merge
from itertools import dropwhile, groupby, product, tee
from operator import itemgetter
from typing import ClassVar, Self, cast
from zoneinfo import ZoneInfo

from django.utils.functional import cached_property

from django_shedlock.schedules.expressions import CronExpression


@dataclass(frozen=True, init=False)
class Schedule:
    """
    When cron starts a job: ``"*/5 * * * *"``, or a shorthand such as ``"@daily"``.

    A list such as ``["15 6 * * *", "0 10 * * *"]`` has the ticks of all its
    expressions; ``expression`` then joins them, as ``"15 6 * * * | 0 10 * * *"``.
    ``time_zone`` is a name such as ``"Europe/Berlin"``; the default is ``TIME_ZONE`` of
    the settings. Raises ``ValueError`` if cron refuses an expression, if one has no
    interval (``"@reboot"``), or if there is no such time zone.
    """

    expression: str
    time_zone: str | None

    # The record's column holds the expression, a space and the time zone.
    expression_max_length: ClassVar[int] = 200
    # Python's calendar leaves room on both sides for a search in every zone.
    earliest_moment: ClassVar[datetime] = datetime(100, 1, 1, tzinfo=UTC)
    latest_moment: ClassVar[datetime] = datetime(9900, 1, 1, tzinfo=UTC)

    def __init__(self, expression: str | Sequence[str], time_zone: str | None = None):
        given = [expression] if isinstance(expression, str) else expression
        if not isinstance(given, list | tuple):
            raise ValueError(f"{expression!r} is no text, and no list of texts")
        if not given:
            raise ValueError("the list is empty; give one cron expression at least")
        texts: dict[str, None] = {}
        for text in given:
            if not isinstance(text, str):
                raise ValueError(f"{text!r} is no text")
            parts = (part.strip(" \t") for part in text.split("|"))
            texts |= dict.fromkeys(re.sub("[ \t]+", " ", part) for part in parts)
        joined = " | ".join(texts)
        if len(joined) > self.expression_max_length:
            raise ValueError(
                f"{joined!r} has {len(joined)} characters; at most "
                f"{self.expression_max_length} are allowed"
            )
        vars(self).update(expression=joined, time_zone=time_zone)
        _ = self._expressions
        if time_zone is not None:
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
        return dropwhile(moment.__ge__, self._union(start))

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
        return dropwhile(moment.__lt__, self._union(start, reverse=True))

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
        """The expression as five fields; ``None`` if there are several expressions."""
        first, *others = self._expressions
        return None if others else first.five_fields

    @cached_property
    def interval(self) -> timedelta:
        """The shortest time between two ticks, if each day has 24 hours."""
        pairs = product(self._expressions, repeat=2)
        return min(first.shortest_gap(second) for first, second in pairs)

    @cached_property
    def _zone(self) -> ZoneInfo:
        try:
            return ZoneInfo(str(self.time_zone))
        except (LookupError, OSError, ValueError) as error:
            raise ValueError(f"there is no time zone {self.time_zone!r}") from error

    @cached_property
    def _expressions(self) -> Sequence[CronExpression]:
        return [CronExpression(text) for text in self.expression.split(" | ")]

    @cached_property
    def _meaning(self) -> Mapping[tuple[bool, timedelta], int]:
        """The days with a tick at each time of a day, by how it follows a clock."""
        meaning: dict[tuple[bool, timedelta], int] = defaultdict(int)
        for expression in self._expressions:
            for time in expression.times:
                meaning[expression.follows_the_clock, time] |= expression.days
        return meaning

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
    def _union(self, start: datetime, *, reverse: bool = False) -> Iterator[datetime]:
        ticks = [
            self._ticks(expression, start, reverse=reverse)
            for expression in self._expressions
        ]
        return map(itemgetter(0), groupby(merge(*ticks, reverse=reverse)))

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
