"""How far the ticks of a schedule have been run: pure reckoning."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import (
    EARLY_START_LIMIT,
    ScheduleState,
    Start,
    Trigger,
)

GRACE = timedelta(minutes=5)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
HOURLY = Schedule("0 * * * *", "UTC")
NIGHTLY = Schedule("30 2 * * *", "Europe/Berlin")


def at(hour: int, minute: int = 0, second: int = 0) -> datetime:
    return datetime(2026, 3, 2, hour, minute, second, tzinfo=UTC)


def hourly(
    tick: int | None = None,
    due_at: int | None = None,
    former_tick: int | None = None,
    repeated_tick: int | None = None,
) -> ScheduleState:
    """Return the state of an hourly job, by the hours of its ticks."""
    hours = (tick, due_at, former_tick, repeated_tick)
    return ScheduleState(
        HOURLY, *(None if hour is None else at(hour) for hour in hours)
    )


def created(moment: datetime) -> ScheduleState:
    """Return the state of a job whose lock is created by its registration."""
    return ScheduleState().registered(HOURLY, moment, moment)


def start(
    trigger: Trigger = Trigger.SCHEDULER,
    schedule: Schedule = HOURLY,
    asked_at: datetime | None = None,
) -> tuple[Start, Schedule, timedelta]:
    return Start(trigger, asked_at), schedule, GRACE


def allows(
    state: ScheduleState,
    trigger: Trigger,
    now: datetime,
    asked_at: datetime | None = None,
) -> bool:
    return state.decide(*start(trigger, asked_at=asked_at), now).is_allowed


def allows_by(
    schedule: Schedule, state: ScheduleState, trigger: Trigger, now: datetime
) -> bool:
    return state.decide(*start(trigger, schedule), now).is_allowed


def after(state: ScheduleState, trigger: Trigger, now: datetime) -> ScheduleState:
    return state.decide(*start(trigger), now).state


def test_job_is_overdue_after_the_grace() -> None:
    """A tick that has not succeeded is late from the end of the grace on."""
    state = hourly(tick=9, due_at=10)
    assert state.overdue_since(at(10, 4, 59), GRACE) is None
    assert state.overdue_since(at(10, 5), GRACE) == at(10)


def test_grace_may_be_longer_than_the_interval() -> None:
    """A job is overdue only after its grace, even if the interval is shorter."""
    state = hourly(tick=9, due_at=10)
    assert state.overdue_since(at(11, 59), timedelta(hours=2)) is None
    assert state.overdue_since(at(12), timedelta(hours=2)) == at(10)


def test_job_is_overdue_since_the_first_tick_that_did_not_succeed() -> None:
    """Runs that failed since do not make it shorter."""
    state = hourly(tick=14, due_at=10)
    assert state.overdue_since(at(14, 1), GRACE) == at(10)


def test_job_that_succeeded_is_not_overdue() -> None:
    """A job that succeeded is not overdue, even if it ran before its tick."""
    assert hourly(tick=11, due_at=12).overdue_since(at(10, 59), GRACE) is None
    assert hourly(tick=10, due_at=11).overdue_since(at(10, 59), GRACE) is None


@pytest.mark.parametrize("trigger", Trigger)
def test_first_run_that_failed_is_overdue_since_its_tick(trigger: Trigger) -> None:
    """A job that never succeeded is late from the first run on, however many follow."""
    first = after(ScheduleState(), trigger, at(9))
    for state in (first, after(first, Trigger.SCHEDULER, at(15))):
        assert state.due_at == at(9)
        assert state.overdue_since(at(9, 4), GRACE) is None
        assert state.overdue_since(at(9, 5), GRACE) == at(9)
        assert state.overdue_since(at(15), GRACE) == at(9)
        assert state.tick is not None
        assert state.after_success().due_at == state.tick + HOUR


def test_job_that_never_ran_is_not_overdue() -> None:
    """Nobody knows since when it should have."""
    assert hourly().overdue_since(at(10), GRACE) is None


def test_job_that_never_ran_is_overdue_if_its_ticks_are_due() -> None:
    """A job that never ran is overdue once its first tick's grace is over."""
    state = created(at(9, 30))
    assert state.due_at == at(10)
    assert state.overdue_since(at(10), GRACE) is None
    assert state.overdue_since(at(10, 5), GRACE) == at(10)
    assert not state.was_started(at(10, 5), GRACE)


