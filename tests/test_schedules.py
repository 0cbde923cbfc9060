"""Cron expressions."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from django_shedlock.durations import format_duration
from django_shedlock.schedules import Schedule


@pytest.mark.parametrize(
    ("expression", "interval"),
    [
        ("* * * * *", "1m"),
        ("*/5 * * * *", "5m"),
        ("*/7 * * * *", "4m"),
        ("0 9,17 * * 1-5", "8h"),
        ("0 22,2 * * *", "4h"),
        ("0 22,2 * * 1", "20h"),
        ("59 23 * * 1", "7d"),
        ("0 0 1,15 * *", "14d"),
        ("0 0 31 * *", "31d"),
        ("0 0 13 * 5", "1d"),
        ("0 0 29 2 *", "1461d"),
        ("0 6 * JUL mon-fri", "1d"),
        ("@hourly", "1h"),
        ("@daily", "1d"),
        ("@midnight", "1d"),
        ("@weekly", "7d"),
        ("@monthly", "28d"),
        ("@yearly", "365d"),
        ("@annually", "365d"),
    ],
)
def test_interval_is_the_shortest_time_between_ticks(
    expression: str, interval: str
) -> None:
    """The interval is the shortest of all, over midnight and in February, too."""
    assert format_duration(Schedule(expression).interval) == interval


@settings(deadline=None)
@given(
    minute=st.sampled_from(["0", "*/25", "5,50", "59", "10-12"]),
    hour=st.sampled_from(["*", "0,23", "*/9", "6"]),
    day=st.sampled_from(["*", "1", "*/10", "28"]),
    weekday=st.sampled_from(["*", "1-5", "0"]),
)
def test_interval_is_what_counting_finds(
    minute: str, hour: str, day: str, weekday: str
) -> None:
    """No two of the next thousand ticks are closer than the interval."""
    expression = f"{minute} {hour} {day} * {weekday}"
    ticks = islice(CronSim(expression, datetime(2025, 1, 1, tzinfo=UTC)), 1000)
    closest = min(after - before for before, after in pairwise(ticks))
    assert Schedule(expression).interval <= closest
    if closest < timedelta(days=2):
        assert Schedule(expression).interval == closest


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("@reboot", "has no interval"),
        ("@fortnightly", "has no interval"),
        ("", "is no cron expression: give minute"),
        ("* * * *", "is no cron expression: give minute"),
        ("0 * * * * *", "is no cron expression: give minute"),
        ("0 0 L * *", "is no cron expression: give minute"),
        ("0 0 * * 1#2", "is no cron expression: give minute"),
        ("61 * * * *", "Bad minute"),
        ("0 0 30 2 *", "Bad day-of-month"),
        (None, "is no text"),
    ],
)
def test_what_cron_would_not_take_is_refused(expression: str, text: str) -> None:
    """The error has the expression, and what is wrong with it."""
    with pytest.raises(ValueError, match=text) as refusal:
        Schedule(expression)
    assert repr(expression)[:3] in str(refusal.value)


def test_core_does_not_need_cronsim() -> None:
    """Without the library everything can be imported that is no schedule."""
    script = (
        "import sys; sys.modules['cronsim'] = None\n"
        "import django_shedlock, django_shedlock.schedules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
