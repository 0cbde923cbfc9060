"""The admin's console: what an operator sees of locks and runs, and may do."""

from django_shedlock.admin.locks import LockRecordAdmin
from django_shedlock.admin.runs import LockRunAdmin

__all__ = ["LockRecordAdmin", "LockRunAdmin"]
