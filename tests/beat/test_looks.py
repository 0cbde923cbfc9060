"""What a beat decides from one look."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from django.core.management.base import OutputWrapper
from django.core.management.color import no_style

from django_shedlock.beat.cli import Beat
from django_shedlock.beat.looks import (
    BEAT_LOOK_INTERVAL,
    BeatJobs,
    BeatReport,
    Look,
    ReportKind,
    RunningJob,
)
from django_shedlock.beat.loop import BeatLoop, BeatOptions
from django_shedlock.clocks import aware, uptime
from django_shedlock.locks.status import LockState, LockStatus
from django_shedlock.providers import get_provider
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.registry.jobs import Job
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import Start, Trigger
from django_shedlock.testing import locked_in_memory
from django_shedlock.testing.times import OneClockProvider
from tests.support.jobs import scheduled_jobs

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
    """A missed tick is reported if the beat's first look was within the grace."""
    status = registered(2 * HOUR)
    tick = newest_tick(status)
    look = look_at(status, clock=tick + GRACE, since=tick + first_look)
    reports = look.reports(busy={"job"}, room=1, running={})
    assert reports == [BeatReport(kind, "job", tick) for kind in expected]


@pytest.mark.parametrize("was_begun", [False, True])
def test_tick_before_the_newest_one(was_begun: bool) -> None:
    """A tick before the newest one was passed over, unless its body had begun."""
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


def test_job_that_waits_is_for_the_tick_it_was_owed_for() -> None:
    """However late its process starts, the job runs for that tick, and not the next."""
    status = registered(2 * HOUR)
    tick = newest_tick(status)
    status = replace(status, clock=tick + GRACE / 2)
    look = look_at(status, clock=status.clock, since=tick - SECOND)
    [due] = look.due()
    assert (due.start, due.since) == (Start(asked_at=tick), tick)


def test_expired_job_is_not_caught_up() -> None:
    """An operator decides whether the run that left its lock behind is gone."""
    status = registered(3 * HOUR)
    look = look_at(status, clock=aware(status.clock), since=aware(status.clock))
    assert [due.start.trigger for due in look.due()] == [Trigger.CATCH_UP]
    expired = replace(status, state=LockState.EXPIRED)
    assert look_at(expired, clock=look.clock, since=look.since).due() == []


@pytest.fixture
def loop() -> Iterator[BeatLoop]:
    """Return a beat whose store's clock can be set."""
    with locked_in_memory(), scheduled_jobs() as jobs:
        output = Beat(OutputWrapper(StringIO()), OutputWrapper(StringIO()), no_style())
        loop = BeatLoop(get_provider(), output, BeatOptions(catches_up=False))
        loop._began_at = uptime()
        assert len(loop.jobs.scheduled) > 1, jobs
        yield loop


def set_clock(loop: BeatLoop, moment: datetime) -> None:
    assert isinstance(loop.provider, OneClockProvider)
    loop.provider.moment = moment


def test_look_is_at_the_instant_of_the_stores_clock(loop: BeatLoop) -> None:
    """A host whose own clock is wrong starts the same jobs as the others."""
    moment = datetime(2026, 3, 2, 12, tzinfo=UTC)
    set_clock(loop, moment)
    loop._look()
    assert loop.since is not None
    assert abs(loop.since - moment) < HOUR


def test_look_follows_within_five_seconds(loop: BeatLoop) -> None:
    """The store's clock may be set back, so no look waits for the next tick alone."""
    for day in (3, 2):  # the first one registers the schedules
        set_clock(loop, datetime(2026, 3, day, 12, tzinfo=UTC))
        loop._look()
    pause = loop._looks_at - uptime()
    assert 0 < pause <= BEAT_LOOK_INTERVAL.total_seconds()


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
