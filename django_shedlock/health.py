"""Whether the locks work: for load balancers, uptime checks, and people."""

from __future__ import annotations

import logging
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, JsonResponse

from django_shedlock.access import MonitoringView
from django_shedlock.clocks import TOLERANCE
from django_shedlock.durations import Duration, parse_duration
from django_shedlock.findings import Finding, Kind
from django_shedlock.providers import get_provider, provider_aliases
from django_shedlock.searches import find_clock, find_late

logger = logging.getLogger("django_shedlock")


def find_problems(
    alias: str = "default",
    *,
    clock_tolerance: Duration = TOLERANCE,
    stuck_after: Duration | None = None,
    overdue_after: Duration | None = None,
) -> list[Finding]:
    """
    Return what is wrong with the locks of this provider, also if its store fails.

    Its store must answer and have its table, its clock must be within
    ``clock_tolerance`` of this process's. If they are given, no job may run for longer
    than ``stuck_after``, or have a tick of its schedule that has not succeeded for
    longer than ``overdue_after``. Raises ``ValueError`` if these are no durations.
    """
    tolerance = parse_duration(clock_tolerance)
    longest = None if stuck_after is None else parse_duration(stuck_after)
    grace = None if overdue_after is None else parse_duration(overdue_after)
    try:
        provider = get_provider(alias)
        late = find_late(provider, held_for=longest, grace=grace)
        return [*find_clock(provider, tolerance), *late]
    except Exception as error:  # the one who asks has to get an answer
        logger.warning("The locks of provider %r: %s", alias, error)
        return [Finding(Kind.UNREACHABLE, alias, str(error))]


class HealthView(MonitoringView):
    """
    Whether all locks work, as JSON: 200 if they do, else 503.

    Everybody learns only that. Who may see everything, as ``MonitoringView`` tells,
    also gets the problems. ``provider`` asks for one provider only. For the others
    see ``find_problems()``.
    """

    provider: str | None = None
    clock_tolerance: Duration = TOLERANCE
    stuck_after: Duration | None = None
    overdue_after: Duration | None = None

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> JsonResponse:
        """Return the status, and the problems to whom they may concern."""
        problems = [problem for alias in self._aliases() for problem in self._of(alias)]
        answer: dict[str, Any] = {"status": "not ok" if problems else "ok"}
        if self.is_allowed:
            answer["problems"] = [asdict(problem) for problem in problems]
        status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
        return JsonResponse(answer, status=status)

    def _aliases(self) -> list[str]:
        return provider_aliases() if self.provider is None else [self.provider]

    def _of(self, alias: str) -> list[Finding]:
        return find_problems(
            alias,
            clock_tolerance=self.clock_tolerance,
            stuck_after=self.stuck_after,
            overdue_after=self.overdue_after,
        )
