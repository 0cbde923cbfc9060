"""Durations as people write them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_shedlock.durations import (
    format_duration,
    format_left,
    format_measured,
    format_rough,
    parse_duration,
)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (timedelta(minutes=9), 540),
        (90, 90),
        (0.5, 0.5),
        ("500ms", 0.5),
        ("30s", 30),
        ("10m", 600),
        ("1h30m", 5400),
        ("2d", 172_800),
        ("1.5h", 5400),
        (" 10m ", 600),
        ("PT15M", 900),
        ("P1DT2H", 93_600),
        ("PT0S", 0),
        ("-PT5S", -5),
    ],
)
def test_duration_is_understood(value: Any, seconds: float) -> None:
    """Every documented form gives the same timedelta."""
    assert parse_duration(value) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "value",
    [
        *("", " ", "P", "PT", "10 m", "m10", "10x", "1m1m", "10m!", "1h-5m"),
        *("1 00:00:00", "-5s", "½h", "١m"),
        *(None, True, [], float("nan"), float("inf"), b"10m"),
    ],
)
def test_anything_else_is_refused_by_value(value: Any) -> None:
    """What is not clearly a duration is an error that shows the value."""
    with pytest.raises(ValueError, match="is not a duration") as caught:
        parse_duration(value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("text", ["10", "0", "1.5", " 10 "])
def test_text_of_a_plain_number_is_refused_with_the_unit_to_add(text: str) -> None:
    """Nobody knows whether the person who typed it meant seconds or minutes."""
    number = text.strip()
    message = f"{text!r} has no unit: write {number}s or {number}m"
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_duration(text)


@pytest.mark.parametrize(
    "value", ["40000d", 1e12, 1e300, timedelta.max, "9" * 400 + "d"]
)
def test_more_than_a_hundred_years_is_refused(value: Any) -> None:
    """A duration that no database can add to now is an error, not a crash at night."""
    with pytest.raises(ValueError, match="more than a hundred years"):
        parse_duration(value)


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(milliseconds=500), "500ms"),
        (timedelta(days=1, hours=2, minutes=3, seconds=4), "1d2h3m4s"),
        (timedelta(seconds=-90), "-1m30s"),
    ],
)
def test_format(duration: timedelta, text: str) -> None:
    """A duration is written in its shortest form."""
    assert format_duration(duration) == text


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(seconds=-3), "0s"),
        (timedelta(seconds=62, milliseconds=999), "1m2s"),
        (timedelta(hours=2, minutes=3, seconds=4), "2h3m"),
        (timedelta(days=2, hours=3, minutes=4), "2d3h"),
    ],
)
def test_rough_length(duration: timedelta, text: str) -> None:
    """The length of a time has two units at the most, and is never negative."""
    assert format_rough(duration) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (0.001, "1s"), (60, "1m"), (3661.5, "1h1m2s")]
)
def test_second_that_has_begun_is_left(seconds: float, text: str) -> None:
    """What is left of a lease is never shown as shorter than it is."""
    assert format_left(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0123, "12ms"),
        (1.26, "1.3s"),
        (59.94, "59.9s"),
        (125.5, "2m5s"),
        (3725, "1h2m"),
    ],
)
def test_measured_time(seconds: float, text: str) -> None:
    """How long a run took is as exact as people want to know."""
    assert format_measured(timedelta(seconds=seconds)) == text


@given(st.integers(min_value=0, max_value=10**12))
def test_format_and_parse_agree(milliseconds: int) -> None:
    """What is formatted is parsed to the same duration."""
    duration = timedelta(milliseconds=milliseconds)
    assert parse_duration(format_duration(duration)) == duration
