"""The admin's console: what operators see of locks and runs, and what they may do."""

from django_shedlock.admin.locks import LockRecordAdmin
from django_shedlock.admin.runs import LockRunAdmin

__all__ = ["LockRecordAdmin", "LockRunAdmin"]
