"""For which tick a job is to run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django_shedlock.schedules import Schedule
from django_shedlock.ticks import TickChoice, nearest, newest
from django_shedlock.triggers import Trigger


@dataclass(frozen=True)
class Occasion:
    """
    What starts a job, and its schedule with a time zone, if it has one.

    ``grace`` is how long after its tick a job is overdue.
    """

    trigger: Trigger = Trigger.SCHEDULER
    schedule: Schedule | None = None
    grace: timedelta = timedelta(0)

    @property
    def is_out_of_turn(self) -> bool:
        """Whether no tick of its schedule starts the job now."""
        out_of_turn = self.trigger in {Trigger.OPERATOR, Trigger.CATCH_UP}
        return out_of_turn and self.schedule is not None

    def choice(self, around: datetime) -> TickChoice | None:
        """Return the ticks around the aware instant, or ``None`` without schedule."""
        if self.schedule is None:
            return None
        if self.trigger is Trigger.SCHEDULER:
            return nearest(self.schedule, around)
        return newest(self.schedule, around)

    def due(self, around: datetime) -> TickChoice | None:
        """Return the ticks around the instant as they become due, to be caught up."""
        if self.schedule is None or self.trigger is not Trigger.CATCH_UP:
            return None
        return newest(self.schedule, around, self.grace)
