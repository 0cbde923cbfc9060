"""The clock of a time zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count, islice
from zoneinfo import ZoneInfo

import pytest

from django_shedlock.wall_clocks import WallClock

BERLIN = WallClock(ZoneInfo("Europe/Berlin"))
HALF_AN_HOUR = timedelta(minutes=30)
TEN_MINUTES = [timedelta(minutes=10) * step for step in range(150)]


def naive(time: datetime) -> datetime:
    """Return what the clock shows, without its zone."""
    return time.replace(tzinfo=None)


def half_hours(begin: datetime) -> list[datetime]:
    """Return four times: from half past one to three."""
    return [begin + HALF_AN_HOUR * step for step in range(4)]


SPRING = half_hours(datetime(2026, 3, 29, 1, 30))
AUTUMN = half_hours(datetime(2026, 10, 25, 1, 30))


def shown(instants: list[datetime]) -> str:
    """Return the instants by their times in UTC."""
    assert all(instant.tzinfo is UTC for instant in instants)
    return " ".join(f"{instant:%H:%M}" for instant in instants)


@pytest.mark.parametrize("reverse", [False, True])
def test_clock_tells_each_time_it_shows_a_time(*, reverse: bool) -> None:
    """None in the hour that is left out, and two in the one that comes twice."""
    spring, autumn = (
        list(BERLIN.each_time(sorted(times, reverse=reverse), reverse=reverse))
        for times in (SPRING, AUTUMN)
    )
    assert spring == sorted(spring, reverse=reverse)
    assert autumn == sorted(autumn, reverse=reverse)
    assert shown(sorted(spring)) == "00:30 01:00"
    assert shown(sorted(autumn)) == "23:30 00:00 00:30 01:00 01:30 02:00"


def test_clock_tells_once_when_it_shows_a_time() -> None:
    """The times that are left out fall together, the others count the first time."""
    assert shown(list(BERLIN.once(SPRING))) == "00:30 01:00"
    assert shown(list(BERLIN.once([*SPRING[:2], *SPRING[3:]]))) == "00:30 01:00"
    assert shown(list(BERLIN.once(SPRING[:3]))) == "00:30 01:00"
    assert shown(list(BERLIN.once(AUTUMN))) == "23:30 00:00 00:30 02:00"


@pytest.mark.parametrize("hours", range(-3, 3))
def test_all_times_of_the_past_and_the_future_are_in_their_bounds(hours: int) -> None:
    """Also if an hour that comes twice has begun, or is about to."""
    moment = datetime(2026, 10, 25, 0, 30, tzinfo=UTC) + timedelta(hours=hours)
    later, earlier = (
        [(moment + step * sign).astimezone(BERLIN.zone) for step in TEN_MINUTES]
        for sign in (1, -1)
    )
    assert BERLIN.no_later(moment) <= min(map(naive, later))
    assert BERLIN.no_earlier(moment) >= max(map(naive, earlier))


def test_times_may_be_without_end() -> None:
    """None is looked at before somebody asks."""
    times = [(AUTUMN[0] + HALF_AN_HOUR * step for step in count()) for _ in range(2)]
    assert len(list(islice(BERLIN.each_time(times[0]), 9))) == 9
    assert len(list(islice(BERLIN.once(times[1]), 9))) == 9
