"""A tick that was begun can be given back, and a pause owes none."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from django_shedlock.locks.configuration import ZERO, LockConfiguration
from django_shedlock.locks.status import (
    InterruptedBodyError,
    LockHolder,
    LockState,
)
from django_shedlock.providers.base import LockProvider
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import ScheduleState, Trigger
from django_shedlock.testing.contract.harness import (
    MINUTE,
    Contract,
    configure,
    force_release,
    pause,
    status_of,
    take_from,
    try_from,
)
from django_shedlock.testing.contract.left_behind import left_behind
from django_shedlock.testing.contract.ticks import (
    EIGHT_WEEKS_AGO,
    FOUR_WEEKS_AGO,
    configure_tick,
)

INTERRUPTIONS = [KeyboardInterrupt(), SystemExit(143), InterruptedBodyError("killed")]
YEAR = timedelta(days=366)


def repeatable(
    trigger: Trigger = Trigger.SCHEDULER, *, expression: str = FOUR_WEEKS_AGO
) -> LockConfiguration:
    """Return the configuration of a job with ``rerun=True``."""
    wanted = configure_tick(trigger, expression=expression)
    return replace(wanted, start=replace(wanted.start, rerun=True))


class GivenBackContract(Contract):
    """A body that never began, or was interrupted, gives its tick back."""

    flags: tuple[str, ...] = ("keeps_ticks",)

    def kept_ticks(self, provider: LockProvider) -> ScheduleState:
        return status_of(provider).ticks

    @pytest.mark.parametrize("is_dead", [False, True], ids=["alive", "dead"])
    def test_tick_of_a_body_that_never_began_is_as_before(
        self, provider: LockProvider, *, is_dead: bool
    ) -> None:
        """The tick is owed again, however often, and whoever releases the lock."""
        older = configure_tick(expression=EIGHT_WEEKS_AGO, lock_at_least_for=ZERO)
        assert provider.release(take_from(provider, older))
        before = self.kept_ticks(provider)
        wanted = configure_tick(expression=FOUR_WEEKS_AGO, lock_at_least_for=MINUTE)
        for _ in range(2):
            lock = take_from(provider, wanted)
            begun = self.kept_ticks(provider)
            assert (begun.tick, begun.former_tick) == (lock.tick, before.tick)
            if is_dead:
                lock = left_behind(lock)
            lock.never_began = True
            assert lock.release()
            status = status_of(provider)
            assert status.state is LockState.FREE
            assert (status.ticks.tick, status.ticks.due_at) == (
                before.tick,
                begun.due_at,
            )
            assert wanted.schedule is not None
            owed = status.owed_tick(wanted.schedule, YEAR, datetime.now(UTC))
            assert owed == begun.tick
        catch_up = configure_tick(Trigger.CATCH_UP, expression=FOUR_WEEKS_AGO)
        assert provider.release(take_from(provider, catch_up))

    @pytest.mark.parametrize("trigger", [Trigger.RETRY, Trigger.OPERATOR])
    def test_tick_of_two_runs_is_not_given_back(
        self, provider: LockProvider, trigger: Trigger
    ) -> None:
        """If a second run of a tick never begins, the first one counts."""
        lock = take_from(provider, repeatable())
        assert provider.release(lock, succeeded=False)
        for error in (None, KeyboardInterrupt()):
            again = take_from(provider, repeatable(trigger))
            again.never_began = error is None
            assert again.release(error)
            ticks = self.kept_ticks(provider)
            assert (ticks.tick, ticks.repeated_tick) == (lock.tick, None)
            assert isinstance(try_from(provider, repeatable()), LockHolder)

    def test_lock_without_schedule_gives_no_tick_back(
        self, provider: LockProvider
    ) -> None:
        """A body that never began, and was for no tick, changes no tick."""
        assert provider.release(take_from(provider, repeatable()))
        before = self.kept_ticks(provider)
        lock = take_from(provider, configure())
        lock.never_began = True
        assert lock.release()
        assert self.kept_ticks(provider) == before

    @pytest.mark.parametrize("error", INTERRUPTIONS, ids=lambda error: repr(error))
    @pytest.mark.parametrize("is_dead", [False, True], ids=["alive", "dead"])
    def test_interrupted_tick_is_given_back_once(
        self, provider: LockProvider, error: BaseException, *, is_dead: bool
    ) -> None:
        """A job with ``rerun`` runs an interrupted tick once more, then no more."""
        for turn in range(2):
            is_first = turn == 0
            acquired = take_from(provider, repeatable())
            lock = left_behind(acquired) if is_dead else acquired
            assert lock.release(error)
            status = status_of(provider)
            assert (status.job.outcome, status.job.failures) == ("failed", turn + 1)
            assert (status.job.open_run, status.job.last_run) == (None, lock.locked_by)
            assert status.state is LockState.FREE
            assert status.ticks.repeated_tick == acquired.tick
            assert (status.ticks.tick is None) is is_first
            assert status.ticks.due_at == acquired.tick
            assert status.may_catch_up(ZERO) is is_first
        for trigger in (Trigger.SCHEDULER, Trigger.CATCH_UP):
            assert isinstance(try_from(provider, repeatable(trigger)), LockHolder)

    def test_tick_that_is_run_once_more_may_succeed(
        self, provider: LockProvider
    ) -> None:
        """A catch-up begins the interrupted tick as well, and its success ends it."""
        assert take_from(provider, repeatable()).release(SystemExit(143))
        lock = take_from(provider, repeatable(Trigger.CATCH_UP))
        assert lock.release()
        ticks = self.kept_ticks(provider)
        assert ticks.tick == lock.tick
        assert ticks.due_at is not None
        assert lock.tick is not None
        assert ticks.due_at > lock.tick
        assert isinstance(try_from(provider, repeatable()), LockHolder)

    def test_release_that_is_sent_again_gives_a_tick_back_once(
        self, provider: LockProvider
    ) -> None:
        """Once the run is accounted for, a late second release changes nothing."""
        lock = take_from(provider, repeatable())
        assert lock.release(SystemExit(143))
        given_back = self.kept_ticks(provider)
        lock.was_release_tried = True
        assert provider.release(lock, succeeded=False)
        assert self.kept_ticks(provider) == given_back
        again = take_from(provider, repeatable())
        running = self.kept_ticks(provider)
        provider.release(lock, succeeded=False)
        assert self.kept_ticks(provider) == running
        assert provider.release(again)

    @pytest.mark.parametrize(
        ("rerun", "error"),
        [(False, SystemExit(143)), (True, SystemExit(3)), (True, LookupError())],
        ids=["no rerun", "an exit", "a failure"],
    )
    def test_failed_tick_is_not_given_back(
        self, provider: LockProvider, error: BaseException, *, rerun: bool
    ) -> None:
        """Without ``rerun``, and after an ordinary failure, the tick stays begun."""
        wanted = repeatable() if rerun else configure_tick(expression=FOUR_WEEKS_AGO)
        lock = take_from(provider, wanted)
        assert lock.release(error)
        assert self.kept_ticks(provider).tick == lock.tick
        for trigger in (Trigger.SCHEDULER, Trigger.CATCH_UP):
            assert isinstance(try_from(provider, repeatable(trigger)), LockHolder)

    def test_schedule_that_was_registered_meanwhile_is_not_undone(
        self, provider: LockProvider
    ) -> None:
        """A dead run gives back no tick of a schedule that was registered since."""
        short = replace(
            repeatable(expression=EIGHT_WEEKS_AGO), lock_at_most_for=self.short
        )
        lock = take_from(provider, short)
        self.outlast(lock)
        provider.register("job", Schedule(FOUR_WEEKS_AGO, "UTC"))
        registered = self.kept_ticks(provider)
        assert left_behind(lock).release(InterruptedBodyError("killed"))
        assert self.kept_ticks(provider).tick == registered.tick
        assert isinstance(try_from(provider, repeatable()), LockHolder)

    def test_ticks_of_a_pause_are_not_owed(self, provider: LockProvider) -> None:
        """After a pause the next tick is due, and nobody but an operator runs older."""
        older = configure_tick(expression=EIGHT_WEEKS_AGO)
        assert provider.release(take_from(provider, older), succeeded=False)
        schedule = Schedule(FOUR_WEEKS_AGO, "UTC")
        for turn in range(2):
            if turn == 0:
                pause(provider)
                assert force_release(provider)
            else:  # it ends by itself
                self.outlast(pause(provider, self.short))
            status = status_of(provider)
            assert status.state is LockState.FREE
            assert status.overdue_since(ZERO) is None
            assert not status.may_catch_up(ZERO)
            assert status.owed_tick(schedule, YEAR, datetime.now(UTC) - YEAR) is None
            for trigger in (Trigger.SCHEDULER, Trigger.RETRY, Trigger.CATCH_UP):
                wanted = configure_tick(trigger, expression=FOUR_WEEKS_AGO)
                holder = try_from(provider, wanted)
                assert isinstance(holder, LockHolder)
                assert holder.reason.endswith("came before its pause ended")
        by_hand = configure_tick(Trigger.OPERATOR, expression=FOUR_WEEKS_AGO)
        lock = take_from(provider, by_hand)
        following = next(schedule.ticks_after(datetime.now(UTC)))
        assert self.kept_ticks(provider).due_at == following
        lock.never_began = True
        assert lock.release()
        wanted = configure_tick(expression=FOUR_WEEKS_AGO)
        assert isinstance(try_from(provider, wanted), LockHolder)

    def test_schedule_of_a_paused_job_is_registered_after_its_pause(
        self, provider: LockProvider
    ) -> None:
        """A new schedule owes no tick of a pause, even if it counts from before."""
        pause(provider)
        assert force_release(provider)
        schedule = Schedule(FOUR_WEEKS_AGO, "UTC")
        provider.register("job", schedule, datetime.now(UTC) - YEAR)
        ticks = status_of(provider).schedule_state
        assert ticks.due_at == next(schedule.ticks_after(datetime.now(UTC)))
        assert ticks.tick is not None
        wanted = configure_tick(expression=FOUR_WEEKS_AGO)
        assert isinstance(try_from(provider, wanted), LockHolder)
