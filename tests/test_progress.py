"""How far the ticks of a schedule have been run: pure reckoning."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from django_shedlock.occasions import Occasion
from django_shedlock.progress import Progress
from django_shedlock.schedules import Schedule
from django_shedlock.triggers import Trigger

GRACE = timedelta(minutes=5)
SECOND = timedelta(seconds=1)
HOURLY = Schedule("0 * * * *", "UTC")
NIGHTLY = Schedule("30 2 * * *", "Europe/Berlin")


def at(hour: int, minute: int = 0, second: int = 0) -> datetime:
    return datetime(2026, 3, 2, hour, minute, second, tzinfo=UTC)


def hourly(
    tick: int | None = None,
    succeeded: int | None = None,
    caught_up: int | None = None,
) -> Progress:
    """Return the progress of an hourly job, by the hours of its ticks."""
    ticks = [None if hour is None else at(hour) for hour in (tick, succeeded)]
    caught = None if caught_up is None else at(caught_up)
    return Progress(HOURLY, *ticks, caught)


def occasion(trigger: Trigger, schedule: Schedule = HOURLY) -> Occasion:
    return Occasion(trigger, schedule, GRACE)


def allows(progress: Progress, trigger: Trigger, now: datetime) -> bool:
    return progress.allows(occasion(trigger), now)


def after(progress: Progress, trigger: Trigger, now: datetime) -> Progress:
    return progress.after_start(occasion(trigger), now)


def test_job_is_overdue_after_the_grace() -> None:
    """A tick that has not succeeded is late from the end of the grace on."""
    progress = hourly(tick=9, succeeded=9)
    assert progress.overdue_since(at(10, 4, 59), GRACE) is None
    assert progress.overdue_since(at(10, 5), GRACE) == at(10)


def test_grace_may_be_longer_than_the_interval() -> None:
    """With a grace of two hours the tick of two hours ago counts."""
    progress = hourly(tick=9, succeeded=9)
    assert progress.overdue_since(at(11, 59), timedelta(hours=2)) is None
    assert progress.overdue_since(at(12), timedelta(hours=2)) == at(10)


def test_job_is_overdue_since_the_first_tick_that_did_not_succeed() -> None:
    """Runs that failed since do not make it shorter."""
    progress = hourly(tick=14, succeeded=9)
    assert progress.overdue_since(at(14, 1), GRACE) == at(10)


def test_job_that_succeeded_is_not_overdue() -> None:
    """Not even if it ran before the store's clock showed its tick."""
    assert hourly(tick=11, succeeded=11).overdue_since(at(10, 59), GRACE) is None
    assert hourly(tick=10, succeeded=10).overdue_since(at(10, 59), GRACE) is None


@pytest.mark.parametrize("trigger", Trigger)
def test_first_run_that_failed_is_overdue_since_its_tick(trigger: Trigger) -> None:
    """A job that never succeeded is late from the first run on, however many follow."""
    first = after(Progress(), trigger, at(9))
    for progress in (first, after(first, Trigger.SCHEDULER, at(15))):
        assert progress.newest_success is None
        assert progress.overdue_since(at(9, 4), GRACE) is None
        assert progress.overdue_since(at(9, 5), GRACE) == at(9)
        assert progress.overdue_since(at(15), GRACE) == at(9)
        assert progress.after_success().newest_success == progress.tick


def test_job_that_never_ran_is_not_overdue() -> None:
    """Nobody knows since when it should have."""
    assert hourly().overdue_since(at(10), GRACE) is None


def test_job_that_never_ran_is_overdue_if_its_ticks_are_due() -> None:
    """A tick that counts as done tells from when on they are."""
    progress = Progress().registered(HOURLY, at(9, 30))
    assert progress.newest_success is None
    assert progress.overdue_since(at(10), GRACE) is None
    assert progress.overdue_since(at(10, 5), GRACE) == at(10)
    assert not progress.was_started(at(10, 5), GRACE)


def test_lock_without_schedule_is_never_overdue() -> None:
    """Nor has it a next tick."""
    progress = Progress()
    assert progress.overdue_since(at(10), GRACE) is None
    assert progress.next_tick(at(10)) is None
    assert not progress.was_started(at(10), GRACE)


@pytest.mark.parametrize(
    ("tick", "started"), [(9, False), (10, True), (11, True), (None, False)]
)
def test_newest_tick_that_is_due_was_started_or_not(
    tick: int | None, started: bool
) -> None:
    """It tells a scheduler that is dead from a job that fails."""
    assert hourly(tick=tick).was_started(at(10, 10), GRACE) is started


