"""The tables of locks and of their runs."""

from django_shedlock.models.records import LockRecord, LockRecordQuerySet
from django_shedlock.models.runs import LockRun, LockRunQuerySet

__all__ = ["LockRecord", "LockRecordQuerySet", "LockRun", "LockRunQuerySet"]
