"""Delete old rows, so that no table of past runs or actions grows without limit."""

import random
from datetime import timedelta

from django.db import connections
from django.db.models import Model

from django_shedlock import conf
from django_shedlock.exceptions import InvalidLockConfiguration
from django_shedlock.locks.configuration import ZERO, parse_option
from django_shedlock.models.runs import PastRowsQuerySet
from django_shedlock.signals import logger
from django_shedlock.sql.connections import (
    delete_here,
    in_callers_transaction,
    read_here,
)

PRUNING_BATCH_SIZE = 500
"""Few rows for each statement, so that no job waits for one of them."""
PRUNING_SHARE = 1 / 50
"""The share of the writes after which old rows are deleted."""

# Jobs may seed Python's own random numbers: the draw must neither follow nor change it.
_system_random = random.SystemRandom()


def retention() -> timedelta | None:
    """
    Return how long rows are kept; ``None`` without a limit.

    Raises ``InvalidLockConfiguration`` for a setting that is no duration.
    """
    setting = conf.HISTORY_RETENTION
    if setting.value is None:
        return None
    kept_for = parse_option(setting.name, "default", setting.value)
    if kept_for < ZERO:
        raise InvalidLockConfiguration(
            f"{setting.name} = {setting.value!r}: it must not be negative."
        )
    return kept_for


def prune_after_write(rows: PastRowsQuerySet[Model]) -> None:
    """Call ``prune_some()`` after one write in fifty, drawn at random."""
    if _system_random.random() < PRUNING_SHARE:
        prune_some(rows)


def prune_some(rows: PastRowsQuerySet[Model]) -> None:
    """
    Delete a batch of those of the rows that are older than the retention.

    It never raises, and does nothing inside the caller's transaction.
    """
    try:
        older_than = retention()
        if older_than is None or in_callers_transaction(connections[rows.db]):
            return
        delete_batch(rows.older_than(older_than))
    except Exception as error:  # what was written counts, whatever the setting is
        text = "Old rows of the table %r are not deleted: %s"
        logger.warning(text, rows.model._meta.db_table, str(error).strip())


def delete_batch(rows: PastRowsQuerySet[Model]) -> int:
    """Delete some of these rows, the oldest first; return how many."""
    oldest = rows.order_by("ended").values_list("pk", flat=True)
    keys = read_here(oldest[:PRUNING_BATCH_SIZE], rows.db)
    if not keys:
        return 0
    every_row: PastRowsQuerySet[Model] = PastRowsQuerySet(rows.model, using=rows.db)
    deleted = delete_here(every_row.filter(pk__in=keys), rows.db)
    # Somebody else may have deleted them meanwhile, and there may be more.
    return max(deleted, 1)
