"""Intervals: the schedules that cron can't express."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from io import StringIO
from itertools import islice, pairwise, takewhile
from math import gcd
from typing import Any

import pytest
from django.core.management import call_command
from django.test import override_settings
from hypothesis import example, given
from hypothesis import strategies as st

from django_shedlock import InvalidLockConfiguration, Schedule, execute, scheduler_lock
from django_shedlock.durations import format_duration
from django_shedlock.locks.configuration import make_request
from django_shedlock.models import LockRecord
from django_shedlock.schedules.intervals import LONGEST_INTERVAL
from django_shedlock.schedules.state import (
    ScheduleState,
    Start,
    Trigger,
    from_text,
    parse_known,
    to_text,
)
from tests.support.clocks import store_clock

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LONGEST_SECONDS = LONGEST_INTERVAL // SECOND
EXPRESSIONS = [
    *("0 6 * * *", "*/20 * * * *", "30 2 * * *", "59 23 * * 5", "0 0 1 * *"),
    *("30 */2 * * *", "@hourly", "0 12 29 2 *"),
]
ZONES = ["UTC", "Europe/Berlin", "Asia/Kolkata", "America/St_Johns", "Asia/Kathmandu"]

seconds = st.integers(1, 200_000) | st.integers(1, LONGEST_SECONDS)
moments = st.datetimes(
    datetime(1960, 1, 1), datetime(2400, 1, 1), timezones=st.just(UTC)
)
parts = st.lists(
    st.sampled_from(EXPRESSIONS) | seconds.map(lambda n: timedelta(seconds=n)),
    min_size=1,
    max_size=4,
)
zones = st.sampled_from(ZONES)


def every(count: int) -> Schedule:
    return Schedule(timedelta(seconds=count))


@given(count=seconds, moment=moments)
@example(count=20, moment=EPOCH)
@example(count=20, moment=EPOCH + 20 * SECOND)
@example(count=7, moment=datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC))
def test_ticks_are_the_multiples_since_the_epoch(count: int, moment: datetime) -> None:
    """The ticks before and after an instant follow by arithmetic alone."""
    schedule, length = every(count), timedelta(seconds=count)
    past = moment - (moment - EPOCH) % length
    assert list(islice(schedule.ticks_until(moment), 5)) == [
        past - number * length for number in range(5)
    ]
    assert list(islice(schedule.ticks_after(moment), 5)) == [
        past + number * length for number in range(1, 6)
    ]
    assert schedule.around(moment) == (past, past + length)
    assert schedule.interval == length


@pytest.mark.parametrize("zone", [*ZONES, None, "Pacific/Apia"])
def test_time_zone_does_not_move_the_ticks(zone: str | None) -> None:
    """Hosts with other settings have the same schedule, with the same text."""
    schedule = Schedule("every 1d", zone)
    assert schedule == Schedule("every 1d", "UTC")
    assert str(schedule) == "every 1d UTC"
    noon = datetime(2026, 3, 2, 12, tzinfo=UTC)
    assert next(schedule.ticks_after(noon)) == datetime(2026, 3, 3, tzinfo=UTC)


def test_interval_needs_no_time_zone_of_the_settings() -> None:
    """TIME_ZONE may be None, but a cron expression beside the interval needs one."""
    with override_settings(TIME_ZONE=None):
        made = make_request("poll", {"schedule": "every 20s"}).configuration()
        assert str(made.schedule) == "every 20s UTC"
        mixed = make_request("poll", {"schedule": ["every 20s", "0 6 * * *"]})
        with pytest.raises(InvalidLockConfiguration, match="has no time zone"):
            mixed.configuration()


def test_unknown_time_zone_of_an_interval_is_refused() -> None:
    """A misspelt zone is an error, even where it has no effect."""
    with pytest.raises(ValueError, match="there is no time zone 'Europe/Atlantis'"):
        Schedule("every 20s", "Europe/Atlantis")


def test_hour_that_comes_twice_has_all_its_ticks() -> None:
    """An interval goes on while the clocks change."""
    schedule = Schedule(["every 20m"], "Europe/Berlin")
    night = datetime(2026, 10, 24, 23, tzinfo=UTC)
    ticks = list(islice(schedule.ticks_after(night), 12))
    assert {after - before for before, after in pairwise(ticks)} == {20 * 60 * SECOND}


@pytest.mark.parametrize(
    "moment",
    [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
    ],
)
@pytest.mark.parametrize("schedule", ["every 1s", "every 366d", ["every 7s", "@daily"]])
def test_ends_of_the_calendar_have_ticks(moment: datetime, schedule: Any) -> None:
    """A lock that is paused until the year 9999 can be shown."""
    past, following = Schedule(schedule, "Pacific/Apia").around(moment)
    assert past < following


def test_search_does_not_count_ticks() -> None:
    """A tick of centuries ago is found by one step, also in a union."""
    moment = datetime(9000, 1, 1, 0, 0, 30, tzinfo=UTC)
    schedule = Schedule(["every 1s", "0 12 29 2 *"], "UTC")
    assert schedule.around(moment) == (moment, moment + SECOND)


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (timedelta(minutes=1), "every 1m"),
        ("every 60s", "every 1m"),
        ("every 1m", "every 1m"),
        (" every \t 1m ", "every 1m"),
        ("every 1.5m", "every 1m30s"),
        ("every PT15M", "every 15m"),
        ("every 90m", "every 1h30m"),
        (timedelta(days=366), "every 366d"),
        (["every 60s", timedelta(minutes=1)], "every 1m"),
        (["every 1h", "every 20s"], "every 20s | every 1h"),
        (("every 20s", "0 10 * * *", "15 6 * * *"), None),
        (["15 6 * * *", "0 10 * * *", "every 20s", "0 10 * * *"], None),
        ("0 10 * * * | every 20s | 15 6 * * *", None),
    ],
    ids=str,
)
def test_one_schedule_has_one_text(written: Any, text: str | None) -> None:
    """Neither spelling, nor order, nor repetition makes another schedule."""
    text = text or "15 6 * * * | 0 10 * * * | every 20s"
    assert Schedule(written, "UTC").expression == text
    assert Schedule(written, "UTC") == Schedule(text, "UTC")


@given(written=parts, zone=zones, order=st.randoms(use_true_random=False))
def test_text_is_read_back_whatever_the_order(
    written: list[Any], zone: str, order: Any
) -> None:
    """The text in a record is the whole schedule."""
    schedule = Schedule(written, zone)
    assert parse_known(str(schedule)) == schedule
    assert from_text(to_text(ScheduleState(schedule))).schedule == schedule
    shuffled = [*written, written[0]]
    order.shuffle(shuffled)
    assert str(Schedule(shuffled, zone)) == str(schedule)


@pytest.mark.parametrize(
    "text",
    [
        "0 10 * * * | 15 6 * * * UTC",
        "15 6 * * * | 0 10 * * * UTC",
        "15 6 * * * | 0 10 * * * | 15 6 * * * UTC",
    ],
)
def test_old_text_of_a_union_is_the_same_schedule(text: str) -> None:
    """A record that was written in another order makes no change of schedule."""
    assert parse_known(text) == Schedule(["0 10 * * *", "15 6 * * *"], "UTC")


@pytest.mark.parametrize("text", ["every 20s", "every 1500ms UTC", "every UTC"])
def test_text_of_another_program_is_no_schedule(text: str) -> None:
    """A schedule text that another program wrote is not interpreted."""
    assert parse_known(text) is None


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("every 500ms", 'is too short: "every 1s" is the shortest'),
        ("every 0s", "is too short"),
        (timedelta(0), "is too short"),
        (timedelta(seconds=-20), "is too short"),
        ("every 1500ms", 'no whole number of seconds: write "every 1s" or "every 2s"'),
        (timedelta(minutes=1, microseconds=1), 'write "every 1m" or "every 1m1s"'),
        ("every 367d", 'is too long: "every 366d" is the longest'),
        (timedelta(days=366, seconds=1), 'cron expression, such as "@yearly"'),
        (timedelta.max, "is no interval"),
        ("every 99999999999999999d", "is no interval"),
        ("every minute", 'is no interval: write one such as "every 20s"'),
        ("every 20", "is no interval"),
        ("every", "is no interval"),
        ("Every 20s", "is no interval"),
        ("every20s", "is no interval"),
        ("@every 20s", "is no interval"),
        ("every -20s", "is no interval"),
        (20, '20 is no schedule: give a cron expression, an interval such as "every 2'),
        (True, "True is no schedule"),
        ([None], "None is no schedule"),
        (["every 20s", 5], "5 is no schedule"),
        ([], "the list is empty; give a cron expression, or an interval"),
    ],
    ids=str,
)
def test_wrong_interval_names_the_lock_the_value_and_the_fix(
    written: Any, problem: str
) -> None:
    """A wrong interval is refused at decoration, with the lock, value and fix."""
    with pytest.raises(InvalidLockConfiguration) as refusal:
        scheduler_lock("poll", schedule=written)(print)
    text = str(refusal.value)
    assert text.startswith("Lock 'poll': schedule: ")
    assert problem in text
    assert repr(written) in text or isinstance(written, list)


def test_union_that_is_too_long_for_the_record_is_refused() -> None:
    """The error at decoration names the lock and the length."""
    fits = [f"every {count}h" for count in range(1, 18)]
    longest = Schedule(fits)
    assert len(longest.expression) <= Schedule.expression_max_length
    assert len(str(longest)) <= LockRecord._meta.get_field("schedule").max_length
    with pytest.raises(InvalidLockConfiguration) as refusal:
        scheduler_lock("poll", schedule=[*fits, "every 30h"])(print)
    assert "Lock 'poll': schedule: " in str(refusal.value)
    assert "has 205 characters; at most 200 are allowed" in str(refusal.value)


@pytest.mark.parametrize(
    ("written", "interval"),
    [
        (["every 20s", "every 30s"], "10s"),
        (["every 20s", "every 1m"], "20s"),
        (["every 4h", "every 6h"], "2h"),
        (["every 7s", "every 1h"], "1s"),
        (["every 1h", "0 6 * * *"], "1h"),
        (["every 1h", "15 6 * * *"], "15m"),
        (["every 1h", "50 6 * * *"], "10m"),
        (["every 1d", "@daily"], "1d"),
        (["every 1d", "0 10 * * *", "every 8h"], "2h"),
        (["every 1m30s", "0 6 * * *"], "1m30s"),
        (["every 25h", "0 6 * * *"], "1h"),
    ],
    ids=str,
)
def test_interval_of_a_union_is_the_shortest_time_between_ticks(
    written: list[str], interval: str
) -> None:
    """Two parts may tick shortly after each other; those that coincide are one tick."""
    assert format_duration(Schedule(written, "UTC").interval) == interval
    assert format_duration(Schedule(written[::-1], "UTC").interval) == interval


def test_shortest_time_between_ticks_goes_by_the_zone() -> None:
    """A full hour of India is half past one of an interval."""
    written = ["every 1h", "0 6 * * *"]
    assert Schedule(written, "Asia/Kolkata").interval == 30 * 60 * SECOND
    assert Schedule(written, "Europe/Berlin").interval == 60 * 60 * SECOND
    assert Schedule(written).interval == 60 * 60 * SECOND


@given(one=st.integers(1, 400), other=st.integers(1, 400))
def test_interval_of_two_intervals_is_what_counting_finds(one: int, other: int) -> None:
    """Within their common multiple, two ticks are as close as that, and none closer."""
    schedule = Schedule([timedelta(seconds=one), timedelta(seconds=other)])
    common = one * other // gcd(one, other)
    ticks = sorted({*range(0, common + 1, one), *range(0, common + 1, other)})
    closest = min(after - before for before, after in pairwise(ticks))
    assert schedule.interval == closest * SECOND


@given(
    expression=st.sampled_from(["0 6 * * *", "*/20 * * * *", "7 2,23 * * *"]),
    minutes=st.integers(1, 24 * 60),
    zone=st.sampled_from(["UTC", "Asia/Kolkata", "Asia/Kathmandu"]),
)
def test_interval_beside_a_daily_expression_is_what_counting_finds(
    expression: str, minutes: int, zone: str
) -> None:
    """Over a whole cycle of days, two ticks are as close as that, and none closer."""
    schedule = Schedule([expression, timedelta(minutes=minutes)], zone)
    # After so many days, the interval meets the day at the same minute again.
    days = minutes // gcd(minutes, 24 * 60)
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    few = min(days + 2, 40)
    end = begin + timedelta(days=few)
    ticks = takewhile(end.__gt__, schedule.ticks_after(begin))
    closest = min(after - before for before, after in pairwise(ticks))
    assert schedule.interval <= closest
    if days + 2 <= few:
        assert schedule.interval == closest


@given(written=parts, zone=zones, moment=moments)
def test_ticks_of_a_union_are_those_of_its_parts(
    written: list[Any], zone: str, moment: datetime
) -> None:
    """Forwards and backwards, each once, in their order."""
    single = [Schedule(part, zone) for part in written]
    union = Schedule(written, zone)
    later = {tick for each in single for tick in islice(each.ticks_after(moment), 30)}
    earlier = {tick for each in single for tick in islice(each.ticks_until(moment), 30)}
    assert list(islice(union.ticks_after(moment), 30)) == sorted(later)[:30]
    newest_first = sorted(earlier, reverse=True)
    assert list(islice(union.ticks_until(moment), 30)) == newest_first[:30]
    assert union.around(moment) == (newest_first[0], min(later))


@given(written=parts, zone=zones, moment=moments)
def test_no_two_ticks_are_closer_than_the_interval(
    written: list[Any], zone: str, moment: datetime
) -> None:
    """The checks rely on it; only a day on which the clocks change may be shorter."""
    schedule = Schedule(written, zone)
    ticks = list(islice(schedule.ticks_after(moment), 30))
    offsets = {tick.astimezone(schedule._zone).utcoffset() for tick in ticks}
    if offsets <= {*schedule._offsets} and len(offsets) == 1:
        assert min(b - a for a, b in pairwise(ticks)) >= schedule.interval


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("every 5m", "*/5 * * * *"),
        ("every 1m", "* * * * *"),
        (["every 5m", "0 6 * * *"], ["*/5 * * * *", "0 6 * * *"]),
        (["every 20s", "every 1m"], "every 20s"),
        (["every 7s", "every 14s", "every 49s"], timedelta(seconds=7)),
    ],
    ids=str,
)
def test_same_ticks_in_other_words(one: Any, other: Any) -> None:
    """An interval that divides a quarter of an hour means the same in each zone."""
    assert Schedule(one, "UTC").has_ticks_of(Schedule(other, "Asia/Kathmandu"))
    moment = datetime(2026, 3, 29, tzinfo=UTC)
    ticks = [
        list(islice(Schedule(written, zone).ticks_after(moment), 50))
        for written, zone in [(one, "UTC"), (other, "UTC"), (other, "Asia/Kathmandu")]
    ]
    if isinstance(one, str):
        assert ticks[0] == ticks[1] == ticks[2]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("every 20s", "every 40s"),
        ("every 20s", ["every 20s", "every 30s"]),
        ("every 7m", "*/7 * * * *"),
        ("every 1h", "@hourly"),  # not in India
        ("every 1d", "@daily"),
        ("every 20s", "* * * * *"),
    ],
    ids=str,
)
def test_other_ticks(one: Any, other: Any) -> None:
    """An interval that only looks like cron's is another schedule."""
    assert not Schedule(one, "UTC").has_ticks_of(Schedule(other, "UTC"))


