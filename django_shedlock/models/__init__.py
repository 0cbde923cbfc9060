"""The tables of locks and of their runs."""

from django_shedlock.models.records import LockRecord, LockRecordQuerySet
from django_shedlock.models.runs import LockRun, LockRunQuerySet, with_last_run

__all__ = [
    "LockRecord",
    "LockRecordQuerySet",
    "LockRun",
    "LockRunQuerySet",
    "with_last_run",
]
