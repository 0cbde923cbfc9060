"""Parse and format durations."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from functools import lru_cache

from django.utils.dateparse import parse_duration as parse_iso_duration

Duration = timedelta | int | float | str
"""A ``timedelta``, a number of seconds, ``"1h30m"``-like text, or ISO-8601."""

LONGEST = timedelta(days=36525)
"""A hundred years: a longer lease would overflow the timestamps of databases."""

UNITS = {
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])", re.ASCII)
EXPECTED = (
    'use a timedelta, a number of seconds, "500ms", "30s", "1h30m", "2d" or "PT15M"'
)


def parse_duration(value: Duration) -> timedelta:
    """
    Return ``value`` as a ``timedelta``; numbers are seconds.

    Raises ``ValueError`` for what is no duration, or longer than ``LONGEST``.
    """
    try:
        duration = _convert(value)
    except OverflowError:
        duration = timedelta.max
    if abs(duration) > LONGEST:
        raise ValueError(f"{value!r} is more than a hundred years")
    return duration


def format_duration(duration: timedelta) -> str:
    """Return ``duration`` in its shortest readable form, as in ``"1h30m"``."""
    if duration < timedelta(0):
        return f"-{format_duration(-duration)}"
    parts = []
    for unit, size in UNITS.items():
        count, duration = divmod(duration, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def format_seconds(duration: timedelta) -> str:
    """Return ``duration`` without its fraction of a second, as in ``"1m5s"``."""
    return format_duration(timedelta(seconds=int(duration.total_seconds())))


def format_left(duration: timedelta) -> str:
    """Return what is left of a time; a second that has begun counts."""
    return format_seconds(duration + timedelta(microseconds=999_999))


def format_measured(duration: timedelta) -> str:
    """Return a measured time, rounded for people, as in ``"1.5s"``."""
    seconds = duration.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    return f"{seconds:.1f}s" if seconds < 60 else format_seconds(duration)


def _convert(value: Duration) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, str):
        return _parse_text(value)
    is_number = not isinstance(value, bool) and isinstance(value, int | float)
    if not is_number or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a duration: {EXPECTED}")
    return timedelta(seconds=value)


@lru_cache
def _parse_text(text: str) -> timedelta:
    duration = _parse_units(text.strip())
    if duration is None:
        duration = _parse_iso(text.strip())
    if duration is None:
        raise ValueError(f"{text!r} is not a duration: {EXPECTED}")
    return duration


def _parse_units(text: str) -> timedelta | None:
    parts = PART.findall(text)
    units = [unit for _, unit in parts]
    if not parts or "".join(map("".join, parts)) != text or len({*units}) < len(units):
        return None
    return sum((float(n) * UNITS[unit] for n, unit in parts), timedelta(0))


def _parse_iso(text: str) -> timedelta | None:
    # Django returns zero for "P" and "PT", and also knows "1 00:00:00".
    is_iso = text.lstrip("+-").startswith("P") and text[-1:].isalpha()
    has_number = any(character.isdigit() for character in text)
    return parse_iso_duration(text) if is_iso and has_number else None
