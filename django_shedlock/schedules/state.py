"""Who starts a job, for which tick that is, and whether it may run."""

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Self

from django_shedlock.clocks import aware
from django_shedlock.schedules.cron import Schedule

EARLY_START_LIMIT = timedelta(minutes=1)
"""A scheduler may start a job at most this long before its tick."""


class Trigger(StrEnum):
    """
    What starts a job. It decides whether the job's tick may run.

    ``SCHEDULER`` runs each tick once. ``RETRY`` runs the newest past tick unless it has
    succeeded. ``CATCH_UP`` runs it once if a tick is overdue. ``OPERATOR`` runs it at
    any time, even while ``lock_at_least_for`` keeps the lock.
    """

    SCHEDULER = "scheduler"
    RETRY = "retry"
    CATCH_UP = "catch-up"
    OPERATOR = "operator"


@dataclass(frozen=True)
class Start:
    """
    What starts a run, and why.

    ``asked_at`` is when a queue's message asked for the run, by the clock of the host
    that published it. ``operator`` and ``reason`` are given if a person starts the run.
    If this start carries out a request, ``request`` is when the request was made.
    """

    trigger: Trigger = Trigger.SCHEDULER
    asked_at: datetime | None = None
    operator: str = ""
    reason: str = ""
    request: datetime | None = None


BY_SCHEDULER = Start()


@dataclass(frozen=True)
class Decision:
    """
    Which tick a start is for, and whether its job may run.

    The decision is valid while the store's clock is before ``holds_until``. ``is_new``
    says that no run of that tick or a later one has begun. ``state`` is the state after
    the job has started. If the job does not start, the state stays as it was.
    """

    is_allowed: bool
    is_new: bool
    tick: datetime
    holds_until: datetime
    state: "ScheduleState"


@dataclass(frozen=True)
class ScheduleState:
    """
    What is known about the ticks of a lock's schedule. All instants are aware.

    ``tick`` is the newest tick that was begun, ``due_at`` the first that has not
    succeeded, ``caught_up`` the newest that was run because it was overdue.
    ``schedule`` is the lock's last schedule. It is ``None`` if there was none, or if
    another version wrote one that this version can't read.
    """

    schedule: Schedule | None = None
    tick: datetime | None = None
    due_at: datetime | None = None
    caught_up: datetime | None = None

    def decide(
        self, start: Start, schedule: Schedule, grace: timedelta, now: datetime
    ) -> Decision:
        """
        Decide about a start at ``now``, an instant of the store's clock.

        ``schedule`` must have a time zone. A job is overdue ``grace`` after its tick.
        """
        past, following = schedule.around(now)
        known = self._without_future(now, following)
        # See Note [Which tick a start is for].
        chosen, holds_until = past, following
        if start.asked_at is not None:
            # The publisher's clock may be ahead, but no message asks in the future.
            asked_at = min(start.asked_at, now)
            chosen, _ = _of_scheduler(asked_at, *schedule.around(asked_at))
        elif start.trigger is Trigger.SCHEDULER:
            chosen, holds_until = _of_scheduler(now, past, following)
        is_new = known.tick is None or known.tick < chosen
        tick = max(chosen, known.tick or chosen)
        is_allowed, caught_up = is_new, known.caught_up
        if start.trigger is Trigger.OPERATOR:
            is_allowed = True
        elif start.trigger is Trigger.RETRY:
            is_allowed = is_new or known.due_at is None or known.due_at <= tick
        elif start.trigger is Trigger.CATCH_UP:
            overdue, next_overdue = schedule.around(now - grace)
            is_allowed = (
                known.due_at is not None
                and known.due_at <= overdue
                and (known.tick is None or known.tick <= overdue)
                and (known.caught_up is None or known.caught_up < overdue)
            )
            caught_up = tick
            holds_until = min(holds_until, next_overdue + grace)
        due_at = known.due_at or chosen
        if is_new:
            # The new tick has not succeeded, whatever an older schedule says.
            due_at = min(due_at, chosen)
        state = ScheduleState(schedule, tick, due_at, caught_up)
        return Decision(is_allowed, is_new, tick, holds_until, state)

    def after_success(self) -> Self:
        """Return the state after the run of the newest tick has succeeded."""
        if self.schedule is None or self.tick is None:
            return self
        return replace(self, due_at=next(self.schedule.ticks_after(self.tick)))

    # Note [A schedule that changes]
    # Two versions of a project may run side by side for days and register two schedules
    # in turn. So ticks that are due stay due. A registration also keeps an earlier
    # ``due_at`` if its own schedule has missed a tick since the last start. So no
    # registration puts off all of the first ticks after that start. If its schedule has
    # missed no tick, the schedule was changed, and its own next tick is due.
    def registered(
        self, schedule: Schedule, now: datetime, locked_at: datetime
    ) -> Self:
        """
        Return the state with this schedule. Ticks that are due stay due.

        ``now`` is an instant of the store's clock. ``locked_at`` is when the lock was
        last acquired, or when its record was created if it never was.
        """
        if self.schedule == schedule:
            return self
        following = next(schedule.ticks_after(now))
        known = self._without_future(now, following)
        last_start = min(known.tick or locked_at, now)
        has_missed = next(schedule.ticks_after(last_start)) <= now
        due_at = following
        if known.due_at is not None and (known.due_at <= now or has_missed):
            due_at = min(known.due_at, following)
        return replace(known, schedule=schedule, due_at=due_at)

    def overdue_since(self, now: datetime, grace: timedelta) -> datetime | None:
        """Return the first tick that has not succeeded, if it is overdue."""
        is_overdue = self.due_at is not None and self.due_at <= now - grace
        return self.due_at if is_overdue else None

    def was_started(self, now: datetime, grace: timedelta) -> bool:
        """Return whether the newest tick up to ``now - grace`` was begun."""
        if self.schedule is None or self.tick is None:
            return False
        return self.tick >= next(self.schedule.ticks_until(now - grace))

    def next_tick(self, now: datetime) -> datetime | None:
        """Return the tick to run next after ``now``; ``None`` without a schedule."""
        if self.schedule is None:
            return None
        following = next(self.schedule.ticks_after(now))
        tick = self._without_future(now, following).tick
        return next(self.schedule.ticks_after(max(tick or now, now)))

    def _without_future(self, now: datetime, following: datetime) -> Self:
        # A tick that is too far ahead was written while the store's clock was wrong. It
        # must not prevent the next ticks from running. But the clock may be set back a
        # little: by two minutes, or by less than an interval.
        latest = max(now + 2 * EARLY_START_LIMIT, following)
        tick, caught_up = (
            None if moment is not None and moment > latest else moment
            for moment in (self.tick, self.caught_up)
        )
        return replace(self, tick=tick, caught_up=caught_up)


