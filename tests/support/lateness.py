"""Locks with a schedule, whose ticks a test shifts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django_shedlock.models import LockRecord
from django_shedlock.schedules.cron import Schedule
from tests.support.clocks import daily_far_from_now

HOURLY = Schedule("0 * * * *", "UTC")
"""For tests that set the clocks."""
DAILY = Schedule(daily_far_from_now(), "UTC")
"""For tests that don't."""
UNKNOWN = "every full moon"
"""No schedule of this version."""
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def newest_tick() -> datetime:
    return next(DAILY.ticks_until(datetime.now(UTC)))


def give_schedule(
    name: str,
    *,
    tick: datetime | None,
    succeeded: datetime | None,
    schedule: Schedule = DAILY,
) -> None:
    """Let the lock, which has a record, have run and succeeded so far."""
    due_at = tick if succeeded is None else next(schedule.ticks_after(succeeded))
    LockRecord.objects.filter(name=name).update(
        schedule=str(schedule),
        tick=tick,
        due_at=due_at,
        former_tick=tick,
    )


def be_on_time(name: str) -> datetime:
    """Let the newest tick have succeeded, and return it."""
    tick = newest_tick()
    give_schedule(name, tick=tick, succeeded=tick)
    return tick


def be_overdue_by_unknown_schedule(name: str) -> datetime:
    """Let it be overdue by a schedule of another version, which can't be read here."""
    since = be_overdue(name)
    LockRecord.objects.filter(name=name).update(schedule=UNKNOWN)
    return since


def be_overdue(name: str) -> datetime:
    """Let nothing have succeeded for days, and return since which tick."""
    last = newest_tick() - 3 * DAY
    give_schedule(name, tick=last, succeeded=last)
    return last + DAY