def test_lock_without_schedule_is_never_overdue() -> None:
    """A lock without a schedule is never overdue, and has no next tick."""
    state = ScheduleState()
    assert state.overdue_since(at(10), GRACE) is None
    assert state.next_tick(at(10)) is None
    assert not state.was_started(at(10), GRACE)


@pytest.mark.parametrize(
    ("tick", "started"), [(9, False), (10, True), (11, True), (None, False)]
)
def test_newest_tick_that_is_due_was_started_or_not(
    tick: int | None, started: bool
) -> None:
    """
    The state shows whether the newest due tick was started.

    This distinguishes a dead scheduler from a failing job.
    """
    assert hourly(tick=tick).was_started(at(10, 10), GRACE) is started


@pytest.mark.parametrize(("tick", "coming"), [(None, 11), (9, 11), (10, 11), (11, 12)])
def test_next_tick_is_to_come_and_was_not_run(tick: int | None, coming: int) -> None:
    """A tick that a scheduler ran ahead of time is not expected again."""
    assert hourly(tick=tick).next_tick(at(10, 59)) == at(coming)


def test_changed_schedule_is_due_at_its_own_ticks() -> None:
    """A start by the new schedule counts, and what was due before stays due."""
    yearly = Schedule("0 0 1 1 *", "UTC")
    done = after(ScheduleState(yearly, at(0), at(0)), Trigger.OPERATOR, at(1))
    assert done.after_success().due_at == at(2)
    next_year = ScheduleState(yearly, at(0), at(0) + timedelta(days=300))
    assert after(next_year, Trigger.SCHEDULER, at(10)).due_at == at(10)
    missed = ScheduleState(yearly, None, at(9))
    assert after(missed, Trigger.SCHEDULER, at(10)).due_at == at(9)


def test_registered_job_is_due_from_then_on() -> None:
    """A job that never ran is not late at once, also if its lock is old."""
    for locked_at in (at(12, 30), at(3)):
        registered = ScheduleState().registered(HOURLY, at(12, 30), locked_at)
        assert registered.overdue_since(at(13, 4), GRACE) is None
        assert registered.overdue_since(at(13, 5), GRACE) == at(13)
        assert registered.registered(HOURLY, at(14), locked_at) == registered


def daily(hour: int, minute: int = 0) -> Schedule:
    return Schedule(f"{minute} {hour} * * *", "UTC")


WEEKLY = Schedule("0 12 * * 3", "UTC")


@pytest.mark.parametrize(
    ("schedule", "due_at"),
    [
        (daily(9), at(9)),
        (daily(8, 30), at(8, 30)),
        (Schedule("*/5 * * * *", "UTC"), at(8, 20)),
        (HOURLY, at(9)),
        (Schedule("@weekly", "UTC"), datetime(2026, 3, 8, tzinfo=UTC)),
        (WEEKLY, datetime(2026, 3, 4, 12, tzinfo=UTC)),
        (Schedule("@yearly", "UTC"), datetime(2027, 1, 1, tzinfo=UTC)),
    ],
)
def test_changed_schedule_is_due_at_its_next_tick(
    schedule: Schedule, due_at: datetime
) -> None:
    """A changed schedule is due at its own next tick, not at the old one's."""
    done = ScheduleState(daily(8), at(8)).after_success()
    changed = done.registered(schedule, at(8, 15), at(8))
    assert (changed.schedule, changed.due_at) == (schedule, due_at)


def test_schedule_is_changed_before_its_first_tick() -> None:
    """The ticks since the registration count for a job that never ran."""
    first = ScheduleState().registered(daily(8), at(9), at(9))
    changed = first.registered(WEEKLY, at(15), at(9))
    assert changed.due_at == datetime(2026, 3, 4, 12, tzinfo=UTC)
    missed = first.registered(daily(12), at(15), at(9))
    assert missed.due_at == first.due_at