@pytest.mark.parametrize(("tick", "coming"), [(None, 11), (9, 11), (10, 11), (11, 12)])
def test_next_tick_is_to_come_and_was_not_run(tick: int | None, coming: int) -> None:
    """A tick that a scheduler ran ahead of time is not expected again."""
    assert hourly(tick=tick).next_tick(at(10, 59)) == at(coming)


def test_changed_schedule_counts_from_its_last_success() -> None:
    """After a change the first tick of the new schedule since then is late."""
    progress = replace(hourly(tick=9, succeeded=9), schedule=NIGHTLY)
    tomorrow = datetime(2026, 3, 3, 1, 30, tzinfo=UTC)
    assert progress.overdue_since(at(23), GRACE) is None
    assert progress.overdue_since(tomorrow + GRACE, GRACE) == tomorrow
    assert progress.next_tick(at(10)) == tomorrow


def test_registered_job_is_due_from_then_on() -> None:
    """Neither a job that never ran nor a changed schedule is late at once."""
    changed = replace(hourly(tick=9, succeeded=9), schedule=NIGHTLY)
    for progress in (Progress(), changed):
        registered = progress.registered(HOURLY, at(12, 30))
        assert registered.overdue_since(at(13, 4), GRACE) is None
        assert registered.overdue_since(at(13, 5), GRACE) == at(13)
        assert registered.registered(HOURLY, at(14)) == registered


def test_registered_job_that_never_succeeds_stays_overdue() -> None:
    """Also if it runs more often than the grace is long."""
    progress = Progress().registered(HOURLY, at(8, 30))
    failed = after(progress, Trigger.SCHEDULER, at(12))
    assert failed.overdue_since(at(12, 1), GRACE) == at(9)


def test_schedule_changes_with_the_next_run() -> None:
    """The schedule is that of the last run, whatever ran before."""
    started = hourly(tick=9).after_start(
        occasion(Trigger.SCHEDULER, NIGHTLY), datetime(2026, 3, 3, 1, 30, tzinfo=UTC)
    )
    assert started.schedule == NIGHTLY
    assert started.tick == datetime(2026, 3, 3, 1, 30, tzinfo=UTC)


def test_hour_that_is_left_out_makes_nothing_overdue() -> None:
    """On the morning of summer time the tick of 2:30 is that of 3:00."""
    saturday = datetime(2026, 3, 28, 1, 30, tzinfo=UTC)
    sunday = datetime(2026, 3, 29, 1, 0, tzinfo=UTC)
    progress = Progress(NIGHTLY, saturday, saturday)
    assert progress.next_tick(saturday) == sunday
    assert progress.overdue_since(sunday + GRACE - SECOND, GRACE) is None
    assert progress.overdue_since(sunday + GRACE, GRACE) == sunday
    done = Progress(NIGHTLY, sunday, sunday)
    assert done.next_tick(sunday) == datetime(2026, 3, 30, 0, 30, tzinfo=UTC)
    assert done.overdue_since(sunday + timedelta(hours=12), GRACE) is None


def test_midnight_that_is_left_out_keeps_nothing_from_being_overdue() -> None:
    """On the Azores' morning of summer time one o'clock comes, if no midnight does."""
    schedule = Schedule("*/15 1 * * 0", "Atlantic/Azores")
    week_before = datetime(2026, 3, 22, 2, 45, tzinfo=UTC)
    sunday = datetime(2026, 3, 29, 1, 0, tzinfo=UTC)
    progress = Progress(schedule, week_before, week_before)
    assert progress.next_tick(week_before) == sunday
    assert progress.overdue_since(sunday + GRACE, GRACE) == sunday
    assert progress.overdue_since(sunday + timedelta(days=2), GRACE) == sunday
    assert progress.allows(occasion(Trigger.SCHEDULER, schedule), sunday)


def test_hour_that_comes_twice_makes_nothing_overdue() -> None:
    """On the morning of winter time the tick of 2:30 comes once, the first time."""
    first = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    done = Progress(NIGHTLY, first, first)
    again = first + timedelta(hours=1)
    assert done.overdue_since(again + 2 * GRACE, GRACE) is None
    assert done.next_tick(first) == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("tick", "now", "runs"),
    [
        (None, at(10), True),
        (9, at(10), True),
        (10, at(10, 29), False),
        (10, at(10, 31), True),  # of a scheduler whose clock is ahead
        (10, at(9, 59), False),
        (20, at(10), True),  # of a clock that was wrong
    ],
)
def test_scheduler_runs_each_tick_once(
    tick: int | None, now: datetime, runs: bool
) -> None:
    """The nearest tick is run unless it was, however that ended."""
    assert allows(hourly(tick=tick), Trigger.SCHEDULER, now) is runs


