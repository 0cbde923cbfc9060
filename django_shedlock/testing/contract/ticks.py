"""Ticks: a lock with a schedule runs each tick once."""

from datetime import UTC, datetime, timedelta

import pytest
from asgiref.sync import async_to_sync

from django_shedlock.execution.executor import aexecute
from django_shedlock.locks.configuration import LockConfiguration
from django_shedlock.locks.status import LockHolder, LockState
from django_shedlock.providers.base import LockProvider
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import ScheduleState, Start, Trigger
from django_shedlock.testing.contract.harness import (
    MINUTE,
    Contract,
    configure,
    configured,
    force_release,
    status_of,
    take_from,
    try_from,
)

# A tick of this schedule is so rare that no test sees two of them.
LEAP_DAYS = "0 0 29 2 *"


def yearly(*, weeks: int) -> str:
    """Return the expression of a yearly tick about this many weeks from now."""
    day = datetime.now(UTC) + timedelta(weeks=weeks)
    return f"0 0 {min(day.day, 28)} {day.month} *"


FOUR_WEEKS_AGO = yearly(weeks=-4)
EIGHT_WEEKS_AGO = yearly(weeks=-8)
# The newest tick of this schedule is eleven months old.
IN_FOUR_WEEKS = yearly(weeks=4)


def configure_tick(
    trigger: Trigger = Trigger.SCHEDULER,
    *,
    expression: str = LEAP_DAYS,
    lock_at_most_for: timedelta = MINUTE,
    lock_at_least_for: timedelta = timedelta(0),
    grace: timedelta = timedelta(0),
) -> LockConfiguration:
    """Return the configuration of a lock with a schedule in UTC."""
    return LockConfiguration(
        "job",
        lock_at_most_for,
        lock_at_least_for,
        schedule=Schedule(expression, "UTC"),
        grace=grace,
        start=Start(trigger),
    )