def test_changed_schedule_of_an_overdue_job_leaves_it_overdue() -> None:
    """Only a success ends that, however often another schedule is registered."""
    missed = ScheduleState(daily(8), at(8) - 24 * HOUR, at(8))
    for minutes, schedule in enumerate((daily(8, 30), daily(8), WEEKLY, daily(23))):
        missed = missed.registered(schedule, at(9, minutes), at(8) - 24 * HOUR)
        assert missed.overdue_since(at(9, minutes), GRACE) == at(8)
    begun = after(missed, Trigger.OPERATOR, at(10))
    assert begun.after_success().overdue_since(at(10), GRACE) is None


def test_change_that_skips_a_tick_keeps_the_tick_of_the_old_schedule() -> None:
    """The old schedule's tick stays due if the new one's has already passed."""
    yesterday = at(8, 30) - 24 * HOUR
    done = ScheduleState(daily(8, 30), yesterday).after_success()
    assert done.registered(daily(8), at(8, 15), yesterday).due_at == at(8, 30)


def test_change_after_a_clock_was_wrong_counts_from_now_on() -> None:
    """What was written in the future is no start of which anything follows."""
    future = at(20) + 24 * HOUR
    wrong = ScheduleState(daily(8), future, future)
    assert wrong.registered(HOURLY, at(9, 30), future).due_at == at(10)


@given(
    registrations=st.lists(
        st.tuples(st.booleans(), st.timedeltas(timedelta(0), 60 * HOUR)), max_size=40
    ),
    was_run=st.booleans(),
    minutes=st.integers(1, 23 * 60),
)
def test_two_schedules_do_not_put_off_each_other(
    registrations: list[tuple[bool, timedelta]], was_run: bool, minutes: int
) -> None:
    """Nothing runs; whoever registers when, one of the first ticks becomes overdue."""
    one, other = daily(8), daily(8 + minutes // 60 % 15, minutes % 60)
    begun = at(8)
    state = ScheduleState().registered(one, begun, begun)
    if was_run:
        state = ScheduleState(one, begun).after_success()
    for is_other, time in sorted(registrations, key=lambda each: each[1]):
        schedule = other if is_other else one
        state = state.registered(schedule, begun + time, begun)
    first = max(next(schedule.ticks_after(begun)) for schedule in (one, other))
    late = first + GRACE
    last = max((time for _, time in registrations), default=timedelta(0))
    assert state.due_at is not None
    assert state.due_at <= first
    if begun + last >= late:
        assert state.overdue_since(begun + last, GRACE) is not None


def test_registered_job_that_never_succeeds_stays_overdue() -> None:
    """A registered job stays overdue if every run fails."""
    state = created(at(8, 30))
    failed = after(state, Trigger.SCHEDULER, at(12))
    assert failed.overdue_since(at(12, 1), GRACE) == at(9)


def test_schedule_changes_with_the_next_run() -> None:
    """The schedule is that of the last run, whatever ran before."""
    night = datetime(2026, 3, 3, 1, 30, tzinfo=UTC)
    started = hourly(tick=9).decide(*start(schedule=NIGHTLY), night).state
    assert started.schedule == NIGHTLY
    assert started.tick == datetime(2026, 3, 3, 1, 30, tzinfo=UTC)


def test_hour_that_is_left_out_makes_nothing_overdue() -> None:
    """A tick at 2:30 moves to 3:00 on the day that summer time begins."""
    saturday = datetime(2026, 3, 28, 1, 30, tzinfo=UTC)
    sunday = datetime(2026, 3, 29, 1, 0, tzinfo=UTC)
    state = ScheduleState(NIGHTLY, saturday).after_success()
    assert state.next_tick(saturday) == sunday
    assert state.overdue_since(sunday + GRACE - SECOND, GRACE) is None
    assert state.overdue_since(sunday + GRACE, GRACE) == sunday
    done = ScheduleState(NIGHTLY, sunday).after_success()
    assert done.next_tick(sunday) == datetime(2026, 3, 30, 0, 30, tzinfo=UTC)
    assert done.overdue_since(sunday + timedelta(hours=12), GRACE) is None


def test_midnight_that_is_left_out_keeps_nothing_from_being_overdue() -> None:
    """On the Azores' morning of summer time one o'clock comes, if no midnight does."""
    schedule = Schedule("*/15 1 * * 0", "Atlantic/Azores")
    week_before = datetime(2026, 3, 22, 2, 45, tzinfo=UTC)
    sunday = datetime(2026, 3, 29, 1, 0, tzinfo=UTC)
    state = ScheduleState(schedule, week_before).after_success()
    assert state.next_tick(week_before) == sunday
    assert state.overdue_since(sunday + GRACE, GRACE) == sunday
    assert state.overdue_since(sunday + timedelta(days=2), GRACE) == sunday
    assert state.decide(*start(schedule=schedule), sunday).is_allowed


def test_hour_that_comes_twice_makes_nothing_overdue() -> None:
    """On the morning of winter time the tick of 2:30 comes once, the first time."""
    first = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    done = ScheduleState(NIGHTLY, first).after_success()
    again = first + timedelta(hours=1)
    assert done.overdue_since(again + 2 * GRACE, GRACE) is None
    assert done.next_tick(first) == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("tick", "now", "runs"),
    [
        (None, at(10), True),
        (9, at(10), True),
        (10, at(10, 58, 59), False),
        (10, at(10, 59), True),  # of a scheduler whose clock is ahead
        (10, at(9, 59), False),
        (20, at(10), True),  # of a store's clock that was wrong
    ],
)
def test_scheduler_runs_each_tick_once(
    tick: int | None, now: datetime, runs: bool
) -> None:
    """The newest past tick is run unless it was, however that ended."""
    assert allows(hourly(tick=tick), Trigger.SCHEDULER, now) is runs


