"""What is to be known of each lock at a glance, for metrics and health checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django_shedlock.configuration import ZERO
from django_shedlock.last_runs import last_runs
from django_shedlock.outcomes import RunOutcome
from django_shedlock.providers.base import LockProvider
from django_shedlock.schedules import Schedule
from django_shedlock.states import LockState, LockStatus, is_unusual


@dataclass(frozen=True)
class LockSummary:
    """
    One lock with its last runs, at one instant of the store's clock.

    ``status`` is ``None`` if only runs are left of the lock. The last run is the last
    one that ended; the usual duration is that of the last one that succeeded.
    ``failures`` counts those that did not since then, at most
    ``last_runs.MOST_FAILURES``.
    """

    name: str
    status: LockStatus | None = None
    last_success: datetime | None = None
    usual_duration: timedelta | None = None
    last_outcome: RunOutcome | None = None
    last_duration: timedelta | None = None
    last_exception_type: str = ""
    failures: int = 0

    @property
    def state(self) -> LockState | None:
        """The state of the lock's record, if it has one."""
        return self.status.state if self.status else None

    @property
    def locked_by(self) -> str:
        """Who took the lock last, if that is known."""
        return self.status.locked_by if self.status else ""

    @property
    def held_for(self) -> timedelta:
        """How long ago a held lock was taken; zero if it is not held."""
        return self.status.held_for if self.status else ZERO

    @property
    def is_held(self) -> bool:
        """Whether nobody can acquire the lock now."""
        return self.state is not None and self.state.is_held

    @property
    def schedule(self) -> Schedule | None:
        """The schedule that the lock had last, with a time zone."""
        return self.status.schedule if self.status else None

    @property
    def next_tick(self) -> datetime | None:
        """The tick to be run next; ``None`` without a schedule."""
        return self.status.next_tick if self.status else None

    def overdue_since(self, grace: timedelta) -> datetime | None:
        """Return the first tick that should have succeeded, unless the job runs."""
        return self.status.overdue_since(grace) if self.status else None

    def overdue_for(self, grace: timedelta) -> timedelta:
        """Return how long ago that tick was; zero if none is late."""
        return self.status.overdue_for(grace) if self.status else ZERO

    @property
    def takes_long(self) -> bool:
        """Whether the job runs for much longer than it usually does."""
        return self.status is not None and is_unusual(
            self.status.state, self.held_for, self.usual_duration
        )

    @property
    def takes_as_usual(self) -> bool:
        """Whether the job has run for no longer than when it last succeeded."""
        usual = self.usual_duration
        return usual is not None and self.held_for <= usual


def summarize(provider: LockProvider) -> Sequence[LockSummary]:
    """
    Return all locks of the provider, in the order of their names.

    Three statements, however many locks and runs there are; each lock costs some
    look-ups in an index. Without the table of runs their columns are empty. Raises
    ``LockProviderError`` if the store failed.
    """
    columns: dict[str, dict[str, Any]] = {
        status.name: {"status": status} for status in provider.statuses()
    }
    for last in last_runs(provider):
        columns.setdefault(last["name"], {}).update(_of_runs(last))
    return [LockSummary(name=name, **columns[name]) for name in sorted(columns)]


def _of_runs(last: dict[str, Any]) -> dict[str, Any]:
    outcome = last["last_outcome"]
    return {
        "last_success": last["last_success"],
        "usual_duration": last["usual_duration"],
        "last_outcome": None if outcome is None else RunOutcome(outcome),
        "last_duration": last["last_duration"],
        "last_exception_type": last["last_exception_type"] or "",
        "failures": last["failures"],
    }
