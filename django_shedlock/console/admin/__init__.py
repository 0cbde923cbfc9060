"""The admin's console: what operators see of locks and runs, and what they may do."""

from django_shedlock.console.admin.locks import LockRecordAdmin
from django_shedlock.console.admin.runs import LockRunAdmin
from django_shedlock.console.admin.trail import LockActionAdmin

__all__ = ["LockActionAdmin", "LockRecordAdmin", "LockRunAdmin"]
