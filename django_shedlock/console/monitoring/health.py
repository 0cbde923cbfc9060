"""Whether the locks work, for load balancers, uptime checks, and people."""

import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from http import HTTPStatus

from django.core.cache import caches
from django.db import connections
from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase

from django_shedlock.clocks import CLOCK_TOLERANCE
from django_shedlock.console.monitoring.findings import Finding
from django_shedlock.console.monitoring.kinds import Kind, Severity
from django_shedlock.console.monitoring.search import (
    Search,
    default_grace,
    open_findings,
)
from django_shedlock.durations import Duration, parse_duration
from django_shedlock.providers import aliases_to_ask
from django_shedlock.signals import logger
from django_shedlock.views import MonitoringView

ANSWER_FINDING_LIMIT = 1000
"""For each provider."""


@dataclass(frozen=True)
class Verdict:
    """
    What a check found, and when, by this host's clock.

    It ``fails`` if one of the findings is as severe as ``fail_on``, or more severe.
    """

    findings: Sequence[Finding]
    at: float
    fail_on: Severity = Severity.WARNING

    @property
    def fails(self) -> bool:
        """Whether a finding is severe enough."""
        order = list(Severity)
        severe = order[order.index(self.fail_on) :]
        return any(found.kind.severity in severe for found in self.findings)


@dataclass
class HealthCheck:
    """
    What ``Search`` finds, for callers that ask often.

    Without ``grace`` the setting ``SHEDLOCK_GRACE`` counts. A verdict is kept for
    ``keep_for`` in Django's default cache, and fails if it has a finding as severe as
    ``fail_on``, ``"warning"`` or ``"critical"``. Raises ``ValueError`` if an option is
    wrong.
    """

    grace: Duration | None = None
    held_for: Duration | None = None
    ignored: Sequence[str] = ()
    clock_tolerance: Duration = CLOCK_TOLERANCE
    keep_for: Duration = timedelta(seconds=5)
    fail_on: str = Severity.WARNING

    def __post_init__(self) -> None:
        self.check_options()

    def check_options(self) -> None:
        """Raise ``ValueError`` if an option is wrong."""
        for option in ("grace", "held_for", "clock_tolerance", "keep_for"):
            value = getattr(self, option)
            if value is not None or option in {"clock_tolerance", "keep_for"}:
                self._check_duration(option, value)
        if isinstance(self.ignored, str):  # as patterns, "*" among its characters
            raise ValueError(
                f"ignored={self.ignored!r} must be a list: [{self.ignored!r}]"
            )
        known = [severity.value for severity in Severity]
        if self.fail_on not in known:
            choices = " or ".join(map(repr, known))
            raise ValueError(f"fail_on={self.fail_on!r} must be {choices}")

    @staticmethod
    def _check_duration(option: str, value: Duration) -> None:
        try:
            duration = parse_duration(value)
        except ValueError as error:
            raise ValueError(f"{option}: {error}") from error
        if duration < timedelta(0):
            raise ValueError(f"{option}={value!r} must not be negative")

    def verdict(self, aliases: Sequence[str]) -> Verdict:
        """Return the findings of these providers, and when the oldest was found."""
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
        looks = [_look(search, alias, keep_for) for alias in aliases]
        return Verdict(
            [found for findings, _ in looks for found in findings],
            min((at for _, at in looks), default=time.time()),
            Severity(self.fail_on),
        )


def _look(
    search: Search, alias: str, keep_for: timedelta
) -> tuple[list[Finding], float]:
    """Return the findings of a provider, and when they were found."""
    # The errors of the cache don't count.
    text = repr((search, alias, keep_for)).encode()
    key = f"shedlock:health:{hashlib.sha256(text).hexdigest()}"
    with suppress(Exception):
        if keep_for and (kept := caches["default"].get(key)):
            findings, at = kept
            return findings, at
    found = open_findings(search.verdict([alias]))
    looked = found[:ANSWER_FINDING_LIMIT], time.time()
    for finding in found:
        if finding.kind is Kind.UNREACHABLE:
            logger.warning("Could not check the locks: %s", finding)
    with suppress(Exception):
        if keep_for:
            caches["default"].set(key, looked, keep_for.total_seconds())
    return looked


class HealthView(MonitoringView, HealthCheck):
    """
    Whether all locks work, as JSON: 200, or 503 for a finding as bad as ``fail_on``.

    Anyone gets the status; authorised callers, see ``MonitoringView``, also get the
    findings, at most a thousand of each provider, and their ``age`` in seconds.
    ``provider`` limits it to one provider. For the other options see ``HealthCheck``.
    """

    provider: str | None = None

    @classmethod
    def as_view(cls, **initkwargs: object) -> Callable[..., HttpResponseBase]:
        """Return the view; raise ``ValueError`` if an option is wrong."""
        view = super().as_view(**initkwargs)
        cls(**initkwargs).check_options()
        return view

    def get(
        self, request: HttpRequest, *args: object, **kwargs: object
    ) -> JsonResponse:
        aliases = aliases_to_ask() if self.provider is None else [self.provider]
        verdict = self.verdict(aliases)
        findings = verdict.findings
        answer: dict[str, object] = {"status": "not ok" if verdict.fails else "ok"}
        is_down = any(found.kind is Kind.UNREACHABLE for found in findings)
        # The users may be in the store that is down.
        if self.is_known if is_down else self.is_allowed:
            answer["findings"] = [
                replace(found, message="").as_dict() for found in findings
            ]
            answer["age"] = round(max(0.0, time.time() - verdict.at), 3)
        status = HTTPStatus.SERVICE_UNAVAILABLE if verdict.fails else HTTPStatus.OK
        return JsonResponse(answer, status=status)
