"""The door to ``console.admin``: Django looks for an app's admin here."""

from django_shedlock.console.admin import LockActionAdmin, LockRecordAdmin, LockRunAdmin

__all__ = ["LockActionAdmin", "LockRecordAdmin", "LockRunAdmin"]
