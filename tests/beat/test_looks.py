"""What a beat decides from one look."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from django_shedlock.beat.looks import (
    BeatJobs,
    BeatReport,
    Look,
    ReportKind,
    RunningJob,
)
from django_shedlock.clocks import aware
from django_shedlock.locks.status import LockStatus
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.registry.jobs import Job
from django_shedlock.schedules.cron import Schedule

GRACE = timedelta(seconds=90)
HOURLY = Schedule("0 * * * *", "UTC")
HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("first_look", "expected"),
    [(GRACE - SECOND, [ReportKind.TOO_OLD]), (GRACE + SECOND, [])],
    ids=["within the grace", "later"],
)
def test_tick_from_before_the_first_look(
    first_look: timedelta, expected: list[ReportKind]
) -> None:
    """It is reported if a beat that looked within the grace did not begin it."""
    status = registered(2 * HOUR)
    tick = newest_tick(status)
    look = look_at(status, clock=tick + GRACE, since=tick + first_look)
    reports = look.reports(busy={"job"}, room=1, running={})
    assert reports == [BeatReport(kind, "job", tick) for kind in expected]


@pytest.mark.parametrize("was_begun", [False, True])
def test_tick_before_the_newest_one(was_begun: bool) -> None:
    """It was passed over, unless its body had begun and was interrupted."""
    status = registered(3 * HOUR)
    tick = newest_tick(status)
    if was_begun:
        ticks = replace(status.schedule_state, repeated_tick=tick - HOUR)
        status = replace(status, schedule_state=ticks)
    look = look_at(status, clock=tick, since=tick - 2 * HOUR)
    reports = look.reports(busy={"job"}, room=1, running={})
    passed_over = BeatReport(ReportKind.PASSED_OVER, "job", tick - HOUR)
    assert reports == ([] if was_begun else [passed_over])


@pytest.mark.parametrize("is_earlier", [False, True])
def test_job_that_outlasts_its_lease(is_earlier: bool) -> None:
    """The beat that runs it reports it, and does not start it a second time."""
    status = registered(2 * HOUR)
    tick = newest_tick(status)
    look = look_at(status, clock=tick + GRACE / 2, since=tick - SECOND)
    since = tick - HOUR if is_earlier else tick
    running = {"job": RunningJob(since, "host:1:a")}
    reports = look.reports(busy={"job"}, room=1, running=running)
    runs_on = BeatReport(ReportKind.RUNS_ON, "job", tick, "host:1:a")
    assert reports == ([runs_on] if is_earlier else [])
    assert [due.name for due in look.due()] == ["job"]
    assert look.due(busy=running) == []


def registered(long_ago: timedelta) -> LockStatus:
    """Return the record of a job that was registered so long ago, and never ran."""
    provider = MemoryLockProvider("default")
    now = aware(provider.now())
    provider.register("job", HOURLY, since=now - long_ago)
    status = provider.status("job")
    assert status is not None
    return status


def newest_tick(status: LockStatus) -> datetime:
    return HOURLY.around(aware(status.clock))[0]


def look_at(status: LockStatus, clock: datetime, since: datetime) -> Look:
    """Return a look at this record of an hourly job."""
    job = Job("job", print, options={"schedule": HOURLY, "lock_at_most_for": "1m"})
    return Look(
        jobs=BeatJobs({"job": {HOURLY: job}}, {}),
        records={"job": status},
        clock=clock,
        since=since,
        grace=GRACE,
    )
