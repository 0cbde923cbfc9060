"""A check for django-health-check."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django.db import connections
from health_check.base import HealthCheck
from health_check.exceptions import ServiceUnavailable, ServiceWarning

from django_shedlock.clocks import TOLERANCE
from django_shedlock.monitoring.findings import Severity
from django_shedlock.monitoring.health import find_problems


@dataclass
class ShedLock(HealthCheck):
    """
    Whether the locks of a provider work; see ``find_problems()`` for the options.

    A store that can't be read is unavailable, all else is a warning. The report names
    no locks, because anyone may see it.
    """

    provider: str = "default"
    clock_tolerance: timedelta = TOLERANCE
    stuck_after: timedelta | None = None
    overdue_after: timedelta | None = None

    def run(self) -> None:
        """Raise ``ServiceUnavailable`` or ``ServiceWarning`` if something is wrong."""
        try:
            problems = find_problems(
                self.provider,
                clock_tolerance=self.clock_tolerance,
                stuck_after=self.stuck_after,
                overdue_after=self.overdue_after,
            )
        finally:
            _close_connections()
        kinds = dict.fromkeys(problem.kind for problem in problems)
        text = " ".join(kind.summary for kind in kinds)
        if any(kind.severity is Severity.CRITICAL for kind in kinds):
            raise ServiceUnavailable(text)
        if kinds:
            raise ServiceWarning(text)


def _close_connections() -> None:
    # The check runs in a thread of its own, where no request closes connections.
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()
