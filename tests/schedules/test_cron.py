"""Cron expressions."""

from __future__ import annotations

import subprocess
import sys
from bisect import bisect
from datetime import UTC, datetime, timedelta
from itertools import count, islice, pairwise, takewhile
from zoneinfo import ZoneInfo, available_timezones

import pytest
from cronsim import CronSim
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from django_shedlock.durations import format_duration
from django_shedlock.schedules.cron import LONGEST_EXPRESSION, Schedule, WallClock
from tests.support.debian_cron import looks_at_clock, starts

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)


def newest_ticks(schedule: Schedule, moment: datetime, count: int) -> list[datetime]:
    """Return the newest ticks up to this instant, in their order."""
    return sorted(islice(schedule.ticks_until(moment), count))


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


def test_gaps_of_days_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They go over decades, and hundreds of locks may have schedules of one day."""
    steps = []
    advance = CronSim.advance

    def counting(cron: CronSim) -> None:
        steps.append(cron)
        advance(cron)

    monkeypatch.setattr(CronSim, "advance", counting)
    assert Schedule("5 8 17 5 *").interval == 365 * DAY
    assert len(steps) > 50
    steps.clear()
    assert Schedule("6 9 17 5 *").interval == 365 * DAY
    assert len(steps) < 10


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=30)
@given(
    minute=st.sampled_from(["0", "*/25", "5,50", "59", "10-12"]),
    hour=st.sampled_from(["*", "0,23", "*/9", "6"]),
    day=st.sampled_from(["*", "1", "*/10", "28"]),
    weekday=st.sampled_from(["*", "1-5", "0"]),
)
def test_interval_is_what_counting_finds(
    minute: str, hour: str, day: str, weekday: str
) -> None:
    """No two of the next two hundred ticks are closer than the interval."""
    expression = f"{minute} {hour} {day} * {weekday}"
    ticks = islice(CronSim(expression, datetime(2025, 1, 1, tzinfo=UTC)), 200)
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


@pytest.mark.parametrize("time_zone", ["Europe/Atlantis", "", "../etc/passwd", "\0"])
def test_unknown_time_zone_is_refused(time_zone: str) -> None:
    """The error has the name that no time zone has."""
    with pytest.raises(ValueError, match="there is no time zone") as refusal:
        Schedule("@daily", time_zone)
    assert repr(time_zone) in str(refusal.value)


def test_too_long_expression_is_refused() -> None:
    """An expression leaves room for the longest time zone in its column."""
    minutes = ",".join(map(str, range(60)))
    assert Schedule(f"{minutes} 0 * * *").interval == timedelta(minutes=1)
    with pytest.raises(ValueError, match="at most 200 are allowed"):
        Schedule(f"{minutes} {','.join(map(str, range(24)))} * * *")
    assert LONGEST_EXPRESSION + 1 + max(map(len, available_timezones())) <= 255


@pytest.mark.parametrize(
    "expression", ["*/5 * * * *", "@daily", " 0  6\t* * mon-fri ", "@hourly "]
)
def test_schedule_is_read_as_it_was_written(expression: str) -> None:
    """What stands in the table is the schedule, whatever blanks were in it."""
    schedule = Schedule(expression, "Europe/Berlin")
    assert Schedule.parse(str(schedule)) == schedule


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("@daily", "0 0 * * *"),
        ("0 6 * * 0", "0 6 * * sun"),
        ("0 6 * * 0", "0 6 * * 7"),
        ("0,30 6 * jan *", "00,30 6 * 1 *"),
        ("0 6-8 * * *", "0 6,7,8 * * *"),
    ],
)
def test_same_ticks_in_other_words(one: str, other: str) -> None:
    """Two expressions mean the same if cron starts both at the same times."""
    assert Schedule(one).has_ticks_of(Schedule(other))
    assert Schedule(one, "UTC").has_ticks_of(Schedule(other, "Asia/Tokyo"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("0 6 * * *", "0 7 * * *"),
        ("*/30 2 * * *", "0,30 2 * * *"),  # not when the clocks change
        ("0 6 1-31 * 1", "0 6 * * 1"),  # on any of those days, or on Mondays
    ],
)
def test_other_ticks(one: str, other: str) -> None:
    """Two that cron starts at other times, if only once a year, are not the same."""
    assert not Schedule(one).has_ticks_of(Schedule(other))


def local_ticks(expression: str, time_zone: str, day: datetime) -> list[str]:
    """Return the ticks of a day by the clock on the wall, with the offset from UTC."""
    schedule = Schedule(expression, time_zone)
    begin = day.replace(tzinfo=ZoneInfo(time_zone))
    end = begin + timedelta(days=1)  # by the clock on the wall
    ticks = takewhile(lambda tick: tick < end, schedule.ticks_after(begin - SECOND))
    local = [tick.astimezone(begin.tzinfo) for tick in ticks]
    assert local == [
        tick.astimezone(begin.tzinfo)
        for tick in newest_ticks(schedule, end - SECOND, len(local) + 1)[1:]
    ]
    return [f"{tick:%H:%M %z}" for tick in local]


SPRING, AUTUMN = datetime(2026, 3, 29), datetime(2026, 10, 25)


# See cron(8): jobs at a fixed hour run once right after an hour that is left out, and
# not again in one that is repeated; those with a star for minute or hour follow the
# clock.
@pytest.mark.parametrize(
    ("day", "expression", "ticks"),
    [
        (SPRING, "30 2 * * *", ["03:00 +0200"]),
        (SPRING, "0,30 2 * * *", ["03:00 +0200"]),
        (SPRING, "30 2,3 * * *", ["03:00 +0200", "03:30 +0200"]),
        (SPRING, "*/30 2 * * *", []),
        (SPRING, "0 3 * * *", ["03:00 +0200"]),
        (SPRING, "30 1 * * *", ["01:30 +0100"]),
        (AUTUMN, "30 2 * * *", ["02:30 +0200"]),
        (AUTUMN, "0 3 * * *", ["03:00 +0100"]),
        (
            AUTUMN,
            "*/30 2 * * *",
            ["02:00 +0200", "02:30 +0200", "02:00 +0100", "02:30 +0100"],
        ),
    ],
)
def test_clock_changes_as_cron_has_it(
    day: datetime, expression: str, ticks: list[str]
) -> None:
    """In spring and in autumn a job ticks when Debian's cron starts it."""
    assert local_ticks(expression, "Europe/Berlin", day) == ticks


