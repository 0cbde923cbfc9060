"""What somebody should have a look at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad it is: jobs that need a look, or no job that can run."""

    WARNING = "warning"
    CRITICAL = "critical"


class Kind(StrEnum):
    """What is found."""

    UNREACHABLE = "unreachable"
    CLOCK = "clock"
    LONG = "long"
    OVERDUE = "overdue"
    EXPIRED = "expired"
    FAILED = "failed"
    LOST = "lost"
    ABANDONED = "abandoned"

    @property
    def summary(self) -> str:
        """What it is about, without a name."""
        return SUMMARIES[self]

    @property
    def severity(self) -> Severity:
        """Without its store no job runs; all else is for the next working hour."""
        is_critical = self is Kind.UNREACHABLE
        return Severity.CRITICAL if is_critical else Severity.WARNING


SUMMARIES = {
    Kind.UNREACHABLE: "The locks can't be read.",
    Kind.CLOCK: "The clocks differ.",
    Kind.LONG: "A job runs for too long.",
    Kind.OVERDUE: "A job is overdue.",
    Kind.EXPIRED: "A lock has expired.",
    Kind.FAILED: "A job failed.",
    Kind.LOST: "A job lost its lock.",
    Kind.ABANDONED: "A worker died.",
}


@dataclass(frozen=True)
class Finding:
    """Something to look at, of a lock or, with ``lock=None``, of the whole store."""

    kind: Kind
    provider: str
    text: str
    lock: str | None = None
