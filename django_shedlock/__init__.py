"""
Run each scheduled job at most once at the same time, on however many hosts.

A lock is a row of the project's database with a lease that ends by itself.
"""

from django_shedlock.exceptions import (
    InvalidLockConfiguration,
    LockLost,
    LockNotAcquired,
    LockProviderError,
    NoActiveLock,
    ShedLockError,
)
from django_shedlock.execution.active import (
    arelease_all,
    assert_locked,
    current_lock,
    extend_active_lock,
    locks_held,
    release_all,
)
from django_shedlock.execution.executor import (
    TaskResult,
    aexecute,
    ahold,
    execute,
    hold,
)
from django_shedlock.execution.shutdown import shut_down
from django_shedlock.locks.configuration import LockConfiguration
from django_shedlock.locks.lock import Lock
from django_shedlock.providers.base import LockProvider
from django_shedlock.registry.decorators import scheduler_lock
from django_shedlock.schedules.cron import Schedule

__all__ = [
    "InvalidLockConfiguration",
    "Lock",
    "LockConfiguration",
    "LockLost",
    "LockNotAcquired",
    "LockProvider",
    "LockProviderError",
    "NoActiveLock",
    "Schedule",
    "ShedLockError",
    "TaskResult",
    "aexecute",
    "ahold",
    "arelease_all",
    "assert_locked",
    "current_lock",
    "execute",
    "extend_active_lock",
    "hold",
    "locks_held",
    "release_all",
    "scheduler_lock",
    "shut_down",
]
