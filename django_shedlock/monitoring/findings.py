"""Findings: what an operator should look at, and why, in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from shlex import quote
from typing import Self

from django.utils import timezone

from django_shedlock.clocks import TOLERANCE, aware, clock_difference
from django_shedlock.durations import format_duration, format_seconds
from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.states import LockState, LockStatus, RunOutcome
from django_shedlock.monitoring.summaries import LockSummary, summarize
from django_shedlock.providers.base import LockProvider


class Severity(StrEnum):
    """How bad a finding is: some jobs need a look, or no job can run."""

    WARNING = "warning"
    CRITICAL = "critical"


class Kind(StrEnum):
    """What is found, each with a summary that names no lock."""

    summary: str

    UNREACHABLE = "unreachable", "The locks can't be read."
    CLOCK = "clock", "The clocks differ."
    LONG = "long", "A job runs for too long."
    OVERDUE = "overdue", "A job is overdue."
    EXPIRED = "expired", "A lock has expired."
    FAILED = "failed", "A job failed."
    LOST = "lost", "A job lost its lock."
    ABANDONED = "abandoned", "A worker died."

    def __new__(cls, value: str, summary: str) -> Self:
        """Return the kind of this value; Python's recipe for enums with attributes."""
        kind = str.__new__(cls, value)
        kind._value_ = value
        kind.summary = summary
        return kind

    @property
    def severity(self) -> Severity:
        """Without its store no job runs; all else can wait until working hours."""
        is_critical = self is Kind.UNREACHABLE
        return Severity.CRITICAL if is_critical else Severity.WARNING


BAD_ENDS = {
    RunOutcome.FAILED: (Kind.FAILED, "its last run failed with {exception}{again}."),
    RunOutcome.LOST: (
        Kind.LOST,
        "its last run lost the lock before it ended{again}; it may have run twice at "
        "the same time.",
    ),
    RunOutcome.ABANDONED: (Kind.ABANDONED, "the worker of its last run died{again}."),
}


@dataclass(frozen=True)
class Finding:
    """Something to look at in a lock or, with ``lock=None``, in the whole store."""

    kind: Kind
    provider: str
    text: str
    lock: str | None = None


Found = dict[Kind, str | None]
"""The text of each kind of finding of a lock; ``None`` if there is no such finding."""


