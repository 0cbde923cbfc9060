"""Old runs are deleted, so that the history does not grow for ever."""

from datetime import timedelta

from django.db import Error, connections

from django_shedlock import conf
from django_shedlock.exceptions import InvalidLockConfiguration
from django_shedlock.locks.configuration import ZERO, parse_option
from django_shedlock.models import LockRun
from django_shedlock.models.runs import LockRunQuerySet
from django_shedlock.signals import logger
from django_shedlock.sql.connections import (
    delete_here,
    in_callers_transaction,
    read_here,
)

PRUNING_BATCH_SIZE = 500
"""Few rows for each statement, so that no job waits for one of them."""


def retention() -> timedelta | None:
    """
    Return how long a run is kept; ``None`` if for ever.

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


def prune_some(using: str) -> None:
    """
    Delete a batch of the runs that are older than the retention.

    It never raises, and does nothing inside the caller's transaction.
    """
    try:
        older_than = retention()
        if older_than is None or in_callers_transaction(connections[using]):
            return
        delete_batch(LockRun.objects.using(using).older_than(older_than), using)
    except (Error, InvalidLockConfiguration) as error:
        text = "Old runs are not deleted from the history: %s"
        logger.warning(text, str(error).strip())


def delete_batch(runs: LockRunQuerySet, using: str) -> int:
    """Delete some of these runs, the oldest first; return how many."""
    oldest = runs.order_by("ended").values_list("pk", flat=True)
    keys = read_here(oldest[:PRUNING_BATCH_SIZE], using)
    if not keys:
        return 0
    deleted = delete_here(LockRun.objects.using(using).filter(pk__in=keys), using)
    # Somebody else may have deleted them meanwhile, and there may be more.
    return max(deleted, 1)
