"""What starts a job, and for which schedule."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypedDict

from django_shedlock.schedules.cron import Schedule


class StartedBy(TypedDict, total=False):
    """The name of the operator who starts a job, for people, and any reason."""

    operator: str
    reason: str


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
    What starts a job, and its schedule with a time zone, if it has one.

    A job is overdue ``grace`` after its tick. ``asked_at`` is when a queue's message
    asked for the start, by the clock of the host that published it. ``operator`` and
    ``reason`` tell who started it and why, if a person did.
    """

    trigger: Trigger = Trigger.SCHEDULER
    schedule: Schedule | None = None
    grace: timedelta = timedelta(0)
    asked_at: datetime | None = None
    operator: str = ""
    reason: str = ""

    @property
    def is_out_of_turn(self) -> bool:
        """Whether something other than a tick starts a job that has a schedule."""
        out_of_turn = self.trigger in {Trigger.OPERATOR, Trigger.CATCH_UP}
        return out_of_turn and self.schedule is not None
