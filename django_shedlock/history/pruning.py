"""Delete old rows, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Set
from datetime import datetime, timedelta
from functools import partial

from django_shedlock.jobs.discovery import import_decorated_modules
from django_shedlock.jobs.named import named_jobs
from django_shedlock.jobs.registry import registered_jobs
from django_shedlock.locks.configuration import full_name
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import provider_aliases
from django_shedlock.providers.database.connections import run_here

BATCH = 500
"""Rows for each statement: few, so that no job waits for one of them."""


def prune_runs(using: str, older_than: timedelta) -> int:
    """
    Delete runs that began longer ago than that, and return how many.

    Kept are runs that still go on, and of each lock that has a record the last run
    and the last success. Raises ``django.db.Error`` if the database failed.
    """
    deleted, since = 0, None
    while batch := run_here(partial(_old_runs, using, older_than, since), using):
        since = batch[-1][1]
        keys = [key for key, _ in batch]
        deleted += run_here(partial(_delete_runs, using, keys), using)
    return deleted


def prune_locks(using: str, unused_for: timedelta) -> int:
    """
    Delete records of locks whose last lease ended longer ago than that.

    Return how many. Kept are those of decorated jobs with a fixed name that
    ``import_decorated_modules()`` finds and of other known jobs, and with them their
    fencing tokens, since that of a lock that is made again begins at 1, and the ticks
    that were run. Raises ``django.db.Error`` if the database failed.
    """
    fixed = set(_fixed_names())
    deleted, last = 0, ""
    while names := run_here(partial(_unused_names, using, unused_for, last), using):
        last = names[-1]
        unused = set(names) - fixed
        deleted += run_here(partial(_delete_locks, using, unused_for, unused), using)
    return deleted


def _old_runs(
    using: str, older_than: timedelta, since: datetime | None
) -> list[tuple[int, datetime]]:
    runs = LockRun.objects.using(using).prunable(older_than)
    runs = runs if since is None else runs.filter(started__gte=since)
    return list(runs.order_by("started").values_list("pk", "started")[:BATCH])


def _delete_runs(using: str, keys: list[int]) -> int:
    deleted, _ = LockRun.objects.using(using).filter(pk__in=keys).delete()
    return deleted


def _unused_names(using: str, unused_for: timedelta, last: str) -> list[str]:
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
