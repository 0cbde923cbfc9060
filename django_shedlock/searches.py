"""Look for what somebody should have a look at, and say it in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase

from django_shedlock.clocks import TOLERANCE, clock_difference
from django_shedlock.durations import format_duration, format_seconds
from django_shedlock.exceptions import LockProviderError
from django_shedlock.findings import Finding, Kind
from django_shedlock.lateness import overdue, running, skipping, too_long
from django_shedlock.outcomes import RunOutcome
from django_shedlock.providers.base import LockProvider
from django_shedlock.states import LockState
from django_shedlock.summaries import LockSummary, summarize


@dataclass(frozen=True)
class Search:
    """
    What to look for.

    A job is overdue that has not succeeded ``grace`` after its tick. With ``held_for``
    a job that runs for longer is found; else one that runs for much longer than usual,
    or still ``grace`` after its next tick.
    Locks whose names match a pattern of ``ignored``, as in ``"import:*"``, are left
    out.
    """

    grace: timedelta
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
            Kind.OVERDUE: self._overdue(provider, summary),
            Kind.EXPIRED: _expired(summary),
            Kind.FAILED: _failed(summary),
            Kind.LOST: _lost(summary),
            Kind.ABANDONED: _abandoned(summary),
        }
        yield from _told(provider, summary.name, found)

    def _long(self, summary: LockSummary) -> str | None:
        status = summary.status
        if status is None:
            return None
        if self.held_for is not None:
            return too_long(status, self.held_for)
        if summary.takes_long and summary.usual_duration is not None:
            usual = format_seconds(summary.usual_duration)
            return f"{running(status)}, usually for {usual}."
        return None if summary.takes_as_usual else skipping(status, self.grace)

    def _overdue(self, provider: LockProvider, summary: LockSummary) -> str | None:
        status = summary.status
        return None if status is None else overdue(provider, status, self.grace)


def find_clock(provider: LockProvider, tolerance: timedelta) -> Iterator[Finding]:
    """
    Tell if the store's clock and this process's are further apart than that.

    Raises ``LockProviderError`` if the store failed.
    """
    difference = clock_difference(provider.now)
    if abs(difference) > tolerance:
        yield Finding(Kind.CLOCK, provider.alias, _clock(provider, difference))


def find_late(
    provider: LockProvider, *, held_for: timedelta | None, grace: timedelta | None
) -> Iterator[Finding]:
    """
    Tell of each job that runs for longer than ``held_for``, or is overdue by ``grace``.

    ``None`` is not looked at. Raises ``LockProviderError`` if the store failed.
    """
    if held_for is None and grace is None:
        return
    for status in provider.statuses():
        found = {
            Kind.LONG: None if held_for is None else too_long(status, held_for),
            Kind.OVERDUE: None if grace is None else overdue(provider, status, grace),
        }
        yield from _told(provider, status.name, found)


def _told(
    provider: LockProvider, name: str, found: Mapping[Kind, str | None]
) -> Iterator[Finding]:
    for kind, text in found.items():
        if text is not None:
            yield Finding(kind, provider.alias, f"Lock {name!r}: {text}", name)


def _clock(provider: LockProvider, difference: timedelta) -> str:
    direction = "ahead of" if difference > timedelta(0) else "behind"
    return (
        f"The clock of the store of provider {provider.alias!r} is "
        f"{format_duration(abs(difference))} {direction} this host's. Locks are right, "
        "but schedulers start jobs at other times."
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
