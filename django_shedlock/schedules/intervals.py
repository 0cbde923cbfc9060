"""An interval such as ``"every 20s"``: what cron can't express."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from math import gcd

from django_shedlock.durations import format_duration, parse_duration

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
INTERVAL_PREFIX = "every "
SHORTEST_INTERVAL = timedelta(seconds=1)
LONGEST_INTERVAL = timedelta(days=366)


@dataclass(frozen=True)
class Interval:
    """
    The multiples of a ``length`` since 1970-01-01 00:00 UTC, whatever the time zone.

    So all hosts have the same ticks, and a restart moves none. Make it by ``parse()``,
    which checks the length.
    """

    length: timedelta

    @classmethod
    def parse(cls, written: timedelta | str) -> "Interval":
        """
        Return the interval of a ``timedelta``, or of a text such as ``"every 1h30m"``.

        Raises ``ValueError`` unless it is a whole number of seconds, from
        ``SHORTEST_INTERVAL`` to ``LONGEST_INTERVAL``.
        """
        length = written
        if isinstance(written, str):
            length = written.removeprefix(INTERVAL_PREFIX)
        try:
            length = parse_duration(length)
        except ValueError as error:
            raise ValueError(
                f"{written!r} is no interval: write one such as "
                '"every 20s", "every 5m" or "every 1h30m"'
            ) from error
        if length < SHORTEST_INTERVAL:
            problem = f"is too short: {_propose(SHORTEST_INTERVAL)} is the shortest"
        elif length > LONGEST_INTERVAL:
            problem = (
                f"is too long: {_propose(LONGEST_INTERVAL)} is the longest. Write "
                'a cron expression, such as "@yearly"'
            )
        elif rest := length % SHORTEST_INTERVAL:
            shorter = length - rest
            longer = shorter + SHORTEST_INTERVAL
            problem = (
                "is no whole number of seconds: write "
                f"{_propose(shorter)} or {_propose(longer)}"
            )
        else:
            return cls(length)
        raise ValueError(f"the interval {written!r} {problem}")

    @property
    def text(self) -> str:
        """The one text of an interval of this length, as in ``"every 1m"``."""
        return f"{INTERVAL_PREFIX}{format_duration(self.length)}"

    def ticks_after(self, moment: datetime) -> Iterator[datetime]:
        """Return the ticks after the aware ``moment``, in UTC, the oldest first."""
        newest = (moment - EPOCH) // self.length
        return (EPOCH + number * self.length for number in count(newest + 1))

    def ticks_until(self, moment: datetime) -> Iterator[datetime]:
        """Return the ticks up to the aware ``moment``, in UTC, the newest first."""
        newest = (moment - EPOCH) // self.length
        return (EPOCH + number * self.length for number in count(newest, -1))

    def is_multiple_of(self, other: "Interval") -> bool:
        """Return whether each tick of this interval is also a tick of the other."""
        return self.length % other.length == timedelta(0)

    def shortest_gap(self, other: "Interval") -> timedelta:
        """Return the shortest time between two ticks that one or both have."""
        return _common_measure(self.length, other.length)

    def shortest_gap_to_daily(self, times: Iterable[timedelta]) -> timedelta:
        """
        Return the shortest time between a tick and one of these times of each day.

        The ``times`` count from midnight in UTC. Those that coincide with a tick have
        no gap to it, only to the next one.
        """
        # Over the years, a time has all these distances from the tick before it: a
        # rest, and the rest plus each multiple of the measure.
        measure = _common_measure(self.length, timedelta(days=1))
        rests = {time % measure for time in times}
        rests |= {measure - rest for rest in rests}
        return min(rest or measure for rest in rests)


def is_interval(text: str) -> bool:
    """Return whether a text is meant to be an interval, also if it is misspelt."""
    return text.lower().removeprefix("@").startswith(INTERVAL_PREFIX.strip())


def _common_measure(one: timedelta, other: timedelta) -> timedelta:
    """Return the longest time of which both are multiples, in whole seconds."""
    seconds = (each // timedelta(seconds=1) for each in (one, other))
    return timedelta(seconds=gcd(*seconds))


def _propose(length: timedelta) -> str:
    return f'"{Interval(length).text}"'