@pytest.mark.parametrize(("due_at", "runs"), [(None, True), (10, True), (11, False)])
def test_retry_runs_unless_the_newest_tick_succeeded(
    due_at: int | None, runs: bool
) -> None:
    """A tick that failed may be run again, until the next one and as the next one."""
    state = hourly(tick=10, due_at=due_at)
    assert allows(state, Trigger.RETRY, at(10, 1)) is runs
    assert allows(state, Trigger.RETRY, at(10, 59)) is runs
    assert allows(state, Trigger.RETRY, at(16))


@pytest.mark.parametrize(
    "trigger", [Trigger.SCHEDULER, Trigger.RETRY, Trigger.CATCH_UP]
)
def test_tick_before_the_registration_is_not_run(trigger: Trigger) -> None:
    """A new schedule owes ticks to come; only an operator runs an older one."""
    registered = created(at(10, 0, 10))
    assert registered == hourly(tick=10, due_at=11, former_tick=10)
    assert not allows(registered, trigger, at(10, 30))
    assert allows(registered, Trigger.OPERATOR, at(10, 30))
    assert allows(registered, trigger, at(11, 30))


def test_registration_counts_from_the_first_look_of_a_beat() -> None:
    """A tick that came since then, before the store answered, is owed."""
    look, now = at(9, 59, 50), at(10, 0, 20)
    registered = ScheduleState().registered(HOURLY, now, now, look)
    assert registered == hourly(tick=9, due_at=10, former_tick=9)
    assert registered.owed_tick(HOURLY, GRACE, now, look) == at(10)
    assert allows(registered, Trigger.SCHEDULER, now)
    future = ScheduleState().registered(HOURLY, now, now, at(20))
    assert future == hourly(tick=10, due_at=11, former_tick=10)


def test_registration_of_a_changed_schedule_forgets_older_ticks() -> None:
    """A new schedule's tick before its registration is never caught up."""
    missed = ScheduleState(daily(8), at(8) - 24 * HOUR, at(8))
    changed = missed.registered(daily(8, 30), at(9), at(8) - 24 * HOUR)
    assert (changed.tick, changed.due_at) == (at(8, 30), at(8))
    assert not allows_by(daily(8, 30), changed, Trigger.CATCH_UP, at(9))
    assert changed.overdue_since(at(9), GRACE) == at(8)


