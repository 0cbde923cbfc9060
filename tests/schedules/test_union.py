"""Several expressions and intervals in one schedule: the union of their ticks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from io import StringIO
from itertools import islice, pairwise, takewhile
from typing import Any

import pytest
from django.core.management import call_command
from django.test import override_settings
from hypothesis import given
from hypothesis import strategies as st

from django_shedlock import InvalidLockConfiguration, Schedule, execute
from django_shedlock.durations import format_duration
from django_shedlock.locks.configuration import LockConfiguration, make_request
from django_shedlock.models import LockRecord
from django_shedlock.schedules.state import parse_known
from tests.support.clocks import store_clock

TWICE = ["15 6 * * *", "0 10 * * *"]
EXPRESSIONS = [
    *("0 6 * * *", "*/20 * * * *", "15 6 * * 1-5", "59 23 * * 5", "0 0 * * 6"),
    *("30 2 1 * *", "*/30 2 * * *", "0 0,12 28-31 * *", "@weekly", "0 12 29 2 *"),
]


def configuration(schedule: Any) -> LockConfiguration:
    return make_request("scrape", {"schedule": schedule}).configuration()


def shown(schedule: Schedule, begin: datetime, count: int) -> list[str]:
    """Return the next ticks as the clock of the schedule's zone shows them."""
    ticks = islice(schedule.ticks_after(begin), count)
    zone = schedule._zone
    return [f"{tick.astimezone(zone):%d %H:%M}" for tick in ticks]


def test_list_has_the_ticks_of_all_its_expressions() -> None:
    """A list of cron expressions has the ticks of all of them."""
    schedule = Schedule(TWICE, "UTC")
    begin = datetime(2026, 6, 1, 6, 15, tzinfo=UTC)
    assert shown(schedule, begin, 3) == ["01 10:00", "02 06:15", "02 10:00"]
    assert schedule.around(begin) == (begin, begin.replace(hour=10, minute=0))


@pytest.mark.parametrize("schedule", [TWICE, tuple(TWICE), " | ".join(TWICE)])
def test_list_a_tuple_and_the_text_of_the_record_are_one_schedule(
    schedule: Any,
) -> None:
    """A lock may be given each of them, and its record has one text."""
    ticks = configuration(schedule).schedule
    assert str(ticks).startswith("15 6 * * * | 0 10 * * * America/")
    assert parse_known(str(ticks)) == ticks


@pytest.mark.parametrize(
    "schedule", [["0 6 * * *"], ("0  6 * * * ",), ["0 6 * * *", "0 6 * * *"]]
)
def test_list_of_one_expression_is_that_expression(schedule: Any) -> None:
    """
    A list of one expression equals that expression.

    The record has the same text, so two versions of a project agree.
    """
    assert Schedule(schedule, "UTC") == Schedule("0 6 * * *", "UTC")
    assert configuration(schedule) == configuration("0 6 * * *")


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        ([], "the list is empty"),
        ((), "the list is empty"),
        (["0 6 * * *", 5], "5 is no schedule: give a cron expression"),
        (["0 6 * * *", ["0 7 * * *"]], "is no schedule"),
        (["0 6 * * *", ""], "'' is no cron expression"),
        (["0 6 * * *", "@reboot"], "'@reboot' has no interval"),
        (["0 6 * * *", "0 25 * * *"], "Bad hour"),
        ({"0 6 * * *"}, "is no schedule: give a cron expression"),
        (5, "5 is no schedule: give a cron expression, an interval such as"),
        ([f"{minute} 6 1,15 * *" for minute in range(20)], "at most 200 are allowed"),
        (
            [f"every {second}s" for second in range(1, 41)],
            "has 468 characters",
        ),
        (["0 6 * * *", "every 0.5s"], "'every 0.5s' is too short: \"every 1s\""),
    ],
    ids=lambda value: str(value)[:40],
)
def test_wrong_list_names_the_lock_and_what_is_wrong(schedule: Any, text: str) -> None:
    """The error is that of a wrong lock, as for one expression."""
    with pytest.raises(InvalidLockConfiguration, match=text) as refusal:
        make_request("scrape", {"schedule": schedule})
    assert "Lock 'scrape': schedule: " in str(refusal.value)


def test_request_of_a_list_is_kept_as_that_of_a_text_is() -> None:
    """A call of hold() with a list does not parse its expressions again."""
    assert make_request("scrape", {"schedule": list(TWICE)}) is make_request(
        "scrape", {"schedule": list(TWICE)}
    )


@pytest.mark.parametrize(
    ("expressions", "interval"),
    [
        (TWICE, "3h45m"),
        (["0 23 * * *", "0 1 * * *"], "2h"),
        (["59 23 * * 5", "0 0 * * 6"], "1m"),
        (["59 23 * * 5", "0 0 * * 0"], "1d1m"),
        (["0 6 * * 1", "0 6 * * 1,3"], "2d"),
        (["0 12 29 2 *", "0 12 1 3 *"], "1d"),
        (["@daily", "0 0 * * 1"], "1d"),
    ],
    ids=str,
)
def test_interval_is_the_shortest_time_between_any_two_ticks(
    expressions: list[str], interval: str
) -> None:
    """The interval is the shortest time between any two ticks of the expressions."""
    assert format_duration(Schedule(expressions).interval) == interval
    assert format_duration(Schedule(expressions[::-1]).interval) == interval


