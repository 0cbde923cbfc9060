"""What an operator sees of a lock with a schedule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.test import override_settings

from django_shedlock.progress import Progress
from django_shedlock.schedules import Schedule
from django_shedlock.states import LockState, LockStatus

HOUR = timedelta(hours=1)
GRACE = timedelta(minutes=5)
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
NIGHTLY = Schedule("0 2 * * *", "America/Chicago")


def status(state: LockState, clock: datetime = NOON) -> LockStatus:
    """Return the status of a lock whose last success was two days ago."""
    last = NOON - timedelta(days=2, hours=4)
    return LockStatus(
        name="job",
        state=state,
        locked_by="web-1:7:a",
        locked_at=clock,
        lock_until=clock,
        remaining=timedelta(0),
        clock=clock,
        progress=Progress(NIGHTLY, last, last),
    )


@pytest.mark.parametrize("state", [s for s in LockState if s is not LockState.RUNNING])
def test_job_that_does_not_run_is_overdue(state: LockState) -> None:
    """Also one whose lock lock_at_least_for keeps, or whose worker died."""
    found = status(state)
    assert found.overdue_since(GRACE) == NOON - timedelta(days=1, hours=4)
    assert found.overdue_for(GRACE) == timedelta(days=1, hours=4)


def test_running_job_is_not_overdue() -> None:
    """It may succeed yet; if it never ends, it takes too long."""
    found = status(LockState.RUNNING)
    assert found.overdue_since(GRACE) is None
    assert found.overdue_for(GRACE) == timedelta(0)


@pytest.mark.parametrize("state", LockState)
def test_job_that_runs_after_its_next_tick_skips_it(state: LockState) -> None:
    """It is told since which tick it runs, after the grace."""
    tick = NOON - timedelta(days=2, hours=4)
    expected = tick if state is LockState.RUNNING else None
    next_tick = tick + timedelta(days=1)
    assert status(state).skips_since(GRACE) == expected
    assert status(state, next_tick + GRACE).skips_since(GRACE) == expected
    soon = status(state, next_tick + GRACE - timedelta(seconds=1))
    assert soon.skips_since(GRACE) is None


def test_clock_without_a_zone_is_in_the_projects() -> None:
    """With USE_TZ = False the ticks are the same instants."""
    local = datetime(2026, 3, 2, 6)
    with override_settings(USE_TZ=False, TIME_ZONE="America/Chicago"):
        found = status(LockState.FREE, clock=local)
        assert found.overdue_for(GRACE) == timedelta(days=1, hours=4)
        assert found.next_tick == NOON + timedelta(hours=20)


def test_schedule_is_told() -> None:
    """A lock without one has neither a next tick nor one that is late."""
    assert status(LockState.FREE).schedule == NIGHTLY
    bare = LockStatus("job", LockState.FREE, "", NOON, NOON, timedelta(0), NOON)
    assert (bare.schedule, bare.next_tick, bare.overdue_since(GRACE)) == (None,) * 3
    assert bare.overdue_for(GRACE) == timedelta(0)
