"""Debian's cron, which looks at its clock again and again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

Look = tuple[datetime, datetime]
"""An instant, and what the clock shows then."""
STEP = timedelta(minutes=15)
"""So often it looks; the minutes of all expressions are multiples of it."""
BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))


def starts(expression: str, looks: list[Look]) -> Iterator[datetime]:
    """
    Return when it starts a job.

    One with a star for minute or hour follows the clock. Of others it starts at once
    what the clock has passed over, and nothing while it shows again what it has shown.
    """
    fields = expression.split()
    follows = any(field.startswith("*") for field in fields[:2])
    has_star = fields[2].startswith("*") or fields[4].startswith("*")
    numbers = [_numbers(*each) for each in zip(fields, BOUNDS, strict=True)]
    seen = looks[0][1] - STEP
    for instant, time in looks:
        begin = time - STEP if follows else seen
        passed = [begin + STEP * step for step in range(1, (time - begin) // STEP + 1)]
        if any(_matches(numbers, minute, has_star=has_star) for minute in passed):
            yield instant
        seen = max(seen, time)


@cache
def looks_at_clock(zone: str, begin: datetime, end: datetime) -> list[Look]:
    """Return all its looks at the clock of a time zone in between."""
    instants = (begin + STEP * step for step in range((end - begin) // STEP))
    clock = ZoneInfo(zone)
    return [(now, now.astimezone(clock).replace(tzinfo=None)) for now in instants]


def _matches(numbers: list[set[int]], time: datetime, *, has_star: bool) -> bool:
    minute, hour, day, month, weekday = numbers
    if time.minute not in minute or time.hour not in hour or time.month not in month:
        return False
    days = (time.day in day, time.isoweekday() % 7 in weekday)
    return all(days) if has_star else any(days)


def _numbers(field: str, bounds: tuple[int, int]) -> set[int]:
    numbers: set[int] = set()
    for part in field.split(","):
        span, _, step = part.replace("*", "-".join(map(str, bounds))).partition("/")
        first, _, last = span.partition("-")
        numbers.update(range(int(first), int(last or first) + 1, int(step or 1)))
    return numbers
