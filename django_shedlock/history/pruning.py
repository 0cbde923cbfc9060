"""Delete old rows, a batch at a time."""

from collections.abc import Iterator
from datetime import timedelta

from django.db.models import Model

from django_shedlock.history.retention import PRUNING_BATCH_SIZE, delete_batch
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.models.runs import PastRowsQuerySet
from django_shedlock.providers import provider_aliases
from django_shedlock.registry.discovery import import_jobs, named_jobs
from django_shedlock.registry.jobs import registered_jobs
from django_shedlock.sql.connections import delete_here, read_here, run_here


def prune_runs(
    using: str,
    older_than: timedelta,
    provider: str | None = None,
    *,
    dry_run: bool = False,
) -> int:
    """
    Delete the provider's runs that ended longer ago than that; return how many.

    With ``None`` those of all providers. A ``dry_run`` only counts. Raises
    ``django.db.Error`` if the database failed.
    """
    runs = LockRun.objects.using(using)
    return prune_rows(runs, older_than, provider, dry_run=dry_run)


def prune_rows(
    rows: PastRowsQuerySet[Model],
    older_than: timedelta,
    provider: str | None = None,
    *,
    dry_run: bool = False,
) -> int:
    """Delete those of the rows that are so old; see ``prune_runs()``."""
    old = rows.older_than(older_than)
    if provider is not None:
        old = old.filter(provider=provider)
    if dry_run:
        return run_here(old.count, old.db)
    deleted = 0
    while batch := delete_batch(old):
        deleted += batch
    return deleted


def prune_locks(using: str, unused_for: timedelta, *, dry_run: bool = False) -> int:
    """
    Delete records of locks whose last lease ended longer ago than that.

    Return how many. It keeps records whose run is still open, those of decorated jobs
    with a fixed name that ``import_jobs()`` finds, and those of other known jobs. A
    deleted record takes its ticks and the state of its last run with it. A ``dry_run``
    only counts. Raises ``django.db.Error`` if the database failed.
    """
    kept, last, found = set(_fixed_names()), "", 0
    unused = LockRecord.objects.using(using).unused(unused_for)
    names = unused.order_by("name").values_list("name", flat=True)
    while batch := read_here(names.filter(name__gt=last)[:PRUNING_BATCH_SIZE], using):
        last, old = batch[-1], set(batch) - kept
        if dry_run:
            found += len(old)
            continue
        # Filtered again: another worker may have acquired one meanwhile.
        found += delete_here(unused.filter(name__in=old), using)
    return found


def _fixed_names() -> Iterator[str]:
    import_jobs()
    for job in registered_jobs:
        if job.name_template is None:
            yield job.full_name
    for provider in provider_aliases():
        for known in named_jobs(provider):
            yield known.full_name
