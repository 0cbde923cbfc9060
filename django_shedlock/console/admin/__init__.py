"""The admin's console: what operators see of locks and runs, and what they may do."""

from django.contrib import admin

import django_shedlock.admin  # noqa: F401  # registers the plain classes first
from django_shedlock.console.admin.locks import LockRecordAdmin
from django_shedlock.console.admin.past import LockActionAdmin, LockRunAdmin
from django_shedlock.console.models import LockAction
from django_shedlock.models import LockRecord, LockRun

__all__ = ["LockActionAdmin", "LockRecordAdmin", "LockRunAdmin"]

# Unless the project has removed the plain ones.
if admin.site.is_registered(LockRecord):
    admin.site.unregister(LockRecord)
    admin.site.register(LockRecord, LockRecordAdmin)
if admin.site.is_registered(LockRun):
    admin.site.unregister(LockRun)
    admin.site.register(LockRun, LockRunAdmin)
admin.site.register(LockAction, LockActionAdmin)