def test_tick_of_both_schedules_stays_owed() -> None:
    """A change that keeps the missed tick does not forget it."""
    missed = ScheduleState(daily(8), at(8) - 24 * HOUR, at(8))
    twice = Schedule(["0 8 * * *", "0 20 * * *"], "UTC")
    for schedule in (twice, daily(8), Schedule("0 8 * * *", "Etc/UTC")):
        missed = missed.registered(schedule, at(9), at(8) - 24 * HOUR)
        assert (missed.tick, missed.due_at) == (at(8) - 24 * HOUR, at(8))
        assert allows_by(schedule, missed, Trigger.CATCH_UP, at(9))


def test_pause_owes_no_tick_up_to_its_end() -> None:
    """After a pause the next tick is due, whatever was missed or has failed before."""
    for before in (hourly(tick=7, due_at=8), hourly(tick=8, due_at=8), hourly()):
        ended = before.paused_until(at(10, 10), HOURLY)
        assert ended == hourly(tick=10, due_at=11, former_tick=10)
        assert ended.owed_tick(HOURLY, GRACE, at(10, 12), at(7)) is None
        assert ended.overdue_since(at(10, 30), GRACE) is None
        assert not allows(ended, Trigger.CATCH_UP, at(10, 30))
        assert not allows(ended, Trigger.SCHEDULER, at(10, 30))
        assert ended.owed_tick(HOURLY, GRACE, at(11), at(7)) == at(11)
    assert ScheduleState().paused_until(at(10), None) == ScheduleState()


def test_pause_keeps_a_tick_that_began_early() -> None:
    """A run that began shortly before its tick has used up the tick."""
    early = hourly(tick=11, due_at=12)
    assert early.paused_until(at(10, 59, 30), HOURLY) == replace(
        early, former_tick=at(11)
    )


@pytest.mark.parametrize(
    ("state", "now", "since", "owed"),
    [
        (hourly(tick=9, due_at=10), at(10), at(8), 10),
        (hourly(tick=9, due_at=10), at(10, 4, 59), at(8), 10),
        (hourly(tick=9, due_at=10), at(10, 5), at(8), None),  # catch-up's
        (hourly(tick=10, due_at=11), at(10), at(8), None),
        (hourly(tick=10, due_at=10), at(10), at(8), None),  # it failed
        (hourly(tick=9, due_at=10), at(10), at(10, 0, 1), 10),  # a restart over it
        (hourly(tick=9, due_at=9), at(10), at(10, 0, 1), 10),
        (hourly(tick=9, due_at=11), at(10), at(10, 0, 1), None),
        (hourly(tick=9, due_at=11), at(10), at(10), 10),
        (hourly(tick=20, due_at=10), at(10), at(8), 10),  # the store's clock was wrong
        (ScheduleState(), at(10), at(9), 10),
        (ScheduleState(), at(10), at(10, 0, 1), None),
    ],
)
def test_tick_is_owed_while_it_is_new(
    state: ScheduleState, now: datetime, since: datetime, owed: int | None
) -> None:
    """A scheduler looks back at the newest tick, also over a restart of its own."""
    expected = None if owed is None else at(owed)
    assert state.owed_tick(HOURLY, GRACE, now, since) == expected


def test_tick_whose_body_never_began_is_given_back() -> None:
    """Any start may begin the tick again, however often that happens."""
    state = hourly(tick=9, due_at=10)
    for _ in range(3):
        state = after(state, Trigger.SCHEDULER, at(10))
        assert (state.tick, state.former_tick) == (at(10), at(9))
        state = state.given_back()
        assert (state.tick, state.due_at) == (at(9), at(10))
        assert state.owed_tick(HOURLY, GRACE, at(10, 1), at(10, 0, 30)) == at(10)
        assert allows(state, Trigger.CATCH_UP, at(10, 5))


