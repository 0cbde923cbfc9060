"""Who starts a job, for which tick that is, and whether it may run."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from django_shedlock.clocks import aware
from django_shedlock.schedules.cron import Schedule

EARLIEST = timedelta(minutes=1)
"""The longest time before its tick at which a scheduler may start a job."""
FUTURE = 2 * EARLIEST
"""The store's clock may have been set back so far, or by less than an interval."""


class Trigger(StrEnum):
    """
    What starts a job; this decides whether its tick may run.

    ``SCHEDULER`` runs each tick once. ``RETRY`` runs the newest past tick unless it has
    succeeded. ``CATCH_UP`` runs it once if a tick is overdue. ``OPERATOR`` runs it at
    any time, also while ``lock_at_least_for`` keeps the lock.
    """

    SCHEDULER = "scheduler"
    RETRY = "retry"
    CATCH_UP = "catch-up"
    OPERATOR = "operator"

    @property
    def log_level(self) -> int:
        """The level at which a start is logged."""
        return _LOGGED[self][0]

    @property
    def remark(self) -> str:
        """What is added to the log line of a start."""
        return _LOGGED[self][1]


_LOGGED = {
    Trigger.SCHEDULER: (logging.DEBUG, ""),
    Trigger.RETRY: (logging.INFO, ", as a retry"),
    Trigger.CATCH_UP: (logging.INFO, ", because its job is overdue"),
    Trigger.OPERATOR: (
        logging.WARNING,
        " by force, whatever its tick and lock_at_least_for",
    ),
}


@dataclass(frozen=True)
class Start:
    """
    What starts a run, and why.

    ``asked_at`` is when a queue's message asked for the run, by the clock of the host
    that published it. ``operator`` and ``reason`` are given if a person starts it.
    """

    trigger: Trigger = Trigger.SCHEDULER
    asked_at: datetime | None = None
    operator: str = ""
    reason: str = ""

    @property
    def is_out_of_turn(self) -> bool:
        """Whether something other than a tick starts the run."""
        return self.trigger in {Trigger.OPERATOR, Trigger.CATCH_UP}


BY_SCHEDULER = Start()


@dataclass(frozen=True)
class Decision:
    """
    Which tick a start is for, and whether its job may run.

    It holds while the store's clock is before ``holds_until``. ``is_new`` tells that no
    run of that tick or a later one has begun. ``state`` is the new state if the job
    starts; otherwise the state stays as it was.
    """

    is_allowed: bool
    is_new: bool
    tick: datetime
    holds_until: datetime
    state: ScheduleState


@dataclass(frozen=True)
class ScheduleState:
    """
    What is known of the ticks of a lock's schedule. All instants are aware.

    ``tick`` is the newest tick that was begun, ``due_at`` the first that has not
    succeeded, ``caught_up`` the newest that was run because it was overdue.
    ``schedule`` is the lock's last one; a host without cronsim does not know it.
    """

    schedule: Schedule | None = None
    tick: datetime | None = None
    due_at: datetime | None = None
    caught_up: datetime | None = None

    def decide(
        self, start: Start, schedule: Schedule, grace: timedelta, now: datetime
    ) -> Decision:
        """
        Decide about a start at this instant of the store's clock.

        The schedule has a time zone. A job is overdue ``grace`` after its tick.
        """
        known = self._without_future(now, schedule)
        chosen, holds_until = _choose(start, schedule, grace, now)
        is_new = known.tick is None or known.tick < chosen
        tick = chosen if known.tick is None else max(chosen, known.tick)
        return Decision(
            is_allowed=known._allows(start, schedule, grace, chosen, now),
            is_new=is_new,
            tick=tick,
            holds_until=holds_until,
            state=ScheduleState(
                schedule,
                tick,
                known._due_at(chosen, is_new=is_new),
                tick if start.trigger is Trigger.CATCH_UP else known.caught_up,
            ),
        )

    def after_success(self) -> ScheduleState:
        """Return the state when the run of the newest tick has succeeded."""
        if self.schedule is None or self.tick is None:
            return self
        return replace(self, due_at=next(self.schedule.ticks_after(self.tick)))

    def registered(
        self, schedule: Schedule, now: datetime, locked_at: datetime
    ) -> ScheduleState:
        """
        Return the state with this schedule; ticks that are due stay due.

        ``locked_at`` is when the lock was last acquired, or else its record created.
        """
        if self.schedule == schedule:
            return self
        known = self._without_future(now, schedule)
        due_at = known._due_at_change(schedule, now, known.tick or locked_at)
        return replace(known, schedule=schedule, due_at=due_at)

    def overdue_since(self, now: datetime, grace: timedelta) -> datetime | None:
        """Return the first tick that should have succeeded, if it is overdue."""
        is_overdue = self.due_at is not None and self.due_at <= now - grace
        return self.due_at if is_overdue else None

    def was_started(self, now: datetime, grace: timedelta) -> bool:
        """Return whether the newest due tick was run, whatever the outcome."""
        if self.schedule is None or self.tick is None:
            return False
        return self.tick >= next(self.schedule.ticks_until(now - grace))

    def next_tick(self, now: datetime) -> datetime | None:
        """Return the tick to run next, or ``None`` without a schedule."""
        if self.schedule is None:
            return None
        tick = self._without_future(now, self.schedule).tick
        return next(self.schedule.ticks_after(max(tick or now, now)))

    # A tick that is too far ahead was written when the store's clock was wrong. It must
    # not prevent the next ticks from running.
    def _without_future(self, now: datetime, schedule: Schedule) -> ScheduleState:
        latest = max(now + FUTURE, next(schedule.ticks_after(now)))

        def kept(tick: datetime | None) -> datetime | None:
            return None if tick is None or tick > latest else tick

        return replace(self, tick=kept(self.tick), caught_up=kept(self.caught_up))

    def _allows(
        self,
        start: Start,
        schedule: Schedule,
        grace: timedelta,
        chosen: datetime,
        now: datetime,
    ) -> bool:
        is_new = self.tick is None or self.tick < chosen
        if start.trigger is Trigger.OPERATOR:
            return True
        if start.trigger is Trigger.CATCH_UP:
            return self._is_to_catch_up(next(schedule.ticks_until(now - grace)))
        if start.trigger is Trigger.RETRY:
            return is_new or self.due_at is None or self.due_at <= (self.tick or chosen)
        return is_new

    def _is_to_catch_up(self, overdue: datetime) -> bool:
        newer_was_run = self.tick is not None and self.tick > overdue
        was_caught_up = self.caught_up is not None and self.caught_up >= overdue
        is_due = self.due_at is not None and self.due_at <= overdue
        return is_due and not newer_was_run and not was_caught_up

    # Note [A schedule that changes]
    # Two versions of a project, side by side for days, register two schedules in turn.
    # So what is due stays due, and a registration puts nothing off for which its own
    # schedule has missed a tick since the last start. Then one of the first ticks after
    # that start, of whatever schedule, is not put off by any. Where it has missed none,
    # the schedule was changed, and its own next tick is due.
    def _due_at_change(
        self, schedule: Schedule, now: datetime, last_start: datetime
    ) -> datetime:
        following = next(schedule.ticks_after(now))
        if self.due_at is None:
            return following
        has_missed = next(schedule.ticks_after(min(last_start, now))) <= now
        if self.due_at <= now or has_missed:
            return min(self.due_at, following)
        return following

    def _due_at(self, chosen: datetime, *, is_new: bool) -> datetime:
        if self.due_at is None:
            return chosen
        # A tick that was not begun has not succeeded, whatever an older schedule says.
        return min(self.due_at, chosen) if is_new else self.due_at


