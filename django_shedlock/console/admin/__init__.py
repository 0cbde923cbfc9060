"""The admin's console: what operators see of locks and runs, and what they may do."""

from django_shedlock.console.admin.locks import LockRecordAdmin
from django_shedlock.console.admin.past import LockActionAdmin, LockRunAdmin

__all__ = ["LockActionAdmin", "LockRecordAdmin", "LockRunAdmin"]