# Note [Which tick a start is for]
# Most starts are late: they wait in a queue, for a lock, or for a busy host. Few are
# early, because clocks differ by milliseconds. So a start belongs to the newest past
# tick. Only a scheduler may start shortly before its tick: at most a quarter of the
# interval, and at most a minute. A late start never uses up a future tick.
def _of_scheduler(
    now: datetime, past: datetime, following: datetime
) -> tuple[datetime, datetime]:
    early = following - min((following - past) / 4, EARLY_START_LIMIT)
    return (following, following) if now >= early else (past, early)


def parse_known(schedule: str | None) -> Schedule | None:
    """
    Return the schedule whose ``str()``, with a time zone, is this text.

    Return ``None`` without a text, or if another version or program wrote one that this
    version can't read.
    """
    expression, _, time_zone = (schedule or "").rpartition(" ")
    with suppress(ValueError):
        return Schedule(expression, time_zone) if schedule else None
    return None


def to_text(state: ScheduleState) -> str:
    """Return the state as JSON; an empty text if nothing is known about any tick."""
    known = {"schedule": str(state.schedule)} if state.schedule else {}
    for name in ("tick", "due_at", "caught_up"):
        if (moment := getattr(state, name)) is not None:
            known[name] = moment.astimezone(UTC).isoformat()
    return json.dumps(known) if known else ""


def from_text(text: str) -> ScheduleState:
    """Return the state of a text by ``to_text()``; raise ``ValueError`` for another."""
    known = json.loads(text) if text else {}
    if not isinstance(known, dict) or not all(
        isinstance(value, str | None) for value in known.values()
    ):
        raise ValueError(f"{text!r} is no state of a schedule")
    instants = {
        name: aware(datetime.fromisoformat(known[name]))
        for name in ("tick", "due_at", "caught_up")
        if known.get(name) is not None
    }
    return ScheduleState(parse_known(known.get("schedule")), **instants)
