"""The tables of locks, of their runs, and of what operators did."""

from django_shedlock.models.console import (
    ActionKind,
    ActionResult,
    LockAction,
    LockActionQuerySet,
    Notice,
)
from django_shedlock.models.records import LockRecord, LockRecordQuerySet
from django_shedlock.models.runs import LockRun, LockRunQuerySet

__all__ = ["ActionKind", "ActionResult", "LockAction", "LockActionQuerySet"]
__all__ += ["LockRecord", "LockRecordQuerySet", "LockRun", "LockRunQuerySet", "Notice"]