def test_tick_whose_body_was_interrupted_is_given_back_once() -> None:
    """The second run of the tick is its last one, and the next tick has two as well."""
    state = hourly(tick=9, due_at=10)
    for hour in (10, 11):
        for is_open_again in (True, False):
            assert allows(state, Trigger.SCHEDULER, at(hour))
            state = after(state, Trigger.SCHEDULER, at(hour)).given_back_once()
            assert allows(state, Trigger.CATCH_UP, at(hour, 5)) is is_open_again
        assert state.repeated_tick == at(hour)
        assert state.due_at == at(10)


@pytest.mark.parametrize("trigger", [Trigger.RETRY, Trigger.OPERATOR])
def test_tick_that_another_run_has_begun_is_not_given_back(trigger: Trigger) -> None:
    """If a second run of a tick is interrupted or never begins, the first counts."""
    failed = after(hourly(tick=9, due_at=10), Trigger.SCHEDULER, at(10))
    again = after(failed, trigger, at(10, 10))
    assert again.given_back().tick == at(10)
    assert again.given_back_once() == again


def test_tick_of_nothing_is_not_given_back() -> None:
    """A lock without a schedule has no tick."""
    assert ScheduleState().given_back_once() == ScheduleState()
    assert ScheduleState().given_back() == ScheduleState()


@dataclass
class Simulated:
    """One hourly job, and how often the body of each of its ticks has begun."""

    state: ScheduleState
    now: datetime
    begun: Counter[datetime] = field(default_factory=Counter)
    repeated: set[datetime] = field(default_factory=set)
    not_owed: set[datetime] = field(default_factory=set)

    def take(self, step: str, trigger: Trigger) -> None:
        """Start the job, and let its run end as ``step`` says; or pause the job."""
        if step == "pause":
            end = self.now + 2 * HOUR
            self.not_owed |= set(self.ticks_until(end)) - set(self.begun)
            self.now, self.state = end, self.state.paused_until(end, HOURLY)
            return
        decision = self.state.decide(*start(trigger), self.now)
        if not decision.is_allowed:
            return
        self.state = decision.state
        if step == "never began":
            self.state = self.state.given_back()
            return
        self.begun[decision.tick] += 1
        if step == "interrupted":
            opened = self.state.given_back_once()
            if opened != self.state:
                self.repeated.add(decision.tick)
            self.state = opened
        elif step == "succeeded":
            self.state = self.state.after_success()

    def ticks_until(self, end: datetime) -> list[datetime]:
        return [
            at(0) + hour * HOUR for hour in range(200) if at(0) + hour * HOUR <= end
        ]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["succeeded", "failed", "interrupted", "never began", "pause"]
            ),
            st.sampled_from([Trigger.SCHEDULER, Trigger.CATCH_UP]),
            st.timedeltas(timedelta(0), 2 * HOUR),
        ),
        max_size=40,
    )
)
def test_no_tick_is_begun_more_often_than_it_may(
    steps: list[tuple[str, Trigger, timedelta]],
) -> None:
    """A tick begins once, or twice if given back; none of a pause or before it."""
    job = Simulated(created(at(0)), at(0))
    job.not_owed.add(at(0))
    for step, trigger, time in steps:
        job.now += time
        job.take(step, trigger)
    assert not job.not_owed & set(job.begun)
    assert all(count <= 1 + (tick in job.repeated) for tick, count in job.begun.items())
    assert allows(job.state, Trigger.SCHEDULER, job.now + 2 * HOUR)


@pytest.mark.parametrize(
    ("state", "runs"),
    [
        (hourly(tick=9, due_at=10), True),
        (hourly(tick=10, due_at=11), False),
        (hourly(tick=10, due_at=10), False),
        (hourly(tick=9, due_at=8), True),
        (after(ScheduleState(), Trigger.SCHEDULER, at(10)), False),
        (hourly(), False),
        (created(at(9, 30)), True),
        (created(at(10)), False),
    ],
)
def test_catch_up_runs_what_never_began(state: ScheduleState, runs: bool) -> None:
    """Only the newest tick that is overdue is run, and not if it was begun before."""
    assert allows(state, Trigger.CATCH_UP, at(10, 5)) is runs


