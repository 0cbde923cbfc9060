"""Findings: what an operator should look at, and why, in words."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from itertools import islice
from typing import Self

from django.core.exceptions import ImproperlyConfigured

from django_shedlock import conf
from django_shedlock.clocks import TOLERANCE, clock_difference
from django_shedlock.console.monitoring import texts
from django_shedlock.console.monitoring.summaries import (
    LockSummary,
    badly_ended,
    has_outgrown,
    summarize,
    with_last_runs,
)
from django_shedlock.durations import format_duration, format_seconds
from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.configuration import ZERO, default_duration
from django_shedlock.locks.states import (
    LockState,
    LockStatus,
    RunOutcome,
    log_unreadable,
)
from django_shedlock.patterns import matches_any
from django_shedlock.providers import get_provider, provider_aliases
from django_shedlock.providers.base import LockProvider


class Severity(StrEnum):
    """How bad a finding is: some jobs need a look, or no job can run."""

    WARNING = "warning"
    CRITICAL = "critical"


class Kind(StrEnum):
    """What is found, the most urgent first, each with a summary that names no lock."""

    summary: str

    UNREACHABLE = "unreachable", "The locks can't be read."
    OVERDUE = "overdue", "A job is overdue."
    FAILED = "failed", "A job failed."
    EXPIRED = "expired", "A lock has expired."
    LONG = "long", "A job runs for too long."
    LOST = "lost", "A job lost its lock."
    ABANDONED = "abandoned", "A worker died."
    UNREADABLE = "unreadable", "A record can't be read."
    CLOCK = "clock", "The clocks differ."
    HISTORY = "history", "Old runs are not pruned."
    MORE = "more", "There are more findings."

    def __new__(cls, value: str, summary: str) -> Self:
        """Return the kind of this value; Python's recipe for enums with attributes."""
        kind = str.__new__(cls, value)
        kind._value_ = value
        kind.summary = summary
        return kind

    @property
    def rank(self) -> int:
        """Its place in the order of urgency; 0 is the most urgent."""
        return list(Kind).index(self)

    @property
    def severity(self) -> Severity:
        """Without its store no job runs; all else can wait until working hours."""
        is_critical = self is Kind.UNREACHABLE
        return Severity.CRITICAL if is_critical else Severity.WARNING


BAD_ENDS = {
    RunOutcome.FAILED: Kind.FAILED,
    RunOutcome.LOST: Kind.LOST,
    RunOutcome.ABANDONED: Kind.ABANDONED,
}
MOST = 10_000
"""Locks with findings that are told of at the most."""
MARGIN = timedelta(days=7)
"""A history that is so much older than its retention is not pruned each week."""


@dataclass(frozen=True)
class Finding:
    """
    Something that an operator should look at, in a lock or, if it is ``None``, a store.

    ``sentence`` says who, since when, and what it means. ``command`` can be pasted into
    a shell, and helps; it is empty if none does.
    """

    kind: Kind
    provider: str
    lock: str | None
    sentence: str
    command: str = ""

    def __str__(self) -> str:
        is_of_store = self.lock is None
        what = f"Provider {self.provider!r}" if is_of_store else f"Lock {self.lock!r}"
        after = f" Next: {self.command}" if self.command else ""
        return f"{what}: {self.sentence}{after}"


Found = dict[Kind, texts.Told | None]
"""What each kind of finding of a lock says; ``None`` if there is no such finding."""


@dataclass(frozen=True)
class Attention:
    """
    The findings of each lock that needs somebody, the most urgent first.

    Unless it ``is_complete``, there may be further locks, which are not more urgent.
    """

    findings: dict[str, list[Finding]]
    is_complete: bool = True


def aliases_to_search() -> list[str]:
    """Return the aliases of all providers; wrong settings are the default one's."""
    try:
        return list(provider_aliases()) or ["default"]
    except ImproperlyConfigured:  # get_provider() raises it again
        return ["default"]