@pytest.mark.parametrize(("day", "count"), [(SPRING, 46), (AUTUMN, 50)])
def test_every_half_hour_follows_the_clock(day: datetime, count: int) -> None:
    """A job every 30 minutes has two ticks fewer in spring, and two more in autumn."""
    ticks = local_ticks("*/30 * * * *", "Europe/Berlin", day)
    assert len(ticks) == len(set(ticks)) == count


# In each zone the clock is put forward, and back.
CHANGES = {
    "Europe/Berlin": [(2026, 3, 29, 1), (2026, 10, 25, 1)],
    "America/New_York": [(2026, 3, 8, 7), (2026, 11, 1, 6)],
    "Antarctica/Troll": [(2026, 3, 29, 1), (2026, 10, 25, 1)],  # by two hours
    "Australia/Lord_Howe": [(2026, 10, 3, 15), (2026, 4, 4, 15)],  # by half an hour
    # At midnight:
    "Africa/Cairo": [(2026, 4, 23, 22), (2026, 10, 29, 21)],
    "America/Asuncion": [(2023, 10, 1, 4), (2023, 3, 26, 3)],
    "America/Havana": [(2026, 3, 8, 5), (2026, 11, 1, 5)],
    "America/Nuuk": [(2026, 3, 29, 1), (2026, 10, 25, 1)],
    "America/Santiago": [(2026, 9, 6, 4), (2026, 4, 5, 3)],
    "Asia/Beirut": [(2026, 3, 28, 22), (2026, 10, 24, 21)],
    "Atlantic/Azores": [(2026, 3, 29, 1), (2026, 10, 25, 1)],
}
EXPRESSIONS = [
    "30 2 * * *",
    "0,30 1,2,3 * * *",
    "0 0 * * *",
    "15 * * * *",
    "*/15 * * * *",
    "*/30 * * * *",
    "*/15 2 * * *",
    "30 1 * * 0",
    "*/15 0 * * 0",
    "*/15 1 * * 0",
    "*/15 * * * 1-6",
    "*/15 0,23 * * 5,6",
    "45 23 1-7 * 0",
]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=80)
@given(
    expression=st.sampled_from(EXPRESSIONS),
    zone=st.sampled_from(sorted(CHANGES)),
    in_autumn=st.booleans(),
    away=st.timedeltas(-timedelta(days=3), timedelta(days=3)),
    at_tick=st.booleans(),
)
@example(
    expression="15 * * * *",
    zone="Europe/Berlin",
    in_autumn=False,
    away=-timedelta(microseconds=1),
    at_tick=True,
)
@example(
    expression="*/15 2 * * *",
    zone="Australia/Lord_Howe",
    in_autumn=True,
    away=timedelta(0),
    at_tick=False,
)
@example(
    expression="*/15 0 * * 0",
    zone="America/Asuncion",
    in_autumn=False,
    away=timedelta(0),
    at_tick=False,
)
def test_ticks_are_when_cron_starts_a_job(
    *, expression: str, zone: str, in_autumn: bool, away: timedelta, at_tick: bool
) -> None:
    """All hosts see the same ticks, from whatever moment they count."""
    change = datetime(*CHANGES[zone][in_autumn], tzinfo=UTC)
    looks = looks_at_clock(zone, change - 26 * DAY, change + 18 * DAY)
    ticks = list(starts(expression, looks))
    moment = change + away
    if at_tick:
        moment = ticks[bisect(ticks, moment) - 1] + min(away, timedelta(0)) % -SECOND
    schedule = Schedule(expression, zone)
    place = bisect(ticks, moment)
    assert newest_ticks(schedule, moment, 2) == ticks[place - 2 : place]
    assert list(islice(schedule.ticks_after(moment), 2)) == ticks[place : place + 2]