# Note [Which tick a start is for]
# Late starts are the rule (queues, a wait, a busy host), early ones the exception
# (clocks differ by milliseconds). So a start belongs to the newest past tick. Only a
# scheduler may come shortly before its tick: a quarter of the interval, a minute at the
# most. No late start consumes a future tick.
def _choose(
    start: Start, schedule: Schedule, grace: timedelta, now: datetime
) -> tuple[datetime, datetime]:
    if start.asked_at is not None:
        # The publisher's clock may be ahead, but nobody asks in the future.
        tick, _ = _of_scheduler(schedule, min(start.asked_at, now))
        return tick, next(schedule.ticks_after(now))
    if start.trigger is Trigger.SCHEDULER:
        return _of_scheduler(schedule, now)
    boundaries = [next(schedule.ticks_after(now))]
    if start.trigger is Trigger.CATCH_UP:
        next_due = next(schedule.ticks_after(now - grace))
        boundaries.append(next_due + grace)
    return next(schedule.ticks_until(now)), min(boundaries)


def _of_scheduler(schedule: Schedule, now: datetime) -> tuple[datetime, datetime]:
    past, following = next(schedule.ticks_until(now)), next(schedule.ticks_after(now))
    early = following - min((following - past) / 4, EARLIEST)
    return (following, following) if now >= early else (past, early)


def parse_known(schedule: str | None) -> Schedule | None:
    """
    Return the schedule of this text; ``None`` where it can't be read.

    Nobody can without cronsim, nor what another version or program wrote.
    """
    with suppress(ImportError, ValueError):
        return Schedule.parse(schedule) if schedule else None
    return None


def to_text(state: ScheduleState) -> str:
    """Return the state as JSON; an empty text if nothing is known of any tick."""
    known = {
        "schedule": state.schedule and str(state.schedule),
        "tick": _instant(state.tick),
        "due_at": _instant(state.due_at),
        "caught_up": _instant(state.caught_up),
    }
    known = {key: value for key, value in known.items() if value is not None}
    return json.dumps(known) if known else ""


def from_text(text: str) -> ScheduleState:
    """Return the state of ``to_text()``; ``ValueError`` if it is none."""
    if not text:
        return ScheduleState()
    known = json.loads(text)
    if not isinstance(known, dict):
        raise ValueError(f"{text!r} is no state of a schedule")
    return ScheduleState(
        schedule=parse_known(known.get("schedule")),
        tick=_moment(known.get("tick")),
        due_at=_moment(known.get("due_at")),
        caught_up=_moment(known.get("caught_up")),
    )


def _instant(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat()


def _moment(text: str | None) -> datetime | None:
    return None if text is None else aware(datetime.fromisoformat(text))
