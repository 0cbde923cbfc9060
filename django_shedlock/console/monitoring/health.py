"""Whether the locks work, for load balancers, uptime checks, and people."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from itertools import chain, islice
from typing import Any

from django.db import Error, connections, transaction
from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase
from django.utils.cache import add_never_cache_headers
from django.utils.crypto import constant_time_compare
from django.views import View

from django_shedlock.clocks import TOLERANCE
from django_shedlock.console.monitoring.findings import (
    Finding,
    Kind,
    find_clock,
    find_late,
)
from django_shedlock.console.monitoring.verdicts import Verdict, verdicts
from django_shedlock.durations import Duration, format_duration, parse_duration
from django_shedlock.providers import get_provider, provider_aliases

PERMISSION = "django_shedlock.view_lockrecord"
BEARER = "Bearer "
KEEP_FOR = timedelta(seconds=5)
DEADLINE = timedelta(seconds=5)
MOST = 1000
"""Findings that a health check tells of at the most."""

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
    limit: int | None = None,
) -> list[Finding]:
    """
    Return what is wrong with the locks of this provider, even if its store fails.

    The store must answer and have its table, and its clock must be within
    ``clock_tolerance`` of this process's. No job may run for longer than
    ``stuck_after``, or have a tick that has not succeeded after ``overdue_after``;
    without these two options it does not look. With ``limit`` it stops after so many.
    Raises ``ValueError`` if an option is no duration.
    """
    tolerance = parse_duration(clock_tolerance)
    longest = None if stuck_after is None else parse_duration(stuck_after)
    grace = None if overdue_after is None else parse_duration(overdue_after)
    try:
        provider = get_provider(alias)
        clock = find_clock(provider, tolerance)
        late = find_late(provider, held_for=longest, grace=grace, limit=limit)
        return list(islice(chain(clock, late), limit))
    except Exception as error:  # the caller needs an answer
        logger.warning("Could not check the locks of provider %r: %s", alias, error)
        return [Finding(Kind.UNREACHABLE, alias, None, str(error))]


@dataclass(frozen=True)
class HealthCheck:
    """
    What to look for, see ``find_problems()``, and how long to wait for it.

    The check runs in a thread of its own, and what it finds is kept for ``keep_for``. A
    store that has not answered after ``deadline`` is unreachable. Raises ``ValueError``
    if an option is no duration.
    """

    clock_tolerance: Duration = TOLERANCE
    stuck_after: Duration | None = None
    overdue_after: Duration | None = None
    limit: int = MOST
    keep_for: Duration = KEEP_FOR
    deadline: Duration = DEADLINE

    def __post_init__(self) -> None:
        # Here and not in the thread, whose end would look like a store that hangs.
        given = (self.clock_tolerance, self.stuck_after, self.overdue_after)
        for option in (*given, self.keep_for, self.deadline):
            if option is not None:
                parse_duration(option)

    def verdict(self, aliases: Sequence[str]) -> Verdict:
        """Return the findings of these providers, and the age of the oldest."""
        if _is_in_transaction():
            # Only this thread sees what was written in it, as in a TestCase.
            return Verdict([each for alias in aliases for each in self._find(alias)])
        keep_for = parse_duration(self.keep_for)
        for alias in aliases:
            find = partial(self._find, alias)
            verdicts.begin((self, alias), find, keep_for)
        found = list(map(self._wait, aliases))
        findings = [finding for each in found for finding in each.findings]
        now = time.monotonic()
        return Verdict(findings, min((each.at for each in found), default=now))

    def _find(self, alias: str) -> list[Finding]:
        return find_problems(
            alias,
            clock_tolerance=self.clock_tolerance,
            stuck_after=self.stuck_after,
            overdue_after=self.overdue_after,
            limit=self.limit,
        )

    def _wait(self, alias: str) -> Verdict:
        deadline = parse_duration(self.deadline)
        verdict = verdicts.wait((self, alias), deadline)
        if verdict is not None:
            return verdict
        text = (
            f"The store of provider {alias!r} has not answered within "
            f"{format_duration(deadline)}: it hangs or, in a database, another "
            "transaction has locked its table."
        )
        logger.warning("Could not check the locks of provider %r: %s", alias, text)
        return Verdict([Finding(Kind.UNREACHABLE, alias, None, text)])


def _is_in_transaction() -> bool:
    used = connections.all(initialized_only=True)
    return any(connection.in_atomic_block for connection in used)


class HealthView(MonitoringView):
    """
    Whether all locks work, as JSON: 200 if they do, else 503.

    Anyone gets the status; authorised callers, see ``MonitoringView``, also get the
    findings, a thousand of each provider at the most, and their ``age`` in seconds.
    ``provider`` limits it to one provider. For the other options see ``HealthCheck``.
    """

    provider: str | None = None
    clock_tolerance: Duration = TOLERANCE
    stuck_after: Duration | None = None
    overdue_after: Duration | None = None
    keep_for: Duration = KEEP_FOR
    deadline: Duration = DEADLINE

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> JsonResponse:
        """Return the status, and to authorised callers the findings."""
        # One finding is enough for the others, of whom there may be many.
        verdict = self._verdict(MOST if self._is_known else 1)
        is_told = self._is_known
        if not is_told and not _is_down(verdict) and self.is_allowed:
            verdict, is_told = self._verdict(MOST), True
        findings = verdict.findings
        answer: dict[str, Any] = {"status": "not ok" if findings else "ok"}
        if is_told:
            answer["findings"] = [asdict(found) for found in findings]
            answer["age"] = round(verdict.age.total_seconds(), 3)
        status = HTTPStatus.SERVICE_UNAVAILABLE if findings else HTTPStatus.OK
        return JsonResponse(answer, status=status)

    @property
    def _is_known(self) -> bool:
        # Without a question to a database, which may hang.
        return self.public or self._has_token()

    def _verdict(self, limit: int) -> Verdict:
        check = HealthCheck(
            self.clock_tolerance,
            self.stuck_after,
            self.overdue_after,
            limit,
            self.keep_for,
            self.deadline,
        )
        aliases = provider_aliases() if self.provider is None else [self.provider]
        return check.verdict(aliases)


def _is_down(verdict: Verdict) -> bool:
    return any(found.kind is Kind.UNREACHABLE for found in verdict.findings)