@pytest.mark.parametrize(("succeeded", "runs"), [(None, True), (9, True), (10, False)])
def test_retry_runs_unless_the_newest_tick_succeeded(
    succeeded: int | None, runs: bool
) -> None:
    """A tick that failed may be run again, until the next one and as the next one."""
    progress = hourly(tick=10, succeeded=succeeded)
    assert allows(progress, Trigger.RETRY, at(10, 1)) is runs
    assert allows(progress, Trigger.RETRY, at(10, 59)) is runs
    assert allows(progress, Trigger.RETRY, at(16))


def test_retry_runs_a_tick_that_was_registered_in_between() -> None:
    """That ticks count from now on does not mean that the one before has succeeded."""
    registered = Progress().registered(HOURLY, at(10, 0, 10))
    failed = after(registered, Trigger.SCHEDULER, at(10, 0, 20))
    assert allows(failed, Trigger.RETRY, at(10, 1, 20))
    succeeded = after(failed, Trigger.RETRY, at(10, 1, 20)).after_success()
    assert not allows(succeeded, Trigger.RETRY, at(10, 2))


@pytest.mark.parametrize(
    ("progress", "runs"),
    [
        (hourly(tick=9, succeeded=9), True),
        (hourly(tick=10, succeeded=10), False),
        (hourly(tick=10, succeeded=9), True),
        (hourly(tick=10, succeeded=9, caught_up=10), False),
        (hourly(tick=9, succeeded=7, caught_up=9), True),
        (hourly(tick=11, succeeded=9), False),  # a newer one was run
        (after(Progress(), Trigger.SCHEDULER, at(10)), True),
        (hourly(), False),
        (Progress().registered(HOURLY, at(9, 30)), True),
        (Progress().registered(HOURLY, at(10)), False),
    ],
)
def test_catch_up_runs_what_is_overdue_once(progress: Progress, runs: bool) -> None:
    """Only the newest tick that is due is run, and only if nothing newer was."""
    assert allows(progress, Trigger.CATCH_UP, at(10, 5)) is runs


def test_catch_up_leaves_the_scheduler_its_grace() -> None:
    """A tick of four minutes ago is not due yet."""
    assert not allows(hourly(tick=9, succeeded=9), Trigger.CATCH_UP, at(10, 4))


def test_operator_runs_at_any_time() -> None:
    """Nothing that was run or not is in the way."""
    for progress in (hourly(), hourly(tick=10, succeeded=10), hourly(tick=20)):
        assert allows(progress, Trigger.OPERATOR, at(10, 1))


@pytest.mark.parametrize("trigger", Trigger)
def test_everything_may_run_without_a_schedule(trigger: Trigger) -> None:
    """And nothing is written then."""
    progress = hourly(tick=10, succeeded=10)
    assert progress.allows(Occasion(trigger), at(10))
    assert progress.after_start(Occasion(trigger), at(10)) == progress


@pytest.mark.parametrize(
    ("trigger", "now", "tick"),
    [
        (Trigger.SCHEDULER, at(11, 59, 50), 12),
        (Trigger.SCHEDULER, at(12, 0, 20), 12),
        (Trigger.RETRY, at(10, 59), 10),
        (Trigger.RETRY, at(12, 0, 20), 12),
        (Trigger.RETRY, at(9, 59), 10),  # of a scheduler whose clock is ahead
        (Trigger.CATCH_UP, at(11, 59), 11),
        (Trigger.CATCH_UP, at(12, 4), 12),
        (Trigger.OPERATOR, at(11, 59), 11),
        (Trigger.OPERATOR, at(10, 10), 10),
        (Trigger.OPERATOR, at(9, 59), 10),  # no tick is run twice for that
    ],
)
def test_start_tells_which_tick_is_run(
    trigger: Trigger, now: datetime, tick: int
) -> None:
    """The trigger chooses among the ticks around the instant."""
    started = after(hourly(tick=10, succeeded=9), trigger, now)
    assert started.tick == at(tick)
    assert started.succeeded == at(9)
    assert started.caught_up == (at(tick) if trigger is Trigger.CATCH_UP else None)
    assert started.after_success().succeeded == at(tick)


def test_first_start_by_any_trigger_has_a_tick() -> None:
    """A retry or an operator may be the first who ever runs the job."""
    for trigger in Trigger:
        assert after(Progress(), trigger, at(10, 10)).tick == at(10)


def test_job_that_was_caught_up_is_not_overdue() -> None:
    """A success for a tick that was late ends it; until then it stays."""
    started = after(hourly(tick=7, succeeded=7), Trigger.CATCH_UP, at(10, 6))
    assert started.overdue_since(at(10, 7), GRACE) == at(8)
    assert started.after_success().overdue_since(at(10, 7), GRACE) is None
