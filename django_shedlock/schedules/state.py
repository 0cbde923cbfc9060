"""Who starts a job, for which tick that is, and whether it may run."""

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import islice, takewhile
from typing import Self

from django_shedlock.clocks import aware
from django_shedlock.schedules.cron import Schedule

EARLY_START_LIMIT = timedelta(minutes=1)
"""A scheduler may start a job at most this long before its tick."""
PASSED_OVER_LIMIT = 100
"""So many ticks that were passed over are counted at most."""


class Trigger(StrEnum):
    """
    What starts a job. It decides whether the job's tick may run.

    ``SCHEDULER`` runs each tick once. ``RETRY`` runs the newest past tick unless it has
    succeeded. ``CATCH_UP`` runs it if a tick is overdue that was never begun.
    ``OPERATOR`` runs it at any time, even while ``lock_at_least_for`` keeps the lock.
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
    ``acquisition`` is the random part of the identity that the acquisition gets;
    without it the lock draws one. With ``rerun``, a tick whose body was interrupted or
    killed may be begun once more.
    """

    trigger: Trigger = Trigger.SCHEDULER
    asked_at: datetime | None = None
    operator: str = ""
    reason: str = ""
    request: datetime | None = None
    acquisition: str = ""
    rerun: bool = False


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

    ``tick`` is the newest tick that was begun or is not owed, ``due_at`` the first that
    has not succeeded. ``former_tick`` is what ``tick`` was before the last acquisition,
    so a tick can be given back. ``repeated_tick`` is the last tick that was given back
    because its body was interrupted or killed. ``schedule`` is the lock's last
    schedule. It is ``None`` if there was none, or if another version wrote one that
    this version can't read.
    """

    schedule: Schedule | None = None
    tick: datetime | None = None
    due_at: datetime | None = None
    former_tick: datetime | None = None
    repeated_tick: datetime | None = None

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
        is_allowed = is_new
        if start.trigger is Trigger.OPERATOR:
            is_allowed = True
        elif start.trigger is Trigger.RETRY:
            is_allowed = is_new or known.due_at is None or known.due_at <= tick
        elif start.trigger is Trigger.CATCH_UP:
            overdue, next_overdue = schedule.around(now - grace)
            is_allowed = (
                known.due_at is not None
                and known.due_at <= overdue
                and (known.tick is None or known.tick < overdue)
            )
            holds_until = min(holds_until, next_overdue + grace)
        due_at = known.due_at or chosen
        if is_new:
            # The new tick has not succeeded, whatever an older schedule says.
            due_at = min(due_at, chosen)
        state = ScheduleState(schedule, tick, due_at, self.tick, self.repeated_tick)
        return Decision(is_allowed, is_new, tick, holds_until, state)

    def after_success(self) -> Self:
        """Return the state after the run of the newest tick has succeeded."""
        if self.schedule is None or self.tick is None:
            return self
        return replace(self, due_at=next(self.schedule.ticks_after(self.tick)))

    def given_back(self) -> Self:
        """Return the state after a run whose body never began: its tick is open."""
        return replace(self, tick=self.former_tick)

    def given_back_once(self) -> Self:
        """
        Return the state after a run whose body was interrupted or killed.

        Its tick is open again, unless it was given back before, or a former acquisition
        had begun it as well.
        """
        if self.tick is None or self.tick in (self.former_tick, self.repeated_tick):
            return self
        return replace(self, tick=self.former_tick, repeated_tick=self.tick)

    # Note [A schedule that changes]
    # A new schedule owes only ticks to come. But two versions of a project may run side
    # by side for days and register two schedules in turn. So what both schedules have
    # stays owed, and ticks that are due stay due. A registration also keeps an earlier
    # ``due_at`` if its own schedule has missed a tick since the last start. So no
    # registration puts off all of the first ticks after that start. If its schedule has
    # missed no tick, the schedule was changed, and its own next tick is due.
    def registered(
        self,
        schedule: Schedule,
        now: datetime,
        locked_at: datetime,
        since: datetime | None = None,
    ) -> Self:
        """
        Return the state with this schedule, which owes the ticks after ``since``.

        ``now`` is an instant of the store's clock, and ``since`` an earlier one, or
        ``now`` without it. ``locked_at`` is when the lock was last acquired, or when
        its record was created if it never was.
        """
        if self.schedule == schedule:
            return self
        past, following = schedule.around(min(since or now, now))
        known = self._without_future(now, schedule.around(now)[1])
        # Not from ``tick``: a registration sets it, and that is no start.
        has_missed = next(schedule.ticks_after(min(locked_at, now))) <= now
        due_at, tick = following, known.tick
        if known.due_at is not None and (known.due_at <= now or has_missed):
            due_at = min(known.due_at, following)
        is_known_tick = (
            self.schedule is not None and self.schedule.around(past)[0] == past
        )
        if not is_known_tick and (tick is None or tick < past):
            tick = past
        return replace(
            known, schedule=schedule, due_at=due_at, tick=tick, former_tick=tick
        )

    def paused_until(
        self, end: datetime, schedule: Schedule | None, now: datetime | None = None
    ) -> Self:
        """
        Return the state after a pause: it owes only ticks after the pause's ``end``.

        ``now`` is an instant of the store's clock, and the ``end`` if it is missing: a
        registration after the pause may have written a newer tick.
        """
        if schedule is None:
            return self
        past, following = schedule.around(end)
        known = self._without_future(now or end, schedule.around(now or end)[1])
        tick, due_at = max(known.tick or past, past), known.due_at
        if due_at is None or due_at < following:
            due_at = following
        return replace(self, tick=tick, former_tick=tick, due_at=due_at)

    def owed_tick(
        self, schedule: Schedule, grace: timedelta, now: datetime, since: datetime
    ) -> datetime | None:
        """
        Return the tick that a scheduler has to begin at ``now``; ``None`` if none is.

        It is the newest past tick, unless it was begun, is ``grace`` old, or came
        before ``since`` and is not due. Both instants are of the store's clock, and
        the scheduler watches the ticks from ``since`` on.
        """
        past, following = schedule.around(now)
        known = self._without_future(now, following)
        if past <= now - grace or (known.tick is not None and known.tick >= past):
            return None
        is_due = known.due_at is not None and known.due_at <= past
        return past if past >= since or is_due else None

    def overdue_since(self, now: datetime, grace: timedelta) -> datetime | None:
        """Return the first tick that has not succeeded, if it is overdue."""
        is_overdue = self.due_at is not None and self.due_at <= now - grace
        return self.due_at if is_overdue else None

    def passed_over(self) -> list[datetime]:
        """
        Return the ticks that the newest acquisition passed over, the oldest first.

        They lie between the tick before it and its own, so they were never begun, but
        for one that was given back. At most ``PASSED_OVER_LIMIT`` are returned. They
        are counted by the schedule that the lock has now: see Note [A schedule that
        changes].
        """
        newest, former = self.tick, self.former_tick
        if self.schedule is None or newest is None or former is None:
            return []
        between = takewhile(newest.__gt__, self.schedule.ticks_after(former))
        ticks = islice(between, PASSED_OVER_LIMIT)
        return [tick for tick in ticks if tick != self.repeated_tick]

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
        is_future = self.tick is not None and self.tick > latest
        return replace(self, tick=None) if is_future else self


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


STATE_INSTANTS = ("tick", "due_at", "former_tick", "repeated_tick")


def to_text(state: ScheduleState) -> str:
    """Return the state as JSON; an empty text if nothing is known about any tick."""
    known = {"schedule": str(state.schedule)} if state.schedule else {}
    for name in STATE_INSTANTS:
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
        for name in STATE_INSTANTS
        if known.get(name) is not None
    }
    return ScheduleState(parse_known(known.get("schedule")), **instants)
