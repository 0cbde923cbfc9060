"""Parse and format durations."""

import math
import re
from datetime import timedelta
from functools import lru_cache

from django.utils.dateparse import parse_duration as parse_iso_duration

Duration = timedelta | int | float | str
"""A ``timedelta``, a number of seconds, ``"1h30m"``-like text, or ISO-8601."""

LONGEST_DURATION = timedelta(days=36525)
"""A hundred years: a longer lease would overflow the timestamps of databases."""

DURATION_UNITS = {
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}


def parse_duration(value: Duration) -> timedelta:
    """
    Return ``value`` as a ``timedelta``; numbers are seconds.

    Raises ``ValueError`` for what is no duration, or longer than ``LONGEST_DURATION``.
    """
    duration: timedelta | None = None
    try:
        if isinstance(value, timedelta):
            duration = value
        elif isinstance(value, str):
            duration = _parse_text(value.strip())
        elif not isinstance(value, bool) and isinstance(value, int | float):
            duration = timedelta(seconds=value) if math.isfinite(value) else None
    except OverflowError:
        duration = timedelta.max
    if duration is None:
        raise ValueError(f"{value!r} {_advice(value)}")
    if not -LONGEST_DURATION <= duration <= LONGEST_DURATION:
        raise ValueError(f"{value!r} is more than a hundred years")
    return duration


def option_duration(option: str, value: Duration) -> timedelta:
    """Return an option's duration; ``ValueError`` if it is below a millisecond."""
    try:
        duration = parse_duration(value)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from error
    if duration < DURATION_UNITS["ms"]:
        raise ValueError(f"{option}={value!r} is too short: give it 1ms or more")
    return duration


def _advice(value: object) -> str:
    """Say what is wrong with a value that is no duration, and what helps."""
    if not isinstance(value, str):
        return (
            "is not a duration: use a timedelta, a number of seconds, or a text such "
            'as "30s" or "1h30m"'
        )
    if lacks_unit(value):
        number = value.strip()
        return f"has no unit: write {number}s or {number}m"
    return 'is not a duration: use "500ms", "30s", "1h30m", "2d" or "PT15M"'


def lacks_unit(text: str) -> bool:
    """Return whether the text is a number without a unit, as in ``"30"``."""
    return bool(re.fullmatch(r"\d+(?:\.\d+)?", text.strip(), re.ASCII))


@lru_cache
def _parse_text(text: str) -> timedelta | None:
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|[dhms])", text, re.ASCII)
    units = {unit for _, unit in parts}
    is_whole = "".join(map("".join, parts)) == text and len(units) == len(parts)
    if parts and is_whole:
        return sum((float(n) * DURATION_UNITS[unit] for n, unit in parts), timedelta(0))
    # Django returns zero for "P" and "PT", and also knows "1 00:00:00".
    is_iso = text.lstrip("+-").startswith("P") and text[-1:].isalpha()
    has_number = any(character.isdigit() for character in text)
    return parse_iso_duration(text) if is_iso and has_number else None


def format_duration(duration: timedelta) -> str:
    """Return ``duration`` exactly, in its shortest form, as in ``"1h30m"``."""
    if duration < timedelta(0):
        return f"-{format_duration(-duration)}"
    parts = []
    for unit, size in DURATION_UNITS.items():
        count, duration = divmod(duration, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def format_rough(duration: timedelta) -> str:
    """
    Return the length of a time for people, in at most two units, as in ``"3h20m"``.

    It is rounded down to seconds, from an hour on to minutes, from a day on to hours.
    """
    seconds = max(0, int(duration.total_seconds()))
    step = 3600 if seconds >= 86400 else 60 if seconds >= 3600 else 1
    return format_duration(timedelta(seconds=seconds - seconds % step))


def format_left(duration: timedelta) -> str:
    """Return what is left of a time: a second that has begun counts."""
    return format_duration(timedelta(seconds=math.ceil(duration.total_seconds())))


def format_measured(duration: timedelta) -> str:
    """Return how long a run took, as exactly as people want it, as in ``"1.5s"``."""
    seconds = duration.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    return f"{seconds:.1f}s" if seconds < 60 else format_rough(duration)
