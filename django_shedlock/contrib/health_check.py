"""A check for django-health-check."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django.db import connections
from health_check.base import HealthCheck as BaseHealthCheck
from health_check.exceptions import ServiceUnavailable, ServiceWarning

from django_shedlock.clocks import TOLERANCE
from django_shedlock.console.monitoring.findings import Severity
from django_shedlock.console.monitoring.health import DEADLINE, KEEP_FOR, HealthCheck


@dataclass
class ShedLock(BaseHealthCheck):
    """
    Whether the locks of a provider work; see ``HealthCheck`` for the options.

    A store that can't be read is unavailable, all else is a warning. The report names
    no locks, because anyone may see it. A store that has not answered after
    ``deadline`` is unavailable; what is found is kept for ``keep_for``.
    """

    provider: str = "default"
    clock_tolerance: timedelta = TOLERANCE
    stuck_after: timedelta | None = None
    overdue_after: timedelta | None = None
    keep_for: timedelta = KEEP_FOR
    deadline: timedelta = DEADLINE

    def run(self) -> None:
        """Raise ``ServiceUnavailable`` or ``ServiceWarning`` if something is wrong."""
        try:
            check = HealthCheck(
                self.clock_tolerance,
                self.stuck_after,
                self.overdue_after,
                keep_for=self.keep_for,
                deadline=self.deadline,
            )
            problems = check.verdict([self.provider]).findings
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