@pytest.mark.parametrize(
    ("written", "allowance"),
    [
        ("every 20s", 5 * SECOND),
        ("every 1s", SECOND / 4),
        ("every 4m", 60 * SECOND),
        ("every 1h", 60 * SECOND),
        (["every 20s", "every 30s"], 5 * SECOND),
    ],
    ids=str,
)
def test_early_start_belongs_to_its_tick(written: Any, allowance: timedelta) -> None:
    """A quarter of the time between two ticks, a minute at the most."""
    schedule = Schedule(written)
    tick = datetime(2026, 3, 2, 10, 1, tzinfo=UTC)
    if written in ("every 4m", "every 1h"):
        tick = tick.replace(hour=12, minute=0)
    early = tick - allowance
    decide = partial(ScheduleState().decide, Start(), schedule, 60 * SECOND)
    assert decide(early).tick == tick
    before = decide(early - timedelta.resolution)
    assert (before.tick < tick, before.holds_until) == (True, early)


@given(
    st.lists(st.timedeltas(timedelta(0), 5 * SECOND), min_size=60, max_size=60),
    st.sampled_from([7, 20, 30]),
)
def test_each_tick_is_allowed_once(early: list[timedelta], count: int) -> None:
    """Hosts whose clocks are ahead by up to a quarter run each of 60 ticks once."""
    schedule, length = every(count), timedelta(seconds=count)
    begin = next(schedule.ticks_after(datetime(2026, 3, 2, tzinfo=UTC)))
    state, ran = ScheduleState(), []
    for number, ahead in enumerate(early):
        tick = begin + number * length
        for now in (tick - min(ahead, length / 4), tick, tick + length / 2):
            decision = state.decide(Start(), schedule, length, now)
            if decision.is_allowed:
                state = decision.state.after_success()
                ran.append(decision.tick)
    assert ran == [begin + number * length for number in range(60)]