@dataclass(frozen=True)
class Search:
    """
    What to look for.

    A job is overdue if it has not succeeded ``grace`` after its tick. A job runs for
    too long if it runs for longer than ``held_for``; without that, if it runs for much
    longer than usual, or still runs ``grace`` after its next tick. Locks whose names
    match a pattern in ``ignored``, as in ``"import:*"``, are left out.

    The store is asked for the locks that may need somebody, and only these are read.
    """

    grace: timedelta
    held_for: timedelta | None = None
    ignored: tuple[str, ...] = ()
    clock_tolerance: timedelta = TOLERANCE

    def verdict(self, aliases: Iterable[str]) -> list[Finding]:
        """
        Return the findings of these providers, the critical ones first.

        Whatever is wrong is a finding, the settings included: then no job can run.
        """
        found = []
        for alias in aliases:
            try:
                found += self.findings(get_provider(alias))
            except Exception as error:  # whatever wrong settings, or a store, raise
                found.append(Finding(Kind.UNREACHABLE, alias, None, str(error)))
        return sorted(found, key=lambda each: each.kind is not Kind.UNREACHABLE)

    def findings(self, provider: LockProvider, limit: int = MOST) -> Iterator[Finding]:
        """Look at the provider's store, its clock, its history, and at its locks."""
        try:
            yield from find_clock(provider, self.clock_tolerance)
            attention = self.attention(provider, limit)
            yield from find_outgrown_history(provider)
        except LockProviderError as error:
            yield Finding(Kind.UNREACHABLE, provider.alias, None, str(error))
            return
        for found in attention.findings.values():
            yield from found
        if not attention.is_complete:
            sentence = (
                f"More than {limit} locks may need somebody: these are the most urgent "
                "ones. --ignore leaves names out."
            )
            yield Finding(Kind.MORE, provider.alias, None, sentence)

    def of_locks(
        self, provider: LockProvider, names: Collection[str]
    ) -> dict[str, list[Finding]]:
        """
        Return the findings of these locks, the most urgent first of each.

        Locks without findings are left out. Raises ``LockProviderError`` if the store
        failed.
        """
        wanted = [name for name in names if not matches_any(name, self.ignored)]
        return self._found(provider, summarize(provider, wanted))

    def attention(self, provider: LockProvider, limit: int = 1000) -> Attention:
        """
        Return the findings of the locks that need somebody, ``limit`` at the most.

        Raises ``LockProviderError`` if the store failed.
        """
        reach = limit + 1
        candidates = provider.candidates(self.grace, limit=reach, ignored=self.ignored)
        bad = self._badly_ended(provider, reach)
        read = {status.name for status in candidates}
        others = provider.statuses_of(set(bad) - read)
        names = read.union(bad)
        summaries = with_last_runs(provider, [*candidates, *others], names)
        found = self._found(provider, summaries)
        urgent = sorted(found, key=lambda name: (found[name][0].kind.rank, name))
        is_complete = max(map(len, (candidates, bad, urgent))) <= limit
        return Attention({name: found[name] for name in urgent[:limit]}, is_complete)

    def _badly_ended(self, provider: LockProvider, limit: int) -> Sequence[str]:
        if not self.ignored:
            return badly_ended(provider, limit)
        names = badly_ended(provider)
        wanted = (name for name in names if not matches_any(name, self.ignored))
        return list(islice(wanted, limit))

    def _found(
        self, provider: LockProvider, summaries: Iterable[LockSummary]
    ) -> dict[str, list[Finding]]:
        found = {
            summary.name: _as_findings(
                provider, summary.name, self._of_lock(provider, summary)
            )
            for summary in summaries
        }
        return {name: findings for name, findings in found.items() if findings}

    def _of_lock(self, provider: LockProvider, summary: LockSummary) -> Found:
        status = summary.status
        if status is None:
            return _bad_end(provider, summary)
        if status.unreadable:
            return _unreadable(provider, status, status.unreadable)
        try:
            return {
                Kind.OVERDUE: texts.overdue(provider, status, self.grace),
                Kind.EXPIRED: texts.expired(provider, status),
                Kind.LONG: self._long(provider, summary, status),
                **_bad_end(provider, summary),
            }
        except Exception as error:  # what somebody wrote into one record
            return _senseless(provider, status, error)

    def _long(
        self, provider: LockProvider, summary: LockSummary, status: LockStatus
    ) -> texts.Told | None:
        usual = summary.usual_duration
        if self.held_for is not None:
            return texts.too_long(provider, status, self.held_for)
        if usual is not None and summary.takes_long:
            why = f", usually for {format_seconds(usual)}"
            return texts.running(provider, status, why)
        if usual is not None and status.held_for <= usual:
            return None
        return texts.skipping(provider, status, self.grace)


def find_clock(provider: LockProvider, tolerance: timedelta) -> Iterator[Finding]:
    """
    Find out if the clocks of the store and of this process are too far apart.

    Raises ``LockProviderError`` if the store failed.
    """
    difference = clock_difference(provider.now)
    if abs(difference) <= tolerance:
        return
    direction = "ahead of" if difference > ZERO else "behind"
    sentence = (
        f"The store's clock is {format_duration(abs(difference))} {direction} this "
        "host's: locks are right, but schedulers start jobs at other times."
    )
    yield Finding(Kind.CLOCK, provider.alias, None, sentence)


def find_outgrown_history(provider: LockProvider) -> Iterator[Finding]:
    """
    Find out if runs that nobody needs are much older than their retention.

    Raises ``LockProviderError`` if the store failed.
    """
    if history_is_outgrown(provider):
        retention = default_duration(conf.HISTORY_RETENTION)
        sentence = (
            f"Many runs are much older than {conf.HISTORY_RETENTION.name} = "
            f"{format_duration(retention)}: let a scheduler prune them each day."
        )
        prune = texts.command(provider, "prune")
        yield Finding(Kind.HISTORY, provider.alias, None, sentence, prune)


def history_is_outgrown(provider: LockProvider) -> bool:
    """
    Return whether runs that nobody needs are much older than their retention.

    Raises ``LockProviderError`` if the store failed.
    """
    return has_outgrown(provider, default_duration(conf.HISTORY_RETENTION) + MARGIN)


def _as_findings(provider: LockProvider, name: str, found: Found) -> list[Finding]:
    return [
        Finding(kind, provider.alias, name, *told)
        for kind, told in sorted(found.items(), key=lambda item: item[0].rank)
        if told is not None
    ]


def _senseless(provider: LockProvider, status: LockStatus, error: Exception) -> Found:
    reason = f"{type(error).__name__}: {error}"
    log_unreadable(status.name, reason)
    return _unreadable(provider, status, reason)


def _unreadable(provider: LockProvider, status: LockStatus, reason: str) -> Found:
    record = provider.record_of(status.name)
    sentence = f"Its record can't be read ({reason}). Correct or delete {record}."
    return {Kind.UNREADABLE: (sentence, "")}


def _bad_end(provider: LockProvider, summary: LockSummary) -> Found:
    status, told = summary.status, texts.bad_end(provider, summary)
    if summary.last_outcome is None or told is None:
        return {}
    kind = BAD_ENDS[summary.last_outcome]
    # An expired lock tells the same.
    is_expired = status is not None and status.state is LockState.EXPIRED
    return {} if kind is Kind.ABANDONED and is_expired else {kind: told}
