"""Whether the locks work, for load balancers, uptime checks, and people."""

import hashlib
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from http import HTTPStatus

from django.core.cache import caches
from django.db import connections
from django.http import HttpRequest, JsonResponse

from django_shedlock.clocks import CLOCK_TOLERANCE
from django_shedlock.console.monitoring.findings import Finding, Kind
from django_shedlock.console.monitoring.search import (
    Search,
    aliases_to_search,
    default_grace,
)
from django_shedlock.durations import Duration, parse_duration
from django_shedlock.signals import logger
from django_shedlock.views import MonitoringView

ANSWER_FINDING_LIMIT = 1000
"""For each provider."""


@dataclass(frozen=True)
class Verdict:
    """What a check found, and when, by this host's clock."""

    findings: Sequence[Finding]
    at: float


@dataclass
class HealthCheck:
    """
    What ``Search`` finds, for callers that ask often.

    Without ``grace`` the setting ``SHEDLOCK_GRACE`` counts. A verdict is kept for
    ``keep_for`` in Django's default cache.
    """

    grace: Duration | None = None
    held_for: Duration | None = None
    ignored: Sequence[str] = ()
    clock_tolerance: Duration = CLOCK_TOLERANCE
    keep_for: Duration = timedelta(seconds=5)

    def verdict(self, aliases: Sequence[str]) -> Verdict:
        """
        Return the findings of these providers, and when the oldest was found.

        Raises ``ValueError`` if an option is no duration.
        """
        grace, held_for = self.grace, self.held_for
        search = Search(
            default_grace() if grace is None else parse_duration(grace),
            None if held_for is None else parse_duration(held_for),
            tuple(self.ignored),
            parse_duration(self.clock_tolerance),
        )
        keep_for = parse_duration(self.keep_for)
        if any(each.in_atomic_block for each in connections.all(initialized_only=True)):
            # Only this thread sees what was written in it, as in a TestCase.
            keep_for = timedelta(0)
        verdicts = [_look(search, alias, keep_for) for alias in aliases]
        return Verdict(
            [found for verdict in verdicts for found in verdict.findings],
            min((verdict.at for verdict in verdicts), default=time.time()),
        )


def _look(search: Search, alias: str, keep_for: timedelta) -> Verdict:
    # The errors of the cache don't count.
    text = repr((search, alias, keep_for)).encode()
    key = f"shedlock:health:{hashlib.sha256(text).hexdigest()}"
    with suppress(Exception):
        if keep_for and (kept := caches["default"].get(key)):
            return Verdict(*kept)
    verdict = Verdict(search.verdict([alias])[:ANSWER_FINDING_LIMIT], time.time())
    for found in verdict.findings:
        if found.kind is Kind.UNREACHABLE:
            logger.warning("Could not check the locks: %s", found)
    with suppress(Exception):
        if keep_for:
            kept = (verdict.findings, verdict.at)
            caches["default"].set(key, kept, keep_for.total_seconds())
    return verdict


class HealthView(MonitoringView, HealthCheck):
    """
    Whether all locks work, as JSON: 200 if nothing is found, else 503.

    Anyone gets the status; authorised callers, see ``MonitoringView``, also get the
    findings, at most a thousand of each provider, and their ``age`` in seconds.
    ``provider`` limits it to one provider. For the other options see ``HealthCheck``.
    """

    provider: str | None = None

    def get(
        self, request: HttpRequest, *args: object, **kwargs: object
    ) -> JsonResponse:
        aliases = aliases_to_search() if self.provider is None else [self.provider]
        verdict = self.verdict(aliases)
        findings = verdict.findings
        answer: dict[str, object] = {"status": "not ok" if findings else "ok"}
        is_down = any(found.kind is Kind.UNREACHABLE for found in findings)
        # The users may be in the store that is down.
        if self.is_known if is_down else self.is_allowed:
            answer["findings"] = [
                replace(found, message="").as_dict() for found in findings
            ]
            answer["age"] = round(max(0.0, time.time() - verdict.at), 3)
        status = HTTPStatus.SERVICE_UNAVAILABLE if findings else HTTPStatus.OK
        return JsonResponse(answer, status=status)
