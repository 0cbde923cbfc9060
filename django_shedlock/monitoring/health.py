"""Whether the locks work, for load balancers, uptime checks, and people."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from django.db import Error, connections, transaction
from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase
from django.utils.cache import add_never_cache_headers
from django.utils.crypto import constant_time_compare
from django.views import View

from django_shedlock.clocks import TOLERANCE
from django_shedlock.durations import Duration, parse_duration
from django_shedlock.monitoring.findings import Finding, Kind, find_clock, find_late
from django_shedlock.providers import get_provider, provider_aliases

PERMISSION = "django_shedlock.view_lockrecord"
BEARER = "Bearer "

logger = logging.getLogger("django_shedlock")


class MonitoringView(View):
    """
    A view for machines: never cached, and not in the request's transaction.

    Authorised callers are staff with the permission ``django_shedlock.view_lockrecord``
    and those that send ``Authorization: Bearer`` with ``token``; with ``public``,
    anyone.
    """

    token: str | None = None
    public: bool = False

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Any:
        """See View.as_view(). A store that is down must not end the request early."""
        view: Any = super().as_view(**initkwargs)
        for alias in connections:
            view = transaction.non_atomic_requests(alias)(view)
        return view

    def dispatch(
        self, request: HttpRequest, *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        """Answer, and let nobody cache the answer."""
        response = super().dispatch(request, *args, **kwargs)
        add_never_cache_headers(response)
        return response

    @property
    def is_allowed(self) -> bool:
        """Whether the request may see everything."""
        return self.public or self._has_token() or self._has_permission()

    def _has_token(self) -> bool:
        if not self.token:
            return False
        # Servers decode headers as Latin-1, whatever the client sent.
        header = self.request.headers.get("Authorization", "")
        sent = header.encode("latin-1", errors="replace")
        expected = f"{BEARER}{self.token}".encode(errors="surrogateescape")
        return constant_time_compare(sent, expected)

    def _has_permission(self) -> bool:
        user: Any = getattr(self.request, "user", None)
        try:
            return bool(user and user.is_staff and user.has_perm(PERMISSION))
        except Error:  # the database of users may be down, too
            return False


def find_problems(
    alias: str = "default",
    *,
    clock_tolerance: Duration = TOLERANCE,
    stuck_after: Duration | None = None,
    overdue_after: Duration | None = None,
) -> list[Finding]:
    """
    Return what is wrong with the locks of this provider, even if its store fails.

    The store must answer and have its table, and its clock must be within
    ``clock_tolerance`` of this process's. No job may run for longer than
    ``stuck_after``, or have a tick that has not succeeded after ``overdue_after``;
    without these two options it does not look. Raises ``ValueError`` if an option is
    no duration.
    """
    tolerance = parse_duration(clock_tolerance)
    longest = None if stuck_after is None else parse_duration(stuck_after)
    grace = None if overdue_after is None else parse_duration(overdue_after)
    try:
        provider = get_provider(alias)
        late = find_late(provider, held_for=longest, grace=grace)
        return [*find_clock(provider, tolerance), *late]
    except Exception as error:  # the caller needs an answer
        logger.warning("Could not check the locks of provider %r: %s", alias, error)
        return [Finding(Kind.UNREACHABLE, alias, str(error))]


class HealthView(MonitoringView):
    """
    Whether all locks work, as JSON: 200 if they do, else 503.

    Anyone gets the status; authorised callers, see ``MonitoringView``, also get the
    findings. ``provider`` limits it to one provider. The other options are those of
    ``find_problems()``.
    """

    provider: str | None = None
    clock_tolerance: Duration = TOLERANCE
    stuck_after: Duration | None = None
    overdue_after: Duration | None = None

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> JsonResponse:
        """Return the status, and to authorised callers the findings."""
        problems = list(self._problems())
        answer: dict[str, Any] = {"status": "not ok" if problems else "ok"}
        if self.is_allowed:
            answer["problems"] = [asdict(problem) for problem in problems]
        status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
        return JsonResponse(answer, status=status)

    def _problems(self) -> Iterator[Finding]:
        for alias in provider_aliases() if self.provider is None else [self.provider]:
            yield from find_problems(
                alias,
                clock_tolerance=self.clock_tolerance,
                stuck_after=self.stuck_after,
                overdue_after=self.overdue_after,
            )