@given(st.lists(st.sampled_from(EXPRESSIONS), min_size=1, max_size=3))
def test_interval_is_that_of_the_ticks_of_many_years(expressions: list[str]) -> None:
    """No two ticks are closer, and two are as close as that."""
    schedule = Schedule(expressions, "UTC")
    begin, end = datetime(2024, 2, 28, tzinfo=UTC), datetime(2052, 3, 2, tzinfo=UTC)
    ticks = list(islice(takewhile(end.__gt__, schedule.ticks_after(begin)), 3000))
    assert schedule.interval == min(after - before for before, after in pairwise(ticks))


@given(
    expressions=st.lists(st.sampled_from(EXPRESSIONS), min_size=1, max_size=3),
    hours=st.integers(-48, 48),
)
def test_ticks_are_those_of_each_expression_once(
    expressions: list[str], hours: int
) -> None:
    """Each keeps its own rule on the day on which the clocks change, either way."""
    moment = datetime(2026, 3, 29, tzinfo=UTC) + timedelta(hours=hours)
    single = [Schedule(expression, "Europe/Berlin") for expression in expressions]
    union = Schedule(expressions, "Europe/Berlin")
    later = {tick for each in single for tick in islice(each.ticks_after(moment), 40)}
    earlier = {tick for each in single for tick in islice(each.ticks_until(moment), 40)}
    assert list(islice(union.ticks_after(moment), 40)) == sorted(later)[:40]
    newest_first = sorted(earlier, reverse=True)
    assert list(islice(union.ticks_until(moment), 40)) == newest_first[:40]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (TWICE, TWICE[::-1]),
        (["0 6 * * *", "0 10 * * *"], "0 6,10 * * *"),
        (["0 9 * * 1-5", "0 9 * * 6,0"], "0 9 * * *"),
        (["@daily", "0 0 * * 1"], "0 0 * * *"),
    ],
    ids=str,
)
def test_same_ticks_in_other_expressions(one: Any, other: Any) -> None:
    """What counts is when cron starts the job, not in how many lines."""
    assert Schedule(one, "UTC").has_ticks_of(Schedule(other, "Asia/Tokyo"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (TWICE, TWICE[:1]),
        (["0 9 * * 1-5", "0 12 * * 6"], "0 9,12 * * *"),
        (["*/30 2 * * *", "@daily"], ["0,30 2 * * *", "@daily"]),
    ],
    ids=str,
)
def test_other_ticks_of_a_list(one: Any, other: Any) -> None:
    """A tick of one alone is enough, or one on the day on which the clocks change."""
    assert not Schedule(one, "UTC").has_ticks_of(Schedule(other, "UTC"))


@pytest.mark.django_db
@pytest.mark.each_store
def test_each_tick_of_each_expression_runs_once() -> None:
    """A second host at the same tick is skipped, and the record shows the list."""
    ran: list[datetime] = []
    schedule = Schedule(TWICE, "UTC")
    at_six = datetime(2026, 6, 1, 6, 15, tzinfo=UTC)
    for tick in (at_six, at_six.replace(hour=10, minute=0), at_six + timedelta(days=1)):
        for late in (0, 20):
            with store_clock(tick + timedelta(seconds=late)):
                execute(partial(ran.append, tick), "scrape", schedule=schedule)
        record = LockRecord.objects.get()
        assert (record.tick, ran[-1]) == (tick, tick)
    assert len(ran) == 3
    assert record.schedule == "15 6 * * * | 0 10 * * * UTC"
    assert record.due_at == datetime(2026, 6, 2, 10, tzinfo=UTC)


@pytest.mark.django_db
@pytest.mark.parametrize("subcommand", [("list", "--wide"), ("show", "scrape")])
def test_people_read_the_list_as_it_is_in_the_record(subcommand: Any) -> None:
    """The command line shows all expressions, and the zone."""
    execute(lambda: None, "scrape", schedule=TWICE)
    out = StringIO()
    call_command("shedlock", *subcommand, "--json", stdout=out)
    assert '"15 6 * * * | 0 10 * * * America/Chicago"' in out.getvalue()


@pytest.mark.django_db
def test_command_of_the_settings_may_have_a_list() -> None:
    """SHEDLOCK_COMMANDS takes what the decorator takes."""
    options = {"lock_at_most_for": "1h", "schedule": TWICE}
    with override_settings(SHEDLOCK_COMMANDS={"clearsessions": options}):
        call_command("clearsessions")
    schedule = LockRecord.objects.get(name="clearsessions").schedule
    assert schedule == "15 6 * * * | 0 10 * * * America/Chicago"
