"""A check for django-health-check."""

from dataclasses import dataclass

from health_check.base import HealthCheck as BaseHealthCheck
from health_check.exceptions import ServiceUnavailable, ServiceWarning

from django_shedlock.console.monitoring.findings import Kind, Severity
from django_shedlock.console.monitoring.health import HealthCheck

SUMMARIES = {
    Kind.UNREACHABLE: "The locks can't be read.",
    Kind.OVERDUE: "A job is overdue.",
    Kind.FAILED: "A job failed.",
    Kind.EXPIRED: "A lock has expired.",
    Kind.LONG: "A job runs for too long.",
    Kind.LOST: "A job lost its lock.",
    Kind.ABANDONED: "A run has not reported its end.",
    Kind.PAUSED: "A job is paused without an end.",
    Kind.UNREADABLE: "A record can't be read.",
    Kind.HISTORY: "The history lacks a run, or is never pruned.",
    Kind.CLOCK: "The clocks differ.",
    Kind.MORE: "There are more findings.",
}
"""The text for each kind, which names no lock."""


@dataclass
class ShedLock(HealthCheck, BaseHealthCheck):
    """
    Whether the locks of a provider work; see ``HealthCheck`` for the other options.

    A store that can't be read is unavailable, all else is a warning. The report names
    no locks, because anyone may see it.
    """

    provider: str = "default"

    def run(self) -> None:
        """Raise ``ServiceUnavailable`` or ``ServiceWarning`` if something is wrong."""
        findings = self.verdict([self.provider]).findings
        kinds = dict.fromkeys(found.kind for found in findings)
        text = " ".join(SUMMARIES[kind] for kind in kinds)
        if any(kind.severity is Severity.CRITICAL for kind in kinds):
            raise ServiceUnavailable(text)
        if kinds:
            raise ServiceWarning(text)