@pytest.mark.parametrize(
    ("day", "time", "newest"),
    [
        (SPRING, "01:14", "01:00"),
        (SPRING, "01:15", "01:15"),
        (SPRING + 2 * DAY, "12:00", "01:45"),
    ],
)
def test_sunday_without_a_midnight_has_its_ticks(
    day: datetime, time: str, newest: str
) -> None:
    """At one o'clock it began, and so did the hour in which the job runs."""
    azores = ZoneInfo("Atlantic/Azores")
    hour, minute = map(int, time.split(":"))
    moment = day.replace(hour=hour, minute=minute, tzinfo=azores)
    schedule = Schedule("*/15 1 * * 0", "Atlantic/Azores")
    ticks = [tick.astimezone(azores) for tick in newest_ticks(schedule, moment, 1)]
    assert [f"{tick:%m-%d %H:%M}" for tick in ticks] == [f"03-29 {newest}"]


@pytest.mark.parametrize("at", [(29, 12), (29, 22), (30, 1)])
def test_days_after_an_hour_before_midnight_was_left_out(at: tuple[int, int]) -> None:
    """Looking back and ahead over it comes to an end, at the ticks of other days."""
    moment = datetime(2026, 3, *at, tzinfo=UTC)
    schedule = Schedule("*/15 * * * 1-6", "America/Nuuk")
    ticks = [*newest_ticks(schedule, moment, 2), next(schedule.ticks_after(moment))]
    saturday = datetime(2026, 3, 29, 0, 45, tzinfo=UTC)  # 22:45 in Nuuk
    monday = datetime(2026, 3, 30, 1, tzinfo=UTC)  # midnight
    assert (saturday, monday) in pairwise(ticks)


def test_core_does_not_need_cronsim() -> None:
    """Without the library everything can be imported that is no schedule."""
    script = (
        "import sys; sys.modules['cronsim'] = None\n"
        "import django_shedlock, django_shedlock.schedules.cron"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


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
