"""Debian's cron, which looks at its clock again and again."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import cache
from itertools import product
from pathlib import Path
from zoneinfo import ZoneInfo

Look = tuple[datetime, datetime]
"""An instant, and what the clock shows then."""
STEP = timedelta(minutes=15)
"""So often it looks; the minutes of all expressions are multiples of it."""
BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
MONTHS = "0 jan feb mar apr may jun jul aug sep oct nov dec"
WEEKDAYS = "sun mon tue wed thu fri sat"
NAMES = {
    name: number
    for names in (MONTHS, WEEKDAYS)
    for number, name in enumerate(names.split())
}


def missing_reason() -> str | None:
    """Return why no crontab(1) of Debian can be asked, or ``None`` if one can."""
    if shutil.which("crontab") is None:
        return "crontab is not installed"
    usage = subprocess.run(
        ["crontab", "-h"], capture_output=True, text=True, check=False
    )
    is_debian = "dry run" in usage.stdout + usage.stderr
    return None if is_debian else "crontab has no dry run, so it is not Debian's"


def takes(expression: str, folder: Path) -> bool:
    """Return whether Debian's cron would take a line with it; install none."""
    crontab = folder / "crontab"
    crontab.write_bytes(f"{expression} true\n".encode())
    attempt = subprocess.run(
        ["crontab", "-n", str(crontab)], capture_output=True, text=True, check=False
    )
    assert attempt.returncode == 0 or "bad" in attempt.stderr, attempt
    return attempt.returncode == 0


def times_of_a_year(expression: str, begin: datetime) -> Iterator[datetime]:
    """Return when cron starts a job in 366 days, where the clocks never change."""
    fields = expression.split()
    minutes, hours, *_ = numbers = _all_numbers(expression)
    has_star = fields[2].startswith("*") or fields[4].startswith("*")
    for day in (begin + timedelta(days=days) for days in range(366)):
        if _is_day(numbers, day, has_star=has_star):
            for hour, minute in product(sorted(hours), sorted(minutes)):
                yield day.replace(hour=hour, minute=minute)


def starts(expression: str, looks: list[Look]) -> Iterator[datetime]:
    """
    Return when it starts a job.

    One with a star for minute or hour follows the clock. Of others it starts at once
    what the clock has passed over, and nothing while it shows again what it has shown.
    """
    fields = expression.split()
    follows = any(field.startswith("*") for field in fields[:2])
    has_star = fields[2].startswith("*") or fields[4].startswith("*")
    numbers = _all_numbers(expression)
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


def _all_numbers(expression: str) -> list[set[int]]:
    return [_numbers(*of) for of in zip(expression.split(), BOUNDS, strict=True)]


def _matches(numbers: list[set[int]], time: datetime, *, has_star: bool) -> bool:
    minute, hour, *_ = numbers
    if time.minute not in minute or time.hour not in hour:
        return False
    return _is_day(numbers, time, has_star=has_star)


def _is_day(numbers: list[set[int]], time: datetime, *, has_star: bool) -> bool:
    _, _, day, month, weekday = numbers
    if time.month not in month:
        return False
    days = (time.day in day, bool({time.isoweekday(), time.isoweekday() % 7} & weekday))
    return all(days) if has_star else any(days)


def _numbers(field: str, bounds: tuple[int, int]) -> set[int]:
    numbers: set[int] = set()
    for part in field.split(","):
        span, _, step = part.replace("*", "-".join(map(str, bounds))).partition("/")
        first, _, last = span.partition("-")
        numbers.update(
            range(_number(first), _number(last or first) + 1, int(step or 1))
        )
    return numbers


def _number(text: str) -> int:
    return NAMES[text.lower()] if text.isalpha() else int(text)