@dataclass(frozen=True)
class Search:
    """
    What to look for.

    A job is overdue if it has not succeeded ``grace`` after its tick. A job runs for
    too long if it runs for longer than ``held_for``; without that, if it runs for much
    longer than usual, or still runs ``grace`` after its next tick. Locks whose names
    match a pattern in ``ignored``, as in ``"import:*"``, are left out.
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
            if not any(fnmatchcase(summary.name, pattern) for pattern in self.ignored):
                found = self._of_lock(provider, summary)
                yield from _as_findings(provider, summary.name, found)

    def _of_lock(self, provider: LockProvider, summary: LockSummary) -> Found:
        found = _bad_end(summary)
        status = summary.status
        if status is None:
            return found
        return {
            Kind.LONG: self._long(summary, status),
            Kind.OVERDUE: overdue(provider, status, self.grace),
            Kind.EXPIRED: _expired(provider, status),
            **found,
        }

    def _long(self, summary: LockSummary, status: LockStatus) -> str | None:
        usual = summary.usual_duration
        if self.held_for is not None:
            return too_long(status, self.held_for)
        if usual is not None and summary.takes_long:
            return f"{running(status)}, usually for {format_seconds(usual)}."
        if usual is not None and status.held_for <= usual:
            return None
        return skipping(status, self.grace)


def find_clock(provider: LockProvider, tolerance: timedelta) -> Iterator[Finding]:
    """
    Find out if the clocks of the store and of this process are too far apart.

    Raises ``LockProviderError`` if the store failed.
    """
    difference = clock_difference(provider.now)
    if abs(difference) <= tolerance:
        return
    direction = "ahead of" if difference > ZERO else "behind"
    text = (
        f"The clock of the store of provider {provider.alias!r} is "
        f"{format_duration(abs(difference))} {direction} this host's. Locks are right, "
        "but schedulers start jobs at other times."
    )
    yield Finding(Kind.CLOCK, provider.alias, text)


def find_late(
    provider: LockProvider, *, held_for: timedelta | None, grace: timedelta | None
) -> Iterator[Finding]:
    """
    Find each job that runs for longer than ``held_for``, or is overdue by ``grace``.

    ``None`` leaves that search out. Raises ``LockProviderError`` if the store failed.
    """
    if held_for is None and grace is None:
        return
    for status in provider.statuses():
        found = {
            Kind.LONG: None if held_for is None else too_long(status, held_for),
            Kind.OVERDUE: None if grace is None else overdue(provider, status, grace),
        }
        yield from _as_findings(provider, status.name, found)


def _as_findings(provider: LockProvider, name: str, found: Found) -> Iterator[Finding]:
    for kind, text in found.items():
        if text is not None:
            yield Finding(kind, provider.alias, f"Lock {name!r}: {text}", name)


def _expired(provider: LockProvider, status: LockStatus) -> str | None:
    if status.state is not LockState.EXPIRED:
        return None
    release = _command(provider, f"release {quote(status.name)} --force")
    return (
        f"its lease is over and {status.locked_by} never released it: the worker "
        "died, or its job runs for longer than lock_at_most_for. The next start "
        "acquires it, but not `shedlock catch-up`. If the worker is dead, "
        f"{release} releases it."
    )


def _bad_end(summary: LockSummary) -> Found:
    status, outcome, again = summary.status, summary.last_outcome, ""
    if outcome is None or outcome not in BAD_ENDS:
        return {}
    kind, text = BAD_ENDS[outcome]
    # An expired lock tells the same.
    is_expired = status is not None and status.state is LockState.EXPIRED
    if kind is Kind.ABANDONED and is_expired:
        return {}
    if summary.failures > 1:
        again = f", and {summary.failures} runs in a row have not succeeded"
    return {kind: text.format(exception=summary.last_exception_type, again=again)}


def too_long(status: LockStatus, held_for: timedelta) -> str | None:
    """Return the text if the job runs for longer than this."""
    if not status.state.is_running or status.held_for <= held_for:
        return None
    return f"{running(status)}."


def skipping(status: LockStatus, grace: timedelta) -> str | None:
    """Return the text if the job still runs, and a tick after its own is overdue."""
    tick = status.skips_since(grace)
    if tick is None:
        return None
    return (
        f"{running(status)}, since the tick of {_local(tick)} ({status.schedule}), so "
        "later ones are skipped."
    )


def running(status: LockStatus) -> str:
    """Return for how long the job has run, and where, without a full stop."""
    return (
        f"its job has run for {format_seconds(status.held_for)} as {status.locked_by}"
    )


def overdue(provider: LockProvider, status: LockStatus, grace: timedelta) -> str | None:
    """Return the text if the job is overdue by ``grace``: why, and what helps."""
    since = status.overdue_since(grace)
    if since is None:
        return None
    # Without cronsim nobody can read the schedule.
    schedule = f" ({status.schedule})" if status.schedule else ""
    return (
        f"it is overdue: the tick of {_local(since)}{schedule} has not succeeded, "
        f"{_why(status, since, grace)}. If it is a job of this project"
        f"{_remedy(provider, status, grace)} runs it now."
    )


def _why(status: LockStatus, since: datetime, grace: timedelta) -> str:
    tick = status.schedule_state.tick
    if tick is None:
        return "and no run ever began. Check whether its scheduler runs"
    if not status.schedule_state.was_started(aware(status.clock), grace):
        begun = f"and no run began since that of {_local(tick)}"
        return f"{begun}. Check whether its scheduler runs"
    if tick == since:
        return "although its job ran. Find out why"
    return f"and neither has the last one that ran, {_local(tick)}. Find out why"


def _remedy(provider: LockProvider, status: LockStatus, grace: timedelta) -> str:
    subcommand = "catch-up" if status.may_catch_up(grace) else "trigger"
    if status.state is not LockState.EXPIRED:
        return f", {_command(provider, subcommand)}"
    name = quote(status.name)
    exactly = f"catch-up --include-expired {name}"
    command = exactly if subcommand == "catch-up" else f"trigger {name}"
    return f", and its worker is dead, {_command(provider, command)}"


def _command(provider: LockProvider, arguments: str) -> str:
    if provider.alias == "default":
        return f"`shedlock {arguments}`"
    return f"`shedlock --provider {provider.alias} {arguments}`"


def _local(moment: datetime) -> str:
    return timezone.localtime(moment).isoformat(sep=" ", timespec="seconds")