def test_overdue_interval_is_caught_up_once() -> None:
    """However many ticks were missed, one run makes up for them."""
    schedule, grace = every(20), 300 * SECOND
    begun = datetime(2026, 3, 2, 10, tzinfo=UTC)
    state = ScheduleState(schedule, begun).after_success()
    assert state.due_at == begun + 20 * SECOND
    later = begun + timedelta(days=300, seconds=3)
    assert state.overdue_since(later, grace) == begun + 20 * SECOND
    decision = state.decide(Start(Trigger.CATCH_UP), schedule, grace, later)
    assert (decision.is_allowed, decision.tick) == (True, later - 3 * SECOND)
    done = decision.state.after_success()
    assert done.next_tick(later) == later + 17 * SECOND
    assert not done.decide(
        Start(Trigger.CATCH_UP), schedule, grace, later + 60 * SECOND
    ).is_allowed


@pytest.mark.django_db
@pytest.mark.each_store
def test_each_tick_runs_once_on_two_hosts() -> None:
    """A second host at the same tick is skipped, and the record has the text."""
    ran: list[datetime] = []
    begin = datetime(2026, 6, 1, 6, tzinfo=UTC)
    for number in range(3):
        tick = begin + number * 20 * SECOND
        for late in (0, 1):
            with store_clock(tick + late * SECOND):
                execute(partial(ran.append, tick), "poll", schedule=20 * SECOND)
        assert (LockRecord.objects.get().tick, ran[-1]) == (tick, tick)
    record = LockRecord.objects.get()
    assert len(ran) == 3
    assert record.schedule == "every 20s UTC"
    assert record.due_at == begin + 60 * SECOND


@pytest.mark.django_db
def test_people_read_an_interval_as_it_is_in_the_record() -> None:
    """The command line shows its text and its next tick."""
    execute(lambda: None, "poll", schedule=["every 20s", "@hourly"])
    for subcommand in (["list", "--wide"], ["show", "poll"]):
        out = StringIO()
        call_command("shedlock", *subcommand, "--json", stdout=out)
        assert '"@hourly | every 20s America/Chicago"' in out.getvalue()
        assert '"next_tick": "2' in out.getvalue()


@pytest.mark.django_db
@pytest.mark.parametrize(
    "schedule", ["every 20s", timedelta(seconds=20), [timedelta(seconds=20)]]
)
def test_command_of_the_settings_may_have_an_interval(schedule: Any) -> None:
    """SHEDLOCK_COMMANDS takes what the decorator takes."""
    options = {"lock_at_most_for": "15s", "schedule": schedule}
    with override_settings(SHEDLOCK_COMMANDS={"clearsessions": options}):
        call_command("clearsessions")
    assert LockRecord.objects.get(name="clearsessions").schedule == "every 20s UTC"
