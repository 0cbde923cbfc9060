"""What the history and the audit log say of the last 24 hours of locks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_shedlock.clocks import aware
from django_shedlock.console.admin.days import (
    DAY,
    HOST_RUN_LIMIT,
    SINGLE_RUN_LIMIT,
    Day,
    DayReader,
)
from django_shedlock.console.models import ActionKind, ActionResult
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRun
from django_shedlock.providers import get_provider
from tests.support.locks import add_run
from tests.support.operators import statements
from tests.support.pages import add_action

pytestmark = [pytest.mark.django_db, pytest.mark.each_store]

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


def reader() -> DayReader:
    return DayReader(get_provider(), NOON, ZERO)


def ran(
    name: str,
    hours_ago: float,
    outcome: RunOutcome = RunOutcome.SUCCEEDED,
    *,
    took: timedelta = SECOND,
    **columns: Any,
) -> LockRun:
    began = NOON - hours_ago * HOUR
    times = {"started": began, "ended": began + took, "duration": took}
    return add_run(name, outcome, **{**times, **columns})


def times(day: Day, name: str) -> list[tuple[str, timedelta, timedelta, int]]:
    """Return the outcome, the begin and the end before noon, and the runs."""
    return [
        (span.outcome, NOON - span.began, NOON - span.ended, span.runs)
        for span in day.spans.get(name, [])
    ]


def test_runs_of_an_hour_are_counted() -> None:
    """Runs of an hour that ended alike are one span."""
    for minutes in (5, 25, 55):
        ran("billing", 3 - minutes / 60, took=2 * MINUTE)
    ran("billing", 3 - 30 / 60, RunOutcome.FAILED)
    single = ran("billing", 1)
    ran("other", 1)
    day = reader().day(["billing"])
    assert times(day, "billing") == [
        ("succeeded", 3 * HOUR - 5 * MINUTE, 2 * HOUR + 3 * MINUTE, 3),
        ("failed", 2.5 * HOUR, 2.5 * HOUR - SECOND, 1),
        ("succeeded", HOUR, HOUR - SECOND, 1),
    ]
    assert [span.key for span in day.spans["billing"]][2] == single.pk
    assert "other" not in day.spans


def test_only_this_provider_and_this_day_counts() -> None:
    """A run that ended before is not read, though it may have a larger key."""
    ran("billing", 2, provider="reports")
    ran("billing", 2)
    ran("billing", 25)
    assert len(times(reader().day(["billing"]), "billing")) == 1


def test_run_that_began_before_the_day_is_whole() -> None:
    """A run that ended within the day begins at the left edge of the strip."""
    ran("billing", 30, took=8 * HOUR)
    day = reader().day(["billing"])
    assert times(day, "billing") == [("succeeded", 30 * HOUR, 22 * HOUR, 1)]
    assert day.place(NOON - 30 * HOUR) == 0


def test_run_without_a_start_stands_where_it_ended() -> None:
    """An abandoned run without a known start stands where it ended."""
    ran("billing", 2, RunOutcome.ABANDONED, started=None, duration=None)
    [(_, began, ended, _)] = times(reader().day(["billing"]), "billing")
    assert began == ended


def test_rows_need_not_be_in_the_order_of_their_ends() -> None:
    """A row that is written late does not hide the rows that were written before."""
    ran("billing", 3)
    ran("billing", 23)
    assert len(times(reader().day(["billing"]), "billing")) == 2


def test_job_that_runs_seldom_has_single_runs() -> None:
    """The timeline has each run of a quiet job, and counts those of a busy one."""
    first, second = ran("billing", 2.5, host="web-1"), ran("billing", 2.4, host="web-2")
    LockRun.objects.bulk_create(
        LockRun(
            name="busy",
            provider="default",
            locked_by=f"web-1:1:{number}",
            host="web-1",
            outcome="succeeded",
            started=NOON - HOUR,
            ended=NOON - HOUR,
        )
        for number in range(SINGLE_RUN_LIMIT + 1)
    )
    day = reader().detailed_day(["billing", "busy"])
    assert [(span.key, span.host) for span in day.spans["billing"]] == [
        (first.pk, "web-1"),
        (second.pk, "web-2"),
    ]
    assert [span.runs for span in day.spans["busy"]] == [SINGLE_RUN_LIMIT + 1]


def test_hosts_are_those_of_all_locks() -> None:
    """A host has the hours in which it began runs; unknown starts don't count."""
    ran("billing", 5, host="web-1")
    ran("other", 4.99, host="web-1", took=MINUTE)
    ran("other", 2, host="web-2")
    ran("other", 1, host="web-3", started=None)
    ran("other", 1, host="web-4", provider="reports")
    day = reader().detailed_day(["billing"])
    assert sorted(day.hosts) == ["web-1", "web-2"]
    assert [hour.runs for hour in day.hosts["web-1"]] == [2]
    [hour] = day.hosts["web-2"]
    assert hour.last == NOON - 2 * HOUR


