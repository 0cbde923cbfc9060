"""How far the ticks of a schedule have been run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django_shedlock.occasions import Occasion
from django_shedlock.schedules import Schedule
from django_shedlock.ticks import TickChoice, nearest
from django_shedlock.triggers import Trigger

# Note [Ticks beyond them all]
# A tick later than those around the store's clock is another schedule's, or of a clock
# that was wrong. It must not keep the ticks to come from being run, nor pass for their
# success for as long as it is ahead.

# Note [Before the first tick]
# Until a tick has succeeded, a second before the first that counts stands for one, so
# that this one is due. It is no tick itself, since ticks are whole minutes.
A_SECOND = timedelta(seconds=1)


@dataclass(frozen=True)
class Progress:
    """
    The newest ticks of a lock that were run, that succeeded, and that were caught up.

    All instants are aware. ``schedule`` is the one that the lock had last, if any.
    ``succeeded`` is never ``None`` if ``tick`` is not, see ``newest_success``.
    """

    schedule: Schedule | None = None
    tick: datetime | None = None
    succeeded: datetime | None = None
    caught_up: datetime | None = None

    @property
    def newest_success(self) -> datetime | None:
        """The newest tick that succeeded, if any has."""
        # See Note [Before the first tick].
        if self.succeeded is None or self.succeeded.second:
            return None
        return self.succeeded

    def allows(self, occasion: Occasion, now: datetime) -> bool:
        """Return whether the job may run on that occasion at this instant."""
        choice = occasion.choice(now)
        if choice is None or occasion.trigger is Trigger.OPERATOR:
            return True
        tick = choice.at(now)
        if occasion.trigger is Trigger.RETRY:
            return self._is_to_retry(tick)
        due = occasion.due(now)
        if due is not None:
            return self._is_to_catch_up(due.at(now))
        # See Note [Ticks beyond them all].
        is_wrong = self.tick is not None and self.tick > choice.ticks[-1]
        return self.tick is None or self.tick < tick or is_wrong

    def done(
        self, occasion: Occasion, now: datetime, *, is_held: bool
    ) -> datetime | None:
        """
        Return the tick that there is no use to wait for, if it is done or begun.

        Who does not come for a tick of his own waits for a lock that is held.
        """
        choice = occasion.choice(now)
        waits = is_held and occasion.trigger is not Trigger.SCHEDULER
        if choice is None or waits or self.allows(occasion, now):
            return None
        return self.tick or choice.at(now)

    def after_start(self, occasion: Occasion, now: datetime) -> Progress:
        """Return the progress when the job starts on that occasion at this instant."""
        choice = occasion.choice(now)
        if choice is None:
            return self
        chosen = choice.at(now)
        if occasion.trigger is Trigger.SCHEDULER:
            return self._without_beyond(choice)._started(occasion, chosen, chosen)
        if occasion.trigger is Trigger.CATCH_UP:
            return replace(self._started(occasion, chosen, chosen), caught_up=chosen)
        return self._started(occasion, chosen, self._newer(chosen))

    def after_success(self) -> Progress:
        """Return the progress when the run of the newest tick has succeeded."""
        return replace(self, succeeded=self.tick)

    def registered(self, schedule: Schedule, now: datetime) -> Progress:
        """Return the progress if the schedule counts from now on, unless it does."""
        if self.schedule == schedule:
            return self
        kept = self._without_beyond(nearest(schedule, now))
        return replace(kept, schedule=schedule, succeeded=before_next(schedule, now))

    def overdue_since(self, now: datetime, grace: timedelta) -> datetime | None:
        """
        Return the first tick that should have succeeded, or ``None`` if none is late.

        A job that was never run, nor registered, can't be late.
        """
        if self.schedule is None or self.succeeded is None:
            return None
        if self.succeeded >= _newest_due(self.schedule, now, grace):
            return None
        return next(self.schedule.ticks_after(self.succeeded))

    def was_started(self, now: datetime, grace: timedelta) -> bool:
        """Return whether the newest tick that is due was run, however that ended."""
        if self.schedule is None or self.tick is None:
            return False
        return self.tick >= _newest_due(self.schedule, now, grace)

    def next_tick(self, now: datetime) -> datetime | None:
        """Return the tick to be run next, or ``None`` without a schedule."""
        if self.schedule is None:
            return None
        done = max(filter(None, [self.tick, now]))
        return next(self.schedule.ticks_after(done))

    def _without_beyond(self, choice: TickChoice) -> Progress:
        def kept(tick: datetime | None) -> datetime | None:
            return None if tick is None or tick > choice.ticks[-1] else tick

        return replace(
            self,
            tick=kept(self.tick),
            succeeded=kept(self.succeeded),
            caught_up=kept(self.caught_up),
        )

    def _started(
        self, occasion: Occasion, chosen: datetime, tick: datetime
    ) -> Progress:
        # See Note [Before the first tick].
        succeeded = self.succeeded or chosen - A_SECOND
        return replace(self, schedule=occasion.schedule, tick=tick, succeeded=succeeded)

    def _is_to_retry(self, tick: datetime) -> bool:
        return self.tick is None or self.tick < tick or self.succeeded != self.tick

    def _newer(self, tick: datetime) -> datetime:
        return max(self.tick or tick, tick)

    def _is_to_catch_up(self, due: datetime) -> bool:
        newer_was_run = self.tick is not None and self.tick > due
        was_caught_up = self.caught_up is not None and self.caught_up >= due
        is_due = self.succeeded is not None and self.succeeded < due
        return is_due and not newer_was_run and not was_caught_up


def before_next(schedule: Schedule, now: datetime) -> datetime:
    """Return what stands for a success, if ticks count from now on."""
    # See Note [Before the first tick].
    return next(schedule.ticks_after(now)) - A_SECOND


def _newest_due(schedule: Schedule, now: datetime, grace: timedelta) -> datetime:
    return schedule.ticks_until(now - grace, 1)[-1]