class TickContract(Contract):
    """Each tick of a schedule is run once, by one host."""

    flags: tuple[str, ...] = ("keeps_ticks",)

    def ticks(self, provider: LockProvider) -> ScheduleState:
        status = status_of(provider)
        return status.schedule_state

    def has_succeeded(self, provider: LockProvider) -> bool:
        """Return whether the newest tick that was begun has succeeded."""
        ticks = self.ticks(provider)
        assert ticks.tick is not None
        assert ticks.due_at is not None
        return ticks.due_at > ticks.tick

    def test_tick_runs_once(self, provider: LockProvider) -> None:
        """A lock with a schedule can't be acquired again for a tick that was run."""
        lock = take_from(provider, configure_tick())
        assert provider.release(lock)
        holder = try_from(provider, configure_tick())
        assert isinstance(holder, LockHolder)
        assert (holder.locked_by, holder.remaining) == (lock.locked_by, timedelta(0))
        assert holder.tick == self.ticks(provider).tick
        assert "is done, last run by" in holder.reason

    def test_tick_that_runs_is_held(self, provider: LockProvider) -> None:
        """The second caller for a tick learns the holder, and need not wait."""
        lock = take_from(provider, configure_tick())
        holder = try_from(provider, configure_tick())
        assert isinstance(holder, LockHolder)
        assert holder.tick == self.ticks(provider).tick
        assert holder.reason == f"held by {lock.locked_by}"

    def test_lock_that_is_held_is_waited_for(self, provider: LockProvider) -> None:
        """A caller for another tick, or for none, may wait for the lock."""
        lock = take_from(provider, configure_tick(expression=EIGHT_WEEKS_AGO))
        others = [
            configure_tick(expression=FOUR_WEEKS_AGO),
            configure_tick(Trigger.OPERATOR),
            configure_tick(Trigger.RETRY),
            configure(),
        ]
        for configuration in others:
            holder = try_from(provider, configuration)
            assert isinstance(holder, LockHolder)
            assert (holder.locked_by, holder.tick) == (lock.locked_by, None)

    def test_lock_knows_its_tick(self, provider: LockProvider) -> None:
        """A lock knows which tick it runs; without a schedule it has none."""
        lock = take_from(provider, configure_tick())
        assert lock.tick == self.ticks(provider).tick
        assert provider.release(lock)
        assert take_from(provider, configure()).tick is None

    def test_success_is_that_of_the_tick(self, provider: LockProvider) -> None:
        """The record knows the newest tick, and the first that has not succeeded."""
        lock = take_from(provider, configure_tick())
        started = self.ticks(provider)
        schedule = Schedule(LEAP_DAYS, "UTC")
        assert started.tick == next(schedule.ticks_until(datetime.now(UTC)))
        assert started.due_at == started.tick
        assert started.schedule == schedule
        assert provider.release(lock)
        assert self.ticks(provider).due_at == next(schedule.ticks_after(started.tick))

    def test_record_keeps_an_interval(self, provider: LockProvider) -> None:
        """A union with an interval is read back as it was written."""
        written = f"{LEAP_DAYS} | every 366d"
        lock = take_from(provider, configure_tick(expression=written))
        schedule, now = Schedule(["every 366d", LEAP_DAYS], "UTC"), datetime.now(UTC)
        assert self.ticks(provider).schedule == schedule
        assert lock.tick == next(schedule.ticks_until(now))
        assert provider.release(lock)
        assert self.ticks(provider).due_at == next(schedule.ticks_after(now))
        assert isinstance(
            try_from(provider, configure_tick(expression=written)), LockHolder
        )

    def test_failure_is_no_success(self, provider: LockProvider) -> None:
        """A tick whose job failed was run, and has not succeeded."""
        assert provider.release(take_from(provider, configure_tick()), succeeded=False)
        assert not self.has_succeeded(provider)
        assert isinstance(try_from(provider, configure_tick()), LockHolder)

    def test_async_success_is_that_of_the_tick(self, provider: LockProvider) -> None:
        """A coroutine runs its tick once, and its success is that of the tick."""
        schedule = Schedule(LEAP_DAYS, "UTC")

        async def succeed() -> None:
            """Be a job that succeeds at once."""

        async def work() -> None:
            assert (await aexecute(succeed, "job", schedule=schedule)).was_executed
            again = await aexecute(succeed, "job", schedule=schedule)
            assert not again.was_executed

        with configured(provider):
            async_to_sync(work)()
        assert self.has_succeeded(provider)

    def test_async_failure_is_no_success(self, provider: LockProvider) -> None:
        """A tick whose coroutine failed was run, and has not succeeded."""

        async def fail() -> None:
            raise LookupError

        with configured(provider), pytest.raises(LookupError):
            async_to_sync(aexecute)(fail, "job", schedule=Schedule(LEAP_DAYS, "UTC"))
        assert not self.has_succeeded(provider)
        assert isinstance(try_from(provider, configure_tick()), LockHolder)

    def test_lock_without_schedule_leaves_ticks_alone(
        self, provider: LockProvider
    ) -> None:
        """The same lock can be acquired for no tick, which changes no tick."""
        assert provider.release(take_from(provider, configure_tick()), succeeded=False)
        before = self.ticks(provider)
        assert provider.release(take_from(provider, configure()))
        assert self.ticks(provider) == before

    def test_operator_may_run_a_tick_again(self, provider: LockProvider) -> None:
        """An operator can run a job again whose tick is done and whose lock is kept."""
        configuration = configure_tick(lock_at_least_for=MINUTE)
        assert provider.release(take_from(provider, configuration))
        forced = configure_tick(Trigger.OPERATOR)
        assert provider.release(take_from(provider, forced))
        assert isinstance(try_from(provider, configuration), LockHolder)

    def test_operator_does_not_disturb_a_running_job(
        self, provider: LockProvider
    ) -> None:
        """Not even an operator can run a job twice at the same time."""
        lock = take_from(provider, configure_tick())
        holder = try_from(provider, configure_tick(Trigger.OPERATOR))
        assert isinstance(holder, LockHolder)
        assert provider.release(lock)

    def test_operator_leaves_the_tick_to_come(self, provider: LockProvider) -> None:
        """An operator's run is for the newest past tick, and not for the next one."""
        assert provider.release(take_from(provider, configure_tick(Trigger.OPERATOR)))
        tick = self.ticks(provider).tick
        assert tick is not None
        assert tick < datetime.now(UTC)

    def test_retry_runs_a_tick_until_it_succeeds(self, provider: LockProvider) -> None:
        """A retry runs a tick that failed, and skips a tick that succeeded."""
        assert provider.release(take_from(provider, configure_tick()), succeeded=False)
        tick = self.ticks(provider).tick
        retry = configure_tick(Trigger.RETRY)
        assert provider.release(take_from(provider, retry), succeeded=False)
        assert provider.release(take_from(provider, retry))
        assert isinstance(try_from(provider, retry), LockHolder)
        assert self.ticks(provider).tick == tick

    def test_retry_runs_a_tick_without_a_registration(
        self, provider: LockProvider
    ) -> None:
        """A retry runs if no tick was run yet."""
        assert provider.release(take_from(provider, configure()))
        assert provider.release(take_from(provider, configure_tick(Trigger.RETRY)))

    def test_retry_runs_what_was_registered_during_its_tick(
        self, provider: LockProvider
    ) -> None:
        """A retry runs a failed tick, even if its schedule was registered later."""
        six_weeks_ago = datetime.now(UTC) - timedelta(weeks=6)
        provider.register("job", Schedule(FOUR_WEEKS_AGO, "UTC"), six_weeks_ago)
        first = configure_tick(expression=FOUR_WEEKS_AGO)
        assert provider.release(take_from(provider, first), succeeded=False)
        retry = configure_tick(Trigger.RETRY, expression=FOUR_WEEKS_AGO)
        assert provider.release(take_from(provider, retry))
        assert isinstance(try_from(provider, retry), LockHolder)

    def test_lock_gets_a_schedule_later(self, provider: LockProvider) -> None:
        """A lock that gets its first schedule is overdue from its first tick on."""
        assert provider.release(take_from(provider, configure()))
        first = configure_tick(expression=FOUR_WEEKS_AGO)
        assert provider.release(take_from(provider, first), succeeded=False)
        ticks = self.ticks(provider)
        assert ticks.tick is not None
        late = ticks.tick + timedelta(days=300)
        assert ticks.overdue_since(late, MINUTE) == ticks.tick

    def test_retry_runs_a_tick_that_never_began(self, provider: LockProvider) -> None:
        """A retry runs a tick that never began because the store failed."""
        assert provider.release(
            take_from(provider, configure_tick(expression=EIGHT_WEEKS_AGO))
        )
        older = self.ticks(provider).tick
        retry = configure_tick(Trigger.RETRY, expression=FOUR_WEEKS_AGO)
        assert provider.release(take_from(provider, retry))
        newer = self.ticks(provider).tick
        assert older is not None
        assert newer is not None
        assert older < newer
        assert isinstance(try_from(provider, retry), LockHolder)
        holder = try_from(provider, configure_tick(expression=FOUR_WEEKS_AGO))
        assert isinstance(holder, LockHolder)

    def test_late_retry_is_for_the_newer_tick(self, provider: LockProvider) -> None:
        """A late retry of a failed tick runs the newer tick, which is not run again."""
        older = configure_tick(expression=EIGHT_WEEKS_AGO)
        assert provider.release(take_from(provider, older), succeeded=False)
        retry = configure_tick(Trigger.RETRY, expression=FOUR_WEEKS_AGO)
        assert provider.release(take_from(provider, retry))
        holder = try_from(provider, configure_tick(expression=FOUR_WEEKS_AGO))
        assert isinstance(holder, LockHolder)

    def test_retry_leaves_the_tick_to_come(self, provider: LockProvider) -> None:
        """A retry long after a success does not run the next tick early."""
        assert provider.release(
            take_from(provider, configure_tick(expression=FOUR_WEEKS_AGO))
        )
        retry = configure_tick(Trigger.RETRY, expression=IN_FOUR_WEEKS)
        assert isinstance(try_from(provider, retry), LockHolder)

    def test_catch_up_runs_what_never_began(self, provider: LockProvider) -> None:
        """A tick that nobody has begun is caught up once, and not if that fails."""
        self.miss_newest_tick(provider)
        catch_up = configure_tick(Trigger.CATCH_UP, expression=FOUR_WEEKS_AGO)
        assert provider.release(take_from(provider, catch_up), succeeded=False)
        assert isinstance(try_from(provider, catch_up), LockHolder)

    def test_catch_up_leaves_what_failed(self, provider: LockProvider) -> None:
        """A catch-up skips a job whose newest tick was begun, however that ended."""
        lock = take_from(provider, configure_tick(Trigger.OPERATOR))
        assert provider.release(lock, succeeded=False)
        holder = try_from(provider, configure_tick(Trigger.CATCH_UP))
        assert isinstance(holder, LockHolder)

    def test_catch_up_leaves_what_succeeded(self, provider: LockProvider) -> None:
        """A catch-up skips a job whose newest tick has succeeded."""
        assert provider.release(take_from(provider, configure_tick(Trigger.OPERATOR)))
        holder = try_from(provider, configure_tick(Trigger.CATCH_UP))
        assert isinstance(holder, LockHolder)

    def test_catch_up_minds_the_grace(self, provider: LockProvider) -> None:
        """A tick is not caught up before it is overdue."""
        self.miss_newest_tick(provider)
        early = configure_tick(
            Trigger.CATCH_UP, expression=FOUR_WEEKS_AGO, grace=timedelta(weeks=6)
        )
        assert isinstance(try_from(provider, early), LockHolder)
        catch_up = configure_tick(Trigger.CATCH_UP, expression=FOUR_WEEKS_AGO)
        assert provider.release(take_from(provider, catch_up))

    def test_catch_up_leaves_an_expired_lock(self, provider: LockProvider) -> None:
        """A catch-up skips an expired lock until somebody releases it."""
        short = configure_tick(expression=EIGHT_WEEKS_AGO, lock_at_most_for=self.short)
        lock = take_from(provider, short)
        self.outlast(lock)
        catch_up = configure_tick(Trigger.CATCH_UP, expression=FOUR_WEEKS_AGO)
        holder = try_from(provider, catch_up)
        assert isinstance(holder, LockHolder)
        assert holder.locked_by == lock.locked_by
        assert holder.tick is not None
        assert lock.tick is not None
        assert holder.tick > lock.tick
        assert holder.reason.startswith("its lease is over, but ")
        assert force_release(provider)
        assert provider.release(take_from(provider, catch_up))

    @pytest.mark.parametrize(
        "trigger", [Trigger.SCHEDULER, Trigger.RETRY, Trigger.OPERATOR]
    )
    def test_others_acquire_an_expired_lock(
        self, provider: LockProvider, trigger: Trigger
    ) -> None:
        """Every other start acquires an expired lock, so no tick is lost."""
        older = configure_tick(expression=EIGHT_WEEKS_AGO, lock_at_most_for=self.short)
        self.outlast(take_from(provider, older))
        lock = take_from(provider, configure_tick(trigger, expression=FOUR_WEEKS_AGO))
        assert provider.release(lock)

    def test_tick_that_was_caught_up_is_run(self, provider: LockProvider) -> None:
        """A very late scheduler does not run a tick again that was caught up."""
        older = configure_tick(expression=EIGHT_WEEKS_AGO)
        assert provider.release(take_from(provider, older), succeeded=False)
        catch_up = configure_tick(Trigger.CATCH_UP, expression=FOUR_WEEKS_AGO)
        assert provider.release(take_from(provider, catch_up))
        holder = try_from(provider, configure_tick(expression=FOUR_WEEKS_AGO))
        assert isinstance(holder, LockHolder)

    def test_no_older_tick_is_caught_up(self, provider: LockProvider) -> None:
        """An overdue tick is not caught up after a newer tick was run."""
        older = configure_tick(expression=EIGHT_WEEKS_AGO)
        assert provider.release(take_from(provider, older), succeeded=False)
        newer = configure_tick(expression=FOUR_WEEKS_AGO)
        assert provider.release(take_from(provider, newer), succeeded=False)
        six_weeks = configure_tick(
            Trigger.CATCH_UP, expression=FOUR_WEEKS_AGO, grace=timedelta(weeks=6)
        )
        assert isinstance(try_from(provider, six_weeks), LockHolder)

    def miss_newest_tick(self, provider: LockProvider) -> None:
        """Let the tick of four weeks ago not begin, after an older one that failed."""
        lock = take_from(provider, configure_tick(expression=EIGHT_WEEKS_AGO))
        assert provider.release(lock, succeeded=False)

    def test_no_start_consumes_a_tick_to_come(self, provider: LockProvider) -> None:
        """A start uses up no later tick, even if the schedule changes afterwards."""
        assert provider.release(
            take_from(provider, configure_tick(expression=IN_FOUR_WEEKS))
        )
        tick = self.ticks(provider).tick
        assert tick is not None
        assert tick < datetime.now(UTC)
        lock = take_from(provider, configure_tick(expression="* * * * *"))
        assert self.ticks(provider).schedule == Schedule("* * * * *", "UTC")
        assert provider.release(lock)

    def test_message_that_comes_late_is_for_its_own_tick(
        self, provider: LockProvider
    ) -> None:
        """A late message runs its own tick, and leaves the newest tick alone."""
        month_ago = datetime.now(UTC) - timedelta(weeks=6)
        late = LockConfiguration(
            "job",
            MINUTE,
            schedule=Schedule(FOUR_WEEKS_AGO, "UTC"),
            start=Start(asked_at=month_ago),
        )
        lock = take_from(provider, late)
        assert lock.tick is not None
        assert lock.tick < month_ago
        assert provider.release(lock)
        assert isinstance(try_from(provider, late), LockHolder)
        take_from(provider, configure_tick(expression=FOUR_WEEKS_AGO))

    def test_registered_schedule_counts_from_now_on(
        self, provider: LockProvider
    ) -> None:
        """A registered job that never ran is free, and owes no tick before that."""
        schedule = Schedule(FOUR_WEEKS_AGO, "UTC")
        provider.register("job", schedule)
        status = status_of(provider)
        assert status.state is LockState.FREE
        assert status.overdue_since(timedelta(0)) is None
        year = timedelta(days=366)
        assert status.owed_tick(schedule, year, datetime.now(UTC) - year) is None
        for trigger in (Trigger.SCHEDULER, Trigger.RETRY, Trigger.CATCH_UP):
            wanted = configure_tick(trigger, expression=FOUR_WEEKS_AGO)
            holder = try_from(provider, wanted)
            assert isinstance(holder, LockHolder)
            assert holder.reason.endswith("came before its schedule was registered")
        by_hand = configure_tick(Trigger.OPERATOR, expression=FOUR_WEEKS_AGO)
        assert provider.release(take_from(provider, by_hand))

    def test_registered_schedule_counts_from_an_earlier_instant(
        self, provider: LockProvider
    ) -> None:
        """A registration that counts from weeks ago owes the tick since then."""
        schedule = Schedule(FOUR_WEEKS_AGO, "UTC")
        since = datetime.now(UTC) - timedelta(weeks=6)
        provider.register("job", schedule, since)
        status = status_of(provider)
        owed = status.owed_tick(schedule, timedelta(days=366), since)
        assert owed == status.overdue_since(timedelta(0)) == status.ticks.due_at
        lock = take_from(provider, configure_tick(expression=FOUR_WEEKS_AGO))
        assert lock.tick == owed
        assert provider.release(lock)

    def test_registering_another_schedule_leaves_what_is_due(
        self, provider: LockProvider
    ) -> None:
        """Two versions with two schedules do not put off each other's due ticks."""
        lock = take_from(provider, configure_tick(Trigger.OPERATOR))
        assert provider.release(lock, succeeded=False)
        due_at = self.ticks(provider).due_at
        for expression in (IN_FOUR_WEEKS, LEAP_DAYS, "* * * * *", IN_FOUR_WEEKS):
            provider.register("job", Schedule(expression, "UTC"))
            assert self.ticks(provider).schedule == Schedule(expression, "UTC")
            assert self.ticks(provider).due_at == due_at
        assert self.has_succeeded(provider) is False

    def test_registering_another_schedule_puts_off_what_is_not(
        self, provider: LockProvider
    ) -> None:
        """A changed schedule is due at its own next tick, even if that is later."""
        sooner = Schedule(IN_FOUR_WEEKS, "UTC")
        later = Schedule(yearly(weeks=8), "UTC")
        for schedule in (sooner, later, sooner):
            provider.register("job", schedule)
            assert self.ticks(provider).due_at == next(
                schedule.ticks_after(datetime.now(UTC))
            )

    def test_running_job_keeps_its_schedule(self, provider: LockProvider) -> None:
        """Another schedule is registered only after the running job has ended."""
        lock = take_from(provider, configure_tick(expression=IN_FOUR_WEEKS))
        running = self.ticks(provider)
        provider.register("job", Schedule("* * * * *", "UTC"))
        assert self.ticks(provider) == running
        assert provider.release(lock)
        assert self.has_succeeded(provider)
        provider.register("job", Schedule("* * * * *", "UTC"))
        assert self.ticks(provider).schedule == Schedule("* * * * *", "UTC")

    def test_success_of_another_schedule_is_none_of_this_one(
        self, provider: LockProvider
    ) -> None:
        """A success of another schedule does not hide that the next runs fail."""
        assert provider.release(
            take_from(provider, configure_tick(expression=IN_FOUR_WEEKS))
        )
        lock = take_from(provider, configure_tick(expression="* * * * *"))
        assert provider.release(lock, succeeded=False)
        assert not self.has_succeeded(provider)

    def test_registering_again_changes_nothing(self, provider: LockProvider) -> None:
        """Registering the same schedule again leaves its ticks as they are."""
        assert provider.release(take_from(provider, configure_tick()), succeeded=False)
        before = self.ticks(provider)
        provider.register("job", Schedule(LEAP_DAYS, "UTC"))
        assert self.ticks(provider) == before
        provider.register("job", Schedule("@yearly", "UTC"))
        assert self.ticks(provider).schedule == Schedule("@yearly", "UTC")