def test_long_run_hides_no_silence_of_its_host() -> None:
    """A start counts in its own hour, not in the hour in which its run ended."""
    ran("nightly", 10, host="web-1", took=8.5 * HOUR)
    ran("billing", 2, host="web-1")
    ran("billing", 30, host="web-1", took=29 * HOUR)
    hours = reader().detailed_day(["billing"]).hosts["web-1"]
    assert [(hour.first, hour.last) for hour in hours] == [
        (NOON - 10 * HOUR, NOON - 10 * HOUR),
        (NOON - 2 * HOUR, NOON - 2 * HOUR),
    ]


def test_hosts_of_a_subclass_are_those_of_its_locks() -> None:
    """Who sees only some of the locks learns nothing of the others' hosts."""
    ran("billing", 5, host="web-1")
    ran("other", 4, host="web-2")
    assert list(reader().detailed_day(["billing"], all_hosts=False).hosts) == ["web-1"]


@pytest.mark.parametrize(
    ("outcome", "columns"),
    [
        (RunOutcome.LOST, {"lost_at": NOON - 29 * HOUR}),
        (RunOutcome.ABANDONED, {}),
    ],
)
def test_run_that_was_lost_before_the_day_does_not_widen_it(
    outcome: RunOutcome, columns: dict[str, Any]
) -> None:
    """The row of a lost run is written again at its end, and keeps its small key."""
    lost = ran("other", 30, outcome, took=10 * HOUR, **columns)
    first = ran("billing", 19)
    assert reader()._first_key == first.pk > lost.pk


def test_hosts_of_a_busy_day_are_those_of_the_newest_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the newest runs are read for the hosts."""
    assert HOST_RUN_LIMIT == 100_000
    monkeypatch.setattr("django_shedlock.console.admin.days.HOST_RUN_LIMIT", 1)
    ran("billing", 5, host="web-1")
    ran("billing", 4, host="web-2")
    assert list(reader().detailed_day(["billing"]).hosts) == ["web-2"]


def act(kind: ActionKind, hours_ago: float, **columns: Any) -> None:
    began = NOON - hours_ago * HOUR
    add_action("billing", kind=kind, began=began, ended=began, **columns)


def paused(*names: str) -> list[tuple[timedelta, timedelta | None]]:
    pauses = reader().day(list(names) or ["billing"]).pauses.get("billing", [])
    return [
        (NOON - each.began, None if each.ended is None else NOON - each.ended)
        for each in pauses
    ]


def test_pauses_come_from_the_audit_log() -> None:
    """A pause is ended by a resume, by a release, by another pause, or by itself."""
    act(ActionKind.PAUSE, 40)
    act(ActionKind.RESUME, 20)
    act(ActionKind.PAUSE, 9)
    act(ActionKind.RELEASE, 8)
    act(ActionKind.RELEASE, 7)
    act(ActionKind.PAUSE, 6, result=ActionResult.REFUSED)
    act(ActionKind.PAUSE, 5, until=NOON - 4 * HOUR)
    act(ActionKind.PAUSE, 3)
    act(ActionKind.PAUSE, 2, until=NOON + HOUR)
    assert paused() == [
        (DAY, 20 * HOUR),
        (9 * HOUR, 8 * HOUR),
        (5 * HOUR, 4 * HOUR),
        (3 * HOUR, 2 * HOUR),
        (2 * HOUR, -HOUR),
    ]
    assert paused("other") == []


def test_timed_pause_ends_with_its_resume() -> None:
    """A resume ends a pause whose own end would have been later."""
    act(ActionKind.PAUSE, 5, until=NOON - HOUR)
    act(ActionKind.RESUME, 4)
    assert paused() == [(5 * HOUR, 4 * HOUR)]


def test_day_is_three_statements_and_the_timeline_five() -> None:
    """The number of statements depends neither on locks nor on runs."""
    for number in range(30):
        ran(f"job-{number % 5}", number / 2)
    names = [f"job-{number}" for number in range(50)]
    with CaptureQueriesContext(
        connection,
    ) as asked:
        reader().day(names)
    assert len(statements(asked)) == 3
    with CaptureQueriesContext(connection) as asked:
        reader().detailed_day(names)
    assert len(statements(asked)) == 5
    with CaptureQueriesContext(connection) as asked:
        reader().day([])
    assert len(statements(asked)) == 0


@pytest.mark.parametrize("zone", ["America/Chicago", "Asia/Kathmandu"])
def test_reader_without_time_zones_sees_the_same(zone: str) -> None:
    """Without time zones, instants are those of the project's zone."""
    with override_settings(USE_TZ=False, TIME_ZONE=zone):
        run = ran("billing", 3)
        run.refresh_from_db()
        day = DayReader(get_provider(), NOON, ZERO).detailed_day(["billing"])
        [span] = day.spans["billing"]
        assert span.began == aware(run.started or run.ended)
        assert len(day.hours()) == 4


def test_history_that_cannot_be_read_leaves_the_day_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the history can't be read, the day is empty and the list is still shown."""
    monkeypatch.setattr("django_shedlock.console.monitoring.evidence.read_rows", refuse)
    day = reader().detailed_day(["billing"])
    assert (day.spans, day.hosts, day.pauses) == ({}, {}, {})


def refuse(*arguments: object) -> object:
    from django.db import OperationalError

    raise OperationalError("no such table: elsewhere")
