"""Delete old rows, a batch at a time."""

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any

from django_shedlock.jobs.named import import_jobs, named_jobs
from django_shedlock.jobs.registry import registered_jobs
from django_shedlock.locks.configuration import full_name
from django_shedlock.models import LockAction, LockRecord, LockRun
from django_shedlock.providers import provider_aliases
from django_shedlock.providers.database.connections import run_here

BATCH = 500
"""Rows for each statement: few, so that no job waits for one of them."""


def prune_runs(
    using: str,
    older_than: timedelta,
    provider: str | None = None,
    *,
    dry_run: bool = False,
    unused_for: timedelta | None = None,
) -> int:
    """
    Delete the provider's runs that began longer ago than that; return how many.

    With ``None`` those of all providers. Kept are runs that still go on, and of each
    lock that has a record the last run and the last success. A ``dry_run`` only counts,
    as if ``prune_locks()`` had deleted the records that are ``unused_for`` so long.
    Raises ``django.db.Error`` if the database failed.
    """
    runs = LockRun.objects.using(using).all()
    if provider is not None:
        runs = runs.filter(provider=provider)
    if not dry_run:
        return _delete(runs.prunable(older_than), "started", using)
    records = LockRecord.objects.using(using).all()
    if unused_for is not None:
        unused = records.unused(unused_for).exclude(name__in=set(_fixed_names()))
        records = records.exclude(pk__in=unused.values("pk"))
    return run_here(runs.prunable(older_than, records).count, using)


def prune_actions(
    using: str,
    older_than: timedelta,
    provider: str | None = None,
    *,
    dry_run: bool = False,
) -> int:
    """
    Delete actions of operators that began longer ago than that; return how many.

    Kept are open requests. Otherwise see prune_runs().
    """
    old = LockAction.objects.using(using).prunable(older_than)
    if provider is not None:
        old = old.filter(provider=provider)
    return run_here(old.count, using) if dry_run else _delete(old, "pk", using)


def prune_locks(using: str, unused_for: timedelta, *, dry_run: bool = False) -> int:
    """
    Delete records of locks whose last lease ended longer ago than that.

    Return how many. Kept are those of decorated jobs with a fixed name that
    ``import_jobs()`` finds and of other known jobs. With the others go
    their fencing tokens, so that the next one is 1, and the ticks that were run. A
    ``dry_run`` only counts. Raises ``django.db.Error`` if the database failed.
    """
    kept, last, found = set(_fixed_names()), "", 0
    batch: list[str]
    unused = LockRecord.objects.using(using).unused(unused_for)
    names = unused.order_by("name").values_list("name", flat=True)
    while batch := run_here(partial(list, names.filter(name__gt=last)[:BATCH]), using):
        last, old = batch[-1], set(batch) - kept
        if dry_run:
            found += len(old)
            continue
        # Without the record, nothing would show that a run is abandoned.
        runs = LockRun.objects.using(using).filter(name__in=old)
        run_here(runs.record_abandoned, using)
        # Filtered again: another worker may have acquired one meanwhile.
        found += run_here(unused.filter(name__in=old).delete_at_once, using)
    return found


def _delete(old: Any, order: str, using: str) -> int:
    deleted, rest = 0, old
    batch: list[tuple[int, Any]]
    while batch := run_here(
        partial(list, rest.order_by(order).values_list("pk", order)[:BATCH]), using
    ):
        rows = old.model.objects.using(using).filter(pk__in=[key for key, _ in batch])
        deleted += run_here(rows.delete, using)[0]
        rest = old.filter(**{f"{order}__gte": batch[-1][1]})
    return deleted


def _fixed_names() -> Iterator[str]:
    import_jobs()
    for job in registered_jobs:
        if not job.has_fields:
            yield full_name(job.request.name)
    for provider in provider_aliases():
        for known in named_jobs(provider):
            yield known.name
