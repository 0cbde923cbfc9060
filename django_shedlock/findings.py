"""What somebody should have a look at, in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from fnmatch import fnmatchcase

from django.utils import timezone

from django_shedlock.durations import format_duration, format_seconds
from django_shedlock.exceptions import LockProviderError
from django_shedlock.outcomes import RunOutcome
from django_shedlock.providers.base import LockProvider
from django_shedlock.states import LockState
from django_shedlock.summaries import LockSummary, summarize

TOLERANCE = timedelta(seconds=30)
"""Schedulers that are further apart start jobs at times that nobody expects."""


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
    def severity(self) -> Severity:
        """Without its store no job runs; all else is for the next working hour."""
        is_critical = self is Kind.UNREACHABLE
        return Severity.CRITICAL if is_critical else Severity.WARNING


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
            difference = clock_difference(provider)
            summaries = summarize(provider)
        except LockProviderError as error:
            yield Finding(Kind.UNREACHABLE, provider.alias, str(error))
            return
        if abs(difference) > TOLERANCE:
            yield Finding(Kind.CLOCK, provider.alias, _clock(provider, difference))
        for summary in summaries:
            if not self._ignores(summary.name):
                yield from self._of_lock(provider, summary)

    def _ignores(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.ignored)

    def _of_lock(
        self, provider: LockProvider, summary: LockSummary
    ) -> Iterator[Finding]:
        found = {
            Kind.LONG: _long(summary) if self._is_long(summary) else None,
            Kind.EXPIRED: _expired(summary),
            Kind.FAILED: _failed(summary),
            Kind.LOST: _lost(summary),
            Kind.ABANDONED: _abandoned(summary),
        }
        for kind, text in found.items():
            if text is not None:
                yield Finding(
                    kind, provider.alias, f"Lock {summary.name!r}: {text}", summary.name
                )

    def _is_long(self, summary: LockSummary) -> bool:
        if self.held_for is None:
            return summary.takes_long
        is_running = summary.state is LockState.RUNNING
        return is_running and summary.held_for > self.held_for


def clock_difference(provider: LockProvider) -> timedelta:
    """
    Return by how much the store's clock is ahead of this process's.

    Raises ``LockProviderError`` if the store failed.
    """
    asked = timezone.now()
    store = provider.now()
    return store - asked - (timezone.now() - asked) / 2


def _clock(provider: LockProvider, difference: timedelta) -> str:
    direction = "ahead of" if difference > timedelta(0) else "behind"
    return (
        f"The clock of the store of provider {provider.alias!r} is "
        f"{format_duration(abs(difference))} {direction} this host's. Locks are right, "
        "but schedulers start jobs at other times."
    )


def _long(summary: LockSummary) -> str:
    usual = (
        ""
        if summary.usual_duration is None
        else f", usually for {format_seconds(summary.usual_duration)}"
    )
    return (
        f"its job has run for {format_seconds(summary.held_for)} as "
        f"{summary.locked_by}{usual}."
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