def test_catch_up_runs_no_older_tick_after_a_newer_one() -> None:
    """At four minutes past ten that of nine is overdue, and that of ten was run."""
    assert allows(hourly(tick=8, due_at=9), Trigger.CATCH_UP, at(10, 4))
    assert not allows(hourly(tick=10, due_at=9), Trigger.CATCH_UP, at(10, 4))


def test_catch_up_leaves_the_scheduler_its_grace() -> None:
    """A tick of four minutes ago is not due yet."""
    assert not allows(hourly(tick=9, due_at=10), Trigger.CATCH_UP, at(10, 4))


def test_operator_runs_at_any_time() -> None:
    """Nothing that was run or not is in the way."""
    for state in (hourly(), hourly(tick=10, due_at=11), hourly(tick=20)):
        assert allows(state, Trigger.OPERATOR, at(10, 1))


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
    started = after(hourly(tick=10, due_at=10, repeated_tick=9), trigger, now)
    assert started.tick == at(tick)
    assert started.due_at == at(10)
    assert (started.former_tick, started.repeated_tick) == (at(10), at(9))
    assert started.after_success().due_at == at(tick + 1)


def test_first_start_by_any_trigger_has_a_tick() -> None:
    """A retry or an operator may be the first who ever runs the job."""
    for trigger in Trigger:
        assert after(ScheduleState(), trigger, at(10, 10)).tick == at(10)


def test_job_that_was_caught_up_is_not_overdue() -> None:
    """A success for a tick that was late ends it; until then it stays."""
    started = after(hourly(tick=7, due_at=8), Trigger.CATCH_UP, at(10, 6))
    assert started.overdue_since(at(10, 7), GRACE) == at(8)
    assert started.after_success().overdue_since(at(10, 7), GRACE) is None


INSTANT = timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("expression", "allowance"),
    [("* * * * *", 15 * SECOND), ("*/2 * * * *", 30 * SECOND), ("0 * * * *", MINUTE)],
)
def test_early_start_belongs_to_its_tick(expression: str, allowance: timedelta) -> None:
    """A quarter of the interval, a minute at the most; earlier it is for the past."""
    every = start(schedule=Schedule(expression, "UTC"))
    early = at(10) - allowance
    before = ScheduleState().decide(*every, early - INSTANT)
    assert before.tick < at(10)
    assert before.holds_until == early
    assert ScheduleState().decide(*every, early).tick == at(10)


@pytest.mark.parametrize("trigger", [*Trigger])
def test_late_start_consumes_no_tick_to_come(trigger: Trigger) -> None:
    """A nightly job that is started by hand at any hour still runs the next night."""
    last = datetime(2026, 3, 2, 1, 30, tzinfo=UTC)
    next_night = last + 24 * HOUR
    state = ScheduleState(NIGHTLY, last).after_success()
    for hours in range(1, 24):
        by_hand = state.decide(*start(trigger, NIGHTLY), last + hours * HOUR)
        begun = by_hand.state if by_hand.is_allowed else state
        assert begun.decide(*start(schedule=NIGHTLY), next_night).is_allowed, hours


@given(
    late=st.lists(st.floats(0, 0.9), min_size=40, max_size=40),
    took=st.timedeltas(timedelta(0), SECOND),
)
def test_message_that_says_when_it_was_asked_for_may_come_late(
    late: list[float], took: timedelta
) -> None:
    """Two beats, a queue that is late by up to 0.9 of the interval: each tick once."""
    every_minute = Schedule("* * * * *", "UTC")
    state, ran = ScheduleState(), []
    for minute, delay in enumerate(late):
        message = start(schedule=every_minute, asked_at=at(10, minute) + took)
        for again in range(2):
            now = at(10, minute) + SECOND + (delay + again / 100) * MINUTE
            decision = state.decide(*message, now)
            if decision.is_allowed:
                state = decision.state.after_success()
                ran.append(decision.tick)
    assert ran == [at(10, minute) for minute in range(40)]


