"""What an operator sees of a lock with a schedule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.test import override_settings

from django_shedlock.locks import status as states
from django_shedlock.locks.status import (
    JobState,
    LockHolder,
    LockState,
    LockStatus,
    next_usual,
)
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import ScheduleState

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
        schedule_state=ScheduleState(NIGHTLY, last).after_success(),
    )


@pytest.mark.parametrize(
    "state", [LockState.HELD_AT_LEAST, LockState.EXPIRED, LockState.FREE]
)
def test_job_that_does_not_run_is_overdue(state: LockState) -> None:
    """A job that does not run is overdue, even if its lock is kept or expired."""
    assert status(state).overdue_since(GRACE) == NOON - timedelta(days=1, hours=4)


@pytest.mark.parametrize("state", [LockState.RUNNING, LockState.PAUSED])
def test_job_that_runs_or_is_paused_is_not_overdue(state: LockState) -> None:
    """A job that runs or is paused is not overdue."""
    assert status(state).overdue_since(GRACE) is None


@pytest.mark.parametrize("state", LockState)
def test_job_that_runs_after_its_next_tick_skips_it(state: LockState) -> None:
    """A job that still runs reports its own tick once the next tick is overdue."""
    tick = NOON - timedelta(days=2, hours=4)
    expected = tick if state is LockState.RUNNING else None
    next_tick = tick + timedelta(days=1)
    assert status(state).skips_since(GRACE) == expected
    assert status(state, next_tick + GRACE).skips_since(GRACE) == expected
    soon = status(state, next_tick + GRACE - timedelta(seconds=1))
    assert soon.skips_since(GRACE) is None


def test_clock_without_a_zone_is_in_the_projects() -> None:
    """With USE_TZ = False the store's clock is in the project's time zone."""
    local = datetime(2026, 3, 2, 6)
    with override_settings(USE_TZ=False, TIME_ZONE="America/Chicago"):
        found = status(LockState.FREE, clock=local)
        assert found.overdue_since(GRACE) == NOON - timedelta(days=1, hours=4)
        assert found.next_tick == NOON + timedelta(hours=20)


def test_schedule_is_told() -> None:
    """A lock without one has neither a next tick nor one that is late."""
    assert status(LockState.FREE).schedule == NIGHTLY
    bare = LockStatus("job", LockState.FREE, "", NOON, NOON, timedelta(0), NOON)
    assert (bare.schedule, bare.next_tick, bare.overdue_since(GRACE)) == (None,) * 3


def known() -> LockHolder:
    return LockHolder("web-1:7:a", HOUR)


def test_holder_cannot_be_changed() -> None:
    """Whoever is told of it is told the same."""
    holder = known()
    with pytest.raises(AttributeError):
        holder.locked_by = "me"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("usual", "took", "expected"),
    [
        (None, 60.0, 60.0),  # the first success
        (60.0, 60.0, 60.0),
        (60.0, 36_000.0, 78.75),  # an outlier counts as 2 * 60 + 15 seconds
        (60.0, 0.0, 56.25),  # one that has nothing to do counts as 45 seconds
        (0.0, 30.0, 3.75),
    ],
)
def test_usual_duration_is_hardly_moved_by_an_outlier(
    usual: float | None, took: float, expected: float
) -> None:
    """A run counts within bounds, so that ten hours once do not hide a hang."""
    assert next_usual(usual, took) == pytest.approx(expected)


def test_usual_duration_follows_a_drift() -> None:
    """A job that takes ten minutes instead of one is usual after a while."""
    usual: float | None = 60.0
    for _ in range(30):
        usual = next_usual(usual, 600.0)
    assert usual == pytest.approx(600.0, rel=0.05)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (JobState(), False),
        (JobState(outcome="failed", ended_at=NOON), False),
        (JobState(outcome="abandoned", ended_at=NOON), True),
        (JobState(outcome="lost", lost_at=NOON), True),
        (JobState(outcome="lost", lost_at=NOON, ended_at=NOON), False),
    ],
)
def test_body_whose_end_nobody_knows_may_still_run(
    state: JobState, expected: bool
) -> None:
    """A lost run tells of the end of its body, an abandoned one does not."""
    assert state.may_still_run is expected


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (JobState(), False),
        (JobState(last_run="a", outcome="succeeded"), True),
        (JobState(last_run="a", outcome="failed"), True),
        (JobState(last_run="b", outcome="failed"), False),
        (JobState(last_run="a", outcome="abandoned"), False),
        (JobState(last_run="a", outcome="lost"), False),
    ],
)
def test_run_was_released_by_its_own_acquisition(
    state: JobState, expected: bool
) -> None:
    """was_released_by() is true only for the last run that its own release ended."""
    assert state.was_released_by("a") is expected


def test_unreadable_records_do_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each is logged once, and beyond the limit no more are."""
    monkeypatch.setattr(states, "_logged", {f"earlier {n}" for n in range(998)})
    for name in ("first", "first", "second", "third"):
        status = LockStatus(name, LockState.FREE, "", NOON, NOON, timedelta(0))
        status.as_unreadable("no date")
    told = [message.split("'")[1] for message in caplog.messages]
    assert told == ["first", "second"]
