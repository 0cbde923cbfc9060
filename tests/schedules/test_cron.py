"""Cron expressions."""

from __future__ import annotations

import shutil
import subprocess
from bisect import bisect
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from itertools import islice, pairwise, product, takewhile
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pytest
from cronsim import CronSim
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from django_shedlock.durations import format_duration
from django_shedlock.schedules import expressions
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import parse_known

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


def missing_cron_reason() -> str | None:
    """Return why no crontab(1) of Debian can be asked, or ``None`` if one can."""
    if shutil.which("crontab") is None:
        return "crontab is not installed"
    usage = subprocess.run(
        ["crontab", "-h"], capture_output=True, text=True, check=False
    )
    is_debian = "dry run" in usage.stdout + usage.stderr
    return None if is_debian else "crontab has no dry run, so it is not Debian's"


def cron_takes(expression: str, folder: Path) -> bool:
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


def cron_starts(expression: str, looks: list[Look]) -> Iterator[datetime]:
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
        ("0 0 29 2 */7", "10227d"),  # a Sunday, as each 28 years
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


def test_days_of_a_schedule_are_computed_once() -> None:
    """Hundreds of locks may have schedules of the same days."""
    assert Schedule("5 8 17 5 *").interval == 365 * DAY
    before = expressions._days_of.cache_info().misses
    assert Schedule("6 9 17 5 *").interval == 365 * DAY
    assert expressions._days_of.cache_info().misses == before


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
        ("0 0 L * *", "'L' is none of"),
        ("0 0 * * 1#2", "'1#2' is none of"),
        ("*/0 * * * *", "'*/0' is none of"),
        ("0-0/0 * * * *", "'0-0/0' is none of"),
        ("0 5-5/00 * * *", "'5-5/00' is none of"),
        ("0 0 * * fri-fri/0", "'fri-fri/0' is none of"),
        ("5/15 * * * *", "'5/15' is none of"),
        ("0 22-4 * * *", "the range '22-4' ends before it begins"),
        ("0 0 * * sat-sun", "Sunday is 0, and also 7"),
        ("61 * * * *", "Bad minute"),
        ("0 0 30 2 *", "Bad day-of-month"),
        (None, "None is no schedule"),
    ],
)
def test_what_cron_would_not_take_is_refused(expression: str, text: str) -> None:
    """The error has the expression, and what is wrong with it."""
    with pytest.raises(ValueError, match=text) as refusal:
        Schedule(expression)
    assert repr(expression)[:3] in str(refusal.value)


READ_ALIKE = """
@hourly @daily @midnight @weekly @monthly @yearly @annually * 0 59 05 005 0000005 1-05
0-0 5-5 5-5/2 0-59 0-59/60 0-10/20 1-2,3-4 1,5,5,3 */5 */05 */59 */60 */100 */999999999
*/5,7 7,*/5 *,1 1,* *,* */2,*/3 50-59/3 hour:0 hour:23 hour:0-23 hour:*/23 hour:*/24
hour:*/25 hour:22-23,0-4 hour:23-23/2 day:31 day:1-31/2 day:*/31 day:*/32 day:*,31
day:1,15 day:30-30/2 day:0009 month:12 month:jan month:Jan month:JAN month:JaN
month:jan-mar month:jan,mar month:jan-3 month:1-mar month:2-feb/5 month:feb-2 month:*/12
month:*/13 month:apr-12/2 weekday:0 weekday:7 weekday:0-7 weekday:0-7/7 weekday:5-7
weekday:6-7 weekday:7-7 weekday:0,7 weekday:sun weekday:SUN weekday:sun-mon
weekday:sun-sat weekday:mon-fri weekday:sat-7 weekday:sat,sun weekday:mon,wed
weekday:mon-wed/2 weekday:1-wed weekday:sun-7 weekday:0-sun weekday:fri-fri/3
weekday:mon-fri/2 weekday:*/2 weekday:*/7 weekday:*/8 weekday:*,1 weekday:7-7/2
weekday:1-7/6
"""
"""Shorthands, or one field each: the others are 0, or a star for days."""
READ_BY_NONE = """
0-SUN SUN-0 1-jan hour:5-fri day:1-jan month:1-mon weekday:1-jan weekday:jan-1
@Daily @DAILY @every @reboots 60 99 -1 +5 */+5 ,1 1, 1,,2 1- 5-* */ /5 / - , */0 */-1 ?
L 1-5/ 1-10/0 0-0/0 5-5/00 1-10/-1 1--3 5a 0x5 1e1 5,7x \N{ARABIC-INDIC DIGIT THREE}
\N{FULLWIDTH DIGIT FIVE} '5' "5" \\5 _ H @ ~ 0-60 */* 5/15 0/5 5/1 jan mon hour:24
hour:0-24 hour:5-5/0 hour:8/2 day:0 day:32 day:0-5 day:1/2 day:1-1/0 day:L day:LW
day:W month:0 month:13 month:january month:jan/2 month:mon month:1/3 month:*/jan
month:1- month:jan-jan/0 weekday:fri-fri/0 weekday:8 weekday:0-8 weekday:MON/2
weekday:sun/2 weekday:sunday weekday:5L weekday:1-5/mon weekday:*/mon
weekday:feb/2 weekday:\N{LATIN SMALL LETTER LONG S}un
weekday:fr\N{LATIN SMALL LETTER DOTLESS I}
"""
ONLY_CRON_TAKES = """
@reboot 5-4 59-0 1-2,4-3 5; 5* 5-7* 5.5 *-5 *-* ** *5 *a */5/2 */5-10 1-3-5 0-30/5-10
0~30 1! *! 4294967301 */4294967301 0000000000 hour:22-4 month:dec-jan weekday:fri-mon
weekday:sat-sun weekday:5-1 weekday:7-1 weekday:thu-sun weekday:5#2 day:31|month:2
day:30,31|month:2 day:31|month:4,6,9,11
"""
"""It never starts such a job, or at no interval, or misreads or ignores a part."""


