"""Delete old rows, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Set
from datetime import datetime, timedelta
from functools import partial

from django_shedlock.jobs.named import import_decorated_modules, named_jobs
from django_shedlock.jobs.registry import registered_jobs
from django_shedlock.locks.configuration import full_name
from django_shedlock.models import (
    LockAction,
    LockActionQuerySet,
    LockRecord,
    LockRun,
    LockRunQuerySet,
)
from django_shedlock.providers import provider_aliases
from django_shedlock.providers.database.connections import run_here

BATCH = 500
"""Rows for each statement: few, so that no job waits for one of them."""


def prune_runs(using: str, older_than: timedelta, provider: str | None = None) -> int:
    """
    Delete the provider's runs that began longer ago than that; return how many.

    With ``None`` those of all providers. Kept are runs that still go on, and of each
    lock that has a record the last run and the last success. Raises
    ``django.db.Error`` if the database failed.
    """
    deleted, since = 0, None
    runs = _runs_of(using, provider).prunable(older_than)
    while batch := run_here(partial(_oldest, runs, since), using):
        since = batch[-1][1]
        keys = [key for key, _ in batch]
        deleted += run_here(partial(_delete_runs, using, keys), using)
    return deleted


def prune_actions(
    using: str, older_than: timedelta, provider: str | None = None
) -> int:
    """
    Delete actions of operators that began longer ago than that; return how many.

    Kept are open requests. Otherwise see prune_runs().
    """
    deleted = 0
    old = _old_actions(using, older_than, provider).order_by("pk")
    batch = old.values_list("pk", flat=True)[:BATCH]
    while keys := run_here(lambda: list(batch.all()), using):
        deleted += run_here(partial(_delete_actions, using, keys), using)
    return deleted


def count_prunable_actions(
    using: str, older_than: timedelta, provider: str | None = None
) -> int:
    """Return how many actions ``prune_actions()`` would delete now."""
    return run_here(_old_actions(using, older_than, provider).count, using)


def prune_locks(using: str, unused_for: timedelta) -> int:
    """
    Delete records of locks whose last lease ended longer ago than that.

    Return how many. Kept are those of decorated jobs with a fixed name that
    ``import_decorated_modules()`` finds and of other known jobs, and with them their
    fencing tokens, since that of a lock that is made again begins at 1, and the ticks
    that were run. Raises ``django.db.Error`` if the database failed.
    """
    deleted = 0
    for unused in _unused_names(using, unused_for):
        deleted += run_here(partial(_delete_locks, using, unused_for, unused), using)
    return deleted


def count_prunable_locks(using: str, unused_for: timedelta) -> int:
    """Return how many records ``prune_locks()`` would delete now."""
    return sum(map(len, _unused_names(using, unused_for)))


def count_prunable_runs(
    using: str,
    older_than: timedelta,
    provider: str | None = None,
    *,
    unused_for: timedelta | None = None,
) -> int:
    """
    Return how many runs ``prune_runs()`` would delete now.

    With ``unused_for``, as if ``prune_locks()`` had deleted records before.
    """
    runs = _runs_of(using, provider)
    records = LockRecord.objects.using(using).all()
    if unused_for is not None:
        unused = records.unused(unused_for).exclude(name__in=set(_fixed_names()))
        records = records.exclude(pk__in=unused.values("pk"))
    return run_here(runs.prunable(older_than, records).count, using)


def _runs_of(using: str, provider: str | None) -> LockRunQuerySet:
    runs = LockRun.objects.using(using).all()
    return runs if provider is None else runs.filter(provider=provider)


def _oldest(
    runs: LockRunQuerySet, since: datetime | None
) -> list[tuple[int, datetime]]:
    runs = runs if since is None else runs.filter(started__gte=since)
    return list(runs.order_by("started").values_list("pk", "started")[:BATCH])


def _delete_runs(using: str, keys: list[int]) -> int:
    deleted, _ = LockRun.objects.using(using).filter(pk__in=keys).delete()
    return deleted


def _old_actions(
    using: str, older_than: timedelta, provider: str | None
) -> LockActionQuerySet:
    actions = LockAction.objects.using(using).prunable(older_than)
    return actions if provider is None else actions.filter(provider=provider)


def _delete_actions(using: str, keys: list[int]) -> int:
    deleted, _ = LockAction.objects.using(using).filter(pk__in=keys).delete()
    return deleted


def _unused_names(using: str, unused_for: timedelta) -> Iterator[Set[str]]:
    fixed = set(_fixed_names())
    last = ""
    while names := run_here(partial(_unused_after, using, unused_for, last), using):
        last = names[-1]
        yield set(names) - fixed


def _unused_after(using: str, unused_for: timedelta, last: str) -> list[str]:
    names = LockRecord.objects.using(using).unused(unused_for).filter(name__gt=last)
    return list(names.order_by("name").values_list("name", flat=True)[:BATCH])


def _delete_locks(using: str, unused_for: timedelta, names: Set[str]) -> int:
    # Without the record, nothing would show that a run is abandoned.
    LockRun.objects.using(using).filter(name__in=names).record_abandoned()
    # Filtered again: another worker may have acquired one meanwhile.
    unused = LockRecord.objects.using(using).unused(unused_for)
    return unused.filter(name__in=names).delete_at_once()


def _fixed_names() -> Iterator[str]:
    import_decorated_modules()
    for job in registered_jobs:
        if not job.has_fields:
            yield full_name(job.request.name)
    for provider in provider_aliases():
        for known in named_jobs(provider):
            yield known.name
