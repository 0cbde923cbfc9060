"""Locks of a store that can't list them: those whose names are known to be in use."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from functools import cache

from django_shedlock.console.monitoring.texts import command
from django_shedlock.jobs.named import named_jobs
from django_shedlock.locks.states import LockStatus
from django_shedlock.patterns import WILDCARD, matches_any
from django_shedlock.providers.base import LockFilter, LockProvider, most_urgent


@cache
def known_names(alias: str) -> tuple[str, ...]:
    """Return the names of the project's jobs; once, as it imports their modules."""
    return tuple(job.name for job in named_jobs(alias))


def known_statuses(provider: LockProvider) -> Sequence[LockStatus]:
    """
    Return the locks of the project's jobs that the store knows.

    Raises ``LockProviderError`` if the store fails, even if there are no such jobs.
    """
    provider.now()
    return provider.statuses_of(known_names(provider.alias))


def candidates(
    provider: LockProvider,
    grace: timedelta,
    *,
    limit: int,
    ignored: Collection[str] = (),
) -> Sequence[LockStatus]:
    """See LockProvider.candidates(), and known_statuses()."""
    if provider.lists_locks:
        return provider.candidates(grace, limit=limit, ignored=ignored)
    found = [
        status
        for status in known_statuses(provider)
        if status.is_candidate(grace) and not matches_any(status.name, ignored)
    ]
    return most_urgent(found, grace, limit)


def late(
    provider: LockProvider,
    grace: timedelta | None,
    held_for: timedelta | None,
    *,
    limit: int | None,
) -> Sequence[LockStatus]:
    """See LockProvider.late(), and known_statuses()."""
    if provider.lists_locks:
        return provider.late(grace, held_for, limit=limit)
    known = known_statuses(provider)
    found = [status for status in known if status.is_late(grace, held_for)]
    return most_urgent(found, grace, limit)


def iter_statuses(provider: LockProvider, wanted: LockFilter) -> Iterator[LockStatus]:
    """See LockProvider.iter_statuses(), and known_statuses(); with those it names."""
    if provider.lists_locks:
        return provider.iter_statuses(wanted)
    named = [name for name in wanted.patterns if not WILDCARD.search(name)]
    names = {*known_names(provider.alias), *named}
    return filter(wanted.accepts, provider.statuses_of(names))


def limitation(provider: LockProvider) -> str | None:
    """Return in a sentence that the store can't list its locks; ``None`` if it can."""
    if provider.lists_locks:
        return None
    return (
        f"The provider {provider.alias!r} can't list its locks: only those of this "
        "project's known jobs are looked at, while they are held. "
        f"{command(provider, 'show NAME')} shows any other one. To see all locks, keep "
        "them in a database or in Redis."
    )
