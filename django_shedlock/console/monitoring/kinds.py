"""The kinds of findings, how urgent they are, and the facts that they are about."""

from enum import StrEnum

from django.db.models import TextChoices
from django.utils.translation import pgettext_lazy

from django_shedlock.locks.status import RunOutcome


class Severity(StrEnum):
    """How bad a finding is: some jobs need a look, or no job can run."""

    WARNING = "warning"
    CRITICAL = "critical"


class Kind(TextChoices):
    """What is found, the most urgent first; those in a lock have a label."""

    UNREACHABLE = "unreachable"
    SILENT = "silent"
    OVERDUE = "overdue", pgettext_lazy("shedlock", "overdue")
    FAILED = "failed", pgettext_lazy("shedlock", "failed")
    TIMED_OUT = "timed out", pgettext_lazy("shedlock", "timed out")
    EXPIRED = "expired", pgettext_lazy("shedlock", "expired")
    LONG = "long", pgettext_lazy("shedlock", "runs too long")
    LOST = "lost", pgettext_lazy("shedlock", "lost")
    ABANDONED = "abandoned", pgettext_lazy("shedlock", "abandoned")
    REQUEST = "request", pgettext_lazy("shedlock", "request not carried out")
    PASSED_OVER = "passed-over", pgettext_lazy("shedlock", "passed over")
    PAUSED = "paused", pgettext_lazy("shedlock", "paused")
    UNREADABLE = "unreadable", pgettext_lazy("shedlock", "unreadable")
    HISTORY = "history", pgettext_lazy("shedlock", "not in the history")
    CLOCK = "clock"
    MORE = "more"

    @property
    def rank(self) -> int:
        """Its place in the order of urgency; 0 is the most urgent."""
        return list(Kind).index(self)

    @property
    def severity(self) -> Severity:
        """Without its store no job runs; all else can wait until working hours."""
        return Severity.CRITICAL if self is Kind.UNREACHABLE else Severity.WARNING

    @property
    def may_still_run(self) -> bool:
        """Whether the job of a lock with such a finding may still run."""
        return self in {Kind.EXPIRED, Kind.LONG, Kind.LOST, Kind.ABANDONED}

    @property
    def is_lasting(self) -> bool:
        """Whether it goes on until somebody ends it; others are about an event."""
        return self in {Kind.SILENT, Kind.OVERDUE, Kind.LONG, Kind.PAUSED}

    @property
    def names_holder(self) -> bool:
        """Whether it says who holds the lock, and since when."""
        return self in {Kind.EXPIRED, Kind.LONG, Kind.PAUSED}


def fact_of(kind: str, what: str) -> str:
    """
    Return the fact that a finding of this kind is about, as one line of text.

    ``what`` is the acquisition, the run, the tick, the request or the pause.
    """
    # The run of an expired lock is abandoned as soon as somebody releases the lock.
    kind = RunOutcome.ABANDONED if kind == Kind.EXPIRED else kind
    return " ".join(f"{kind} {what}".split())