def whole(text: str) -> str:
    """Return the expression of a shorthand, or of one field or two."""
    if text.startswith("@"):
        return text
    fields = {"minute": "0", "hour": "0", "day": "*", "month": "*", "weekday": "*"}
    for each in text.split("|"):
        name, _, field = each.rpartition(":")
        fields[name or "minute"] = field
    return " ".join(fields.values())


@pytest.fixture
def crontab(tmp_path: Path) -> Callable[[str], bool]:
    """Ask Debian's crontab(1) whether cron takes an expression."""
    reason = missing_cron_reason()
    if reason:
        pytest.skip(reason)
    return partial(cron_takes, folder=tmp_path)


@pytest.mark.parametrize("text", READ_ALIKE.split())
def test_what_cron_takes_is_valid(text: str, crontab: Callable[[str], bool]) -> None:
    """Names in lists and ranges, either case, zeros in front, steps of any length."""
    assert crontab(whole(text))
    assert Schedule(whole(text), "UTC").expression == whole(text)


@pytest.mark.parametrize("text", READ_BY_NONE.split())
def test_what_cron_refuses_is_refused(
    text: str, crontab: Callable[[str], bool]
) -> None:
    """Each expression that cron refuses is refused, even if cronsim reads it."""
    assert not crontab(whole(text))
    refusal = "is no cron expression|has no interval|is no interval"
    with pytest.raises(ValueError, match=refusal):
        Schedule(whole(text))


@pytest.mark.parametrize("text", ONLY_CRON_TAKES.split())
def test_what_cron_takes_and_does_not_run_is_refused(
    text: str, crontab: Callable[[str], bool]
) -> None:
    """A range that ends before it begins has no ticks: who wrote it meant some."""
    assert crontab(whole(text))
    with pytest.raises(ValueError, match="is no cron expression|has no interval"):
        Schedule(whole(text))


@pytest.mark.parametrize(
    "blank", ["\u00a0", "\u2003", "\v", "\f", "\r", "\n", "\u2028"]
)
def test_only_blanks_and_tabs_part_fields(
    blank: str, crontab: Callable[[str], bool]
) -> None:
    """For cron all else is a part of a field, or ends the line."""
    assert crontab("* \t* *\t*  *")
    assert Schedule("* \t* *\t*  * ").expression == "* * * * *"
    assert not crontab(f"0{blank}0 * * *")
    with pytest.raises(ValueError, match="is no cron expression"):
        Schedule(f"0{blank}0 * * *")


@settings(suppress_health_check=list(HealthCheck))
@given(
    field=st.lists(
        st.sampled_from(
            [*"0157*-/,", "10", "31", "60", "mon", "SUN", "jan", "dec", "x"]
        ),
        min_size=1,
        max_size=6,
    ),
    place=st.sampled_from(["minute", "hour", "day", "month", "weekday"]),
)
def test_cron_takes_whatever_is_valid(
    field: list[str], place: str, crontab: Callable[[str], bool]
) -> None:
    """A schedule that cron refuses would be overdue for ever."""
    expression = whole(f"{place}:{''.join(field)}")
    with suppress(ValueError):
        Schedule(expression)
        assert crontab(expression), expression


