"""Ticks among which a clock chooses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_shedlock.schedules import Schedule
from django_shedlock.ticks import nearest, newest

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
QUARTER = timedelta(minutes=15)
QUARTERS = Schedule("*/15 * * * *", "UTC")
INSTANT = timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("away", "tick"),
    [
        (-QUARTER / 2 - INSTANT, -QUARTER),
        (-QUARTER / 2, timedelta(0)),
        (timedelta(0), timedelta(0)),
        (QUARTER / 2 - INSTANT, timedelta(0)),
        (QUARTER / 2, QUARTER),
    ],
)
def test_nearest_tick_begins_halfway(away: timedelta, tick: timedelta) -> None:
    """A tick is the nearest one from the middle before it to the middle after it."""
    assert nearest(QUARTERS, NOON).at(NOON + away) == NOON + tick


@pytest.mark.parametrize(
    ("age", "away", "tick"),
    [
        (0, timedelta(0), timedelta(0)),
        (0, -INSTANT, -QUARTER),
        (5, timedelta(0), -QUARTER),
        (5, timedelta(minutes=5) - INSTANT, -QUARTER),
        (5, timedelta(minutes=5), timedelta(0)),
    ],
)
def test_newest_tick_is_that_old(age: int, away: timedelta, tick: timedelta) -> None:
    """A tick is the newest one from the instant on at which it is old enough."""
    choice = newest(QUARTERS, NOON, timedelta(minutes=age))
    assert choice.at(NOON + away) == NOON + tick


@settings(deadline=None)
@given(
    around=st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)),
    off=st.timedeltas(-QUARTER, QUARTER),
    age=st.timedeltas(timedelta(0), timedelta(hours=2)),
)
def test_clocks_that_differ_choose_the_same_tick(
    around: datetime, off: timedelta, age: timedelta
) -> None:
    """Whichever clock the ticks were made with, another one chooses the same."""
    made_with, chooses = around.replace(tzinfo=UTC), around.replace(tzinfo=UTC) + off
    for make in (nearest, lambda *given: newest(*given, age)):
        choice = make(QUARTERS, made_with)
        assert list(choice.ticks) == sorted(set(choice.ticks))
        assert list(choice.since) == sorted(set(choice.since))
        if choice.since[0] <= chooses < choice.until:
            assert choice.at(chooses) == make(QUARTERS, chooses).at(chooses)


def test_clock_that_is_far_away_gets_the_end() -> None:
    """A clock beyond all ticks is given the first or the last of them."""
    choice = nearest(QUARTERS, NOON)
    assert choice.at(NOON - timedelta(days=1)) == choice.ticks[0] == NOON - QUARTER
    assert choice.at(NOON + timedelta(days=1)) == choice.ticks[-1] == NOON + QUARTER


def test_uneven_ticks_have_their_own_middles() -> None:
    """Between 9 and 17 o'clock the middle is 13, over night it is 1."""
    choice = nearest(Schedule("0 9,17 * * *", "UTC"), NOON)
    assert [moment.hour for moment in choice.since[1:]] == [1, 13]