def test_retry_of_a_message_is_for_its_own_tick() -> None:
    """However late it comes: the tick that followed is not consumed."""
    failed = hourly(tick=10, due_at=10)
    retry = failed.decide(*start(Trigger.RETRY, asked_at=at(10, 0, 1)), at(11, 30))
    assert (retry.is_allowed, retry.tick) == (True, at(10))
    newer_succeeded = hourly(tick=11, due_at=12)
    assert not allows(newer_succeeded, Trigger.RETRY, at(11, 30), at(10, 0, 1))


def test_message_of_a_wrong_clock_is_decided_by_the_stores() -> None:
    """A message from the future gets the tick that the store's clock decides."""
    asked_at = at(10) + EARLY_START_LIMIT + SECOND
    decision = hourly(tick=9).decide(*start(asked_at=at(20)), at(10))
    assert decision.tick == at(10)
    ahead = hourly(tick=9).decide(*start(asked_at=asked_at), at(10))
    assert ahead.tick == at(10)


@given(st.lists(st.timedeltas(-15 * SECOND, timedelta(0)), min_size=50, max_size=50))
def test_hosts_whose_clocks_differ_run_each_tick_once(early: list[timedelta]) -> None:
    """Clocks that are ahead by up to the allowance: one run for each of 50 ticks."""
    every_minute = start(schedule=Schedule("* * * * *", "UTC"))
    state, ran = ScheduleState(), []
    for minute, ahead in enumerate(early):
        for host in (ahead, timedelta(0)):
            decision = state.decide(*every_minute, at(10, minute) + host)
            if decision.is_allowed:
                state = decision.state.after_success()
                ran.append(decision.tick)
    assert ran == [at(10, minute) for minute in range(50)]


@pytest.mark.parametrize("trigger", [Trigger.SCHEDULER, Trigger.RETRY])
def test_schedule_that_changes_is_due_at_its_next_tick(trigger: Trigger) -> None:
    """A tick of the future in the record is in nobody's way, whoever starts the job."""
    future = ScheduleState(NIGHTLY, at(20), at(20) + 24 * HOUR)
    decision = future.decide(*start(trigger), at(10))
    assert (decision.is_allowed, decision.is_new) == (True, True)
    assert decision.state == hourly(tick=10, due_at=10, former_tick=20)


def test_clock_that_is_set_back_a_little_runs_no_tick_again() -> None:
    """An early start has its tick, also by a clock that was just corrected."""
    early = hourly(tick=9, due_at=10).decide(*start(), at(9, 59, 0))
    assert early.tick == at(10)
    done = early.state.after_success()
    assert not allows(done, Trigger.SCHEDULER, at(9, 58, 59))
    assert not allows(done, Trigger.SCHEDULER, at(10))


def test_messages_of_a_clock_that_is_ahead_run_each_tick_once() -> None:
    """Two beats, one 50 s ahead: neither runs the next hour's tick a second time."""
    state, ran = hourly(tick=10, due_at=11), []
    for now in (at(11, 58, 15), at(11, 58, 25), at(11, 58, 30), at(12, 0, 1)):
        for ahead in (50 * SECOND, timedelta(0)):
            decision = state.decide(*start(asked_at=now + ahead), now)
            if decision.is_allowed:
                state = decision.state.after_success()
                ran.append(decision.tick)
    assert ran == [at(11), at(12)]


def test_catch_up_holds_until_something_else_is_overdue() -> None:
    """The next tick, or the end of the next one's grace, whatever comes first."""
    catch_up = start(Trigger.CATCH_UP)
    state = hourly(tick=8, due_at=9)
    assert state.decide(*catch_up, at(10, 4)).holds_until == at(10, 5)
    assert state.decide(*catch_up, at(10, 5)).holds_until == at(11)


def test_tick_that_was_given_back_is_not_passed_over() -> None:
    """A tick that was given back has begun, so it is not passed over."""
    state = hourly(tick=12, former_tick=9)
    assert state.passed_over() == [at(10), at(11)]
    assert replace(state, repeated_tick=at(11)).passed_over() == [at(10)]