@pytest.mark.parametrize(
    "text", [text for text in READ_ALIKE.split() if not text.startswith("@")]
)
@pytest.mark.parametrize("days", ["", "|day:13", "|weekday:5", "|day:13|weekday:5"])
def test_ticks_are_those_of_cron(text: str, days: str) -> None:
    """Each value of a range by its step; two fields of days are an or, or an and."""
    expression = whole(f"{text}{days}" if text.partition(":")[0] not in days else text)
    begin = datetime(2024, 1, 1, tzinfo=UTC)
    ticks = Schedule(expression, "UTC").ticks_after(begin - SECOND)
    expected = list(islice(times_of_a_year(expression, begin), 2000))
    assert expected
    assert list(islice(ticks, len(expected))) == expected


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
    longest = Schedule.expression_max_length
    assert longest + 1 + max(map(len, available_timezones())) <= 255


@pytest.mark.parametrize(
    "expression", ["*/5 * * * *", "@daily", " 0  6\t* * mon-fri ", "@hourly "]
)
def test_schedule_is_read_as_it_was_written(expression: str) -> None:
    """What stands in the table is the schedule, whatever blanks were in it."""
    schedule = Schedule(expression, "Europe/Berlin")
    assert parse_known(str(schedule)) == schedule


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
    """A job ticks when Debian's cron starts it, even if the clock changes."""
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
    ticks = list(cron_starts(expression, looks))
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


BERLIN = "Europe/Berlin"
SPRING = datetime(2026, 3, 29, 0, tzinfo=UTC), datetime(2026, 3, 29, 1, tzinfo=UTC)
AUTUMN = datetime(2026, 10, 24, 23, tzinfo=UTC), datetime(2026, 10, 25, 2, tzinfo=UTC)


def shown(expression: str, begin: datetime, end: datetime) -> str:
    """Return the ticks after and up to these, by their times in UTC."""
    schedule = Schedule(expression, BERLIN)
    forwards = list(takewhile(lambda tick: tick <= end, schedule.ticks_after(begin)))
    backwards = list(takewhile(lambda tick: tick > begin, schedule.ticks_until(end)))
    assert forwards == backwards[::-1]
    assert all(tick.tzinfo is UTC for tick in forwards)
    return " ".join(f"{tick:%H:%M}" for tick in forwards)


def test_each_time_that_a_clock_shows_is_told() -> None:
    """A skipped hour has no ticks, and a repeated hour has them twice."""
    assert shown("*/30 1-2 * * *", *SPRING) == "00:30"
    assert shown("*/30 1-3 * * *", *SPRING) == "00:30 01:00"
    assert shown("*/30 1-2 * * *", *AUTUMN) == "23:30 00:00 00:30 01:00 01:30"


def test_a_time_that_is_left_out_or_repeated_is_told_once() -> None:
    """The times that are left out fall together, the others count the first time."""
    assert shown("0,30 1-3 * * *", *SPRING) == "00:30 01:00"
    assert shown("0,30 1,2 * * *", *SPRING) == "00:30 01:00"
    assert shown("30 1,2 * * *", *SPRING) == "00:30 01:00"
    assert shown("0,30 1-3 * * *", *AUTUMN) == "23:30 00:00 00:30 02:00"


@pytest.mark.parametrize("hours", range(-3, 3))
def test_no_tick_near_a_change_of_the_clock_is_left_out(hours: int) -> None:
    """No tick near a clock change is left out, in either direction."""
    moment = datetime(2026, 10, 25, 0, 30, tzinfo=UTC) + timedelta(hours=hours)
    schedule = Schedule("*/10 * * * *", BERLIN)
    later = list(islice(schedule.ticks_after(moment), 150))
    earlier = list(islice(schedule.ticks_until(moment), 150))
    steps = [timedelta(minutes=10) * step for step in range(150)]
    assert later == [moment + timedelta(minutes=10) + step for step in steps]
    assert earlier == [moment - step for step in steps]


def test_ticks_around_a_moment_are_computed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The ticks around a moment are computed only once until the next tick."""
    simulated: list[object] = []
    simulate = expressions._simulate

    def note(*args: Any, **options: Any) -> Any:
        simulated.append(args)
        return simulate(*args, **options)

    monkeypatch.setattr(expressions, "_simulate", note)
    schedule = Schedule("*/15 * * * *", BERLIN)
    simulated.clear()
    for minute in (*range(30, 45), *range(59, 44, -1)):
        moment = datetime(2026, 10, 25, 0, minute, tzinfo=UTC)
        begin = moment.replace(minute=minute // 15 * 15)
        assert schedule.around(moment) == (begin, begin + timedelta(minutes=15))
    assert len(simulated) == 4
