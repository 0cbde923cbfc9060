"""What somebody should have a look at, in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from fnmatch import fnmatchcase

from django_shedlock.clocks import TOLERANCE, clock_difference
from django_shedlock.durations import format_duration, format_seconds
from django_shedlock.exceptions import LockProviderError
from django_shedlock.outcomes import RunOutcome
from django_shedlock.providers.base import LockProvider
from django_shedlock.states import LockState, LockStatus
from django_shedlock.summaries import LockSummary, summarize


class Severity(StrEnum):
    """How bad it is: jobs that need a look, or no job that can run."""

    WARNING = "warning"
    CRITICAL = "critical"


class Kind(StrEnum):
    """What is found."""

    UNREACHABLE = "unreachable"
    CLOCK = "clock"
    LONG = "long"
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


@dataclass(frozen=True)
class Search:
    """
    What to look for.

    With ``held_for`` a job that runs for longer is found; else one that runs for much
    longer than usual. Locks whose names match a pattern of ``ignored``, as in
    ``"import:*"``, are left out.
    """

    held_for: timedelta | None = None
    ignored: tuple[str, ...] = ()

    def findings(self, provider: LockProvider) -> Iterator[Finding]:
        """Look at the provider's store, its clock, and each of its locks."""
        try:
            yield from find_clock(provider, TOLERANCE)
            summaries = summarize(provider)
        except LockProviderError as error:
            yield Finding(Kind.UNREACHABLE, provider.alias, str(error))
            return
        for summary in summaries:
            if not self._ignores(summary.name):
                yield from self._of_lock(provider, summary)

    def _ignores(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.ignored)

    def _of_lock(
        self, provider: LockProvider, summary: LockSummary
    ) -> Iterator[Finding]:
        found = {
            Kind.LONG: self._long(summary),
            Kind.EXPIRED: _expired(summary),
            Kind.FAILED: _failed(summary),
            Kind.LOST: _lost(summary),
            Kind.ABANDONED: _abandoned(summary),
        }
        for kind, text in found.items():
            if text is not None:
                yield _of_lock(kind, provider, summary.name, text)

    def _long(self, summary: LockSummary) -> str | None:
        status = summary.status
        if status is None:
            return None
        if self.held_for is not None:
            return _too_long(status, self.held_for)
        if not summary.takes_long or summary.usual_duration is None:
            return None
        usual = format_seconds(summary.usual_duration)
        return f"{_running(status)}, usually for {usual}."


def find_clock(provider: LockProvider, tolerance: timedelta) -> Iterator[Finding]:
    """
    Tell if the store's clock and this process's are further apart than that.

    Raises ``LockProviderError`` if the store failed.
    """
    difference = clock_difference(provider.now)
    if abs(difference) > tolerance:
        yield Finding(Kind.CLOCK, provider.alias, _clock(provider, difference))


def find_long(provider: LockProvider, held_for: timedelta) -> Iterator[Finding]:
    """
    Tell of each job that has run for longer than that.

    Raises ``LockProviderError`` if the store failed.
    """
    for status in provider.statuses():
        text = _too_long(status, held_for)
        if text is not None:
            yield _of_lock(Kind.LONG, provider, status.name, text)


def _of_lock(kind: Kind, provider: LockProvider, name: str, text: str) -> Finding:
    return Finding(kind, provider.alias, f"Lock {name!r}: {text}", name)


def _clock(provider: LockProvider, difference: timedelta) -> str:
    direction = "ahead of" if difference > timedelta(0) else "behind"
    return (
        f"The clock of the store of provider {provider.alias!r} is "
        f"{format_duration(abs(difference))} {direction} this host's. Locks are right, "
        "but schedulers start jobs at other times."
    )


def _too_long(status: LockStatus, held_for: timedelta) -> str | None:
    is_running = status.state is LockState.RUNNING
    if not is_running or status.held_for <= held_for:
        return None
    return f"{_running(status)}."


def _running(status: LockStatus) -> str:
    return (
        f"its job has run for {format_seconds(status.held_for)} as {status.locked_by}"
    )


def _expired(summary: LockSummary) -> str | None:
    if summary.state is not LockState.EXPIRED:
        return None
    return (
        f"its lease is over and {summary.locked_by} never released it: the worker "
        "died, or its job runs for longer than lock_at_most_for."
    )


def _failed(summary: LockSummary) -> str | None:
    if summary.last_outcome is not RunOutcome.FAILED:
        return None
    return f"its last run failed with {summary.last_exception_type}{_again(summary)}."


def _lost(summary: LockSummary) -> str | None:
    if summary.last_outcome is not RunOutcome.LOST:
        return None
    return (
        f"its last run lost the lock before it ended{_again(summary)}; it may have run "
        "twice at a time."
    )


def _abandoned(summary: LockSummary) -> str | None:
    # An expired lock says the same of its last run.
    is_told = summary.state is LockState.EXPIRED
    if summary.last_outcome is not RunOutcome.ABANDONED or is_told:
        return None
    return f"the worker of its last run died{_again(summary)}."


def _again(summary: LockSummary) -> str:
    if summary.failures < 2:
        return ""
    return f", and {summary.failures} runs in a row have not succeeded"
