"""
Run each scheduled job at most once at the same time, on however many hosts.

A lock is a row of the project's database with a lease that ends by itself.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_shedlock.active import (
        arelease_all,
        assert_locked,
        current_lock,
        extend_active_lock,
        locks_held,
        release_all,
    )
    from django_shedlock.exceptions import (
        InvalidLockConfiguration,
        LockLost,
        LockNotAcquired,
        LockProviderError,
        NoActiveLock,
        ShedLockError,
    )
    from django_shedlock.executor import TaskResult, aexecute, ahold, execute, hold
    from django_shedlock.jobs.decorators import scheduler_lock
    from django_shedlock.locks.configuration import LockConfiguration
    from django_shedlock.locks.lock import Lock
    from django_shedlock.providers.base import LockProvider
    from django_shedlock.schedules.cron import Schedule

__all__ = ["InvalidLockConfiguration", "Lock", "LockConfiguration", "LockLost"]
__all__ += ["LockNotAcquired", "LockProvider", "LockProviderError", "NoActiveLock"]
__all__ += ["Schedule", "ShedLockError", "TaskResult", "aexecute", "ahold"]
__all__ += ["arelease_all", "assert_locked", "current_lock", "execute"]
__all__ += ["extend_active_lock", "hold", "locks_held", "release_all", "scheduler_lock"]

HOMES = "exceptions schedules.cron locks.configuration locks.lock providers.base active"
HOMES += " executor jobs.decorators"  # each after those that it needs itself

if not TYPE_CHECKING:  # which would take every other name for one of ours

    def __getattr__(name: str) -> Any:
        """Load a name with its first use: a process that only has the app needs few."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        homes = (vars(import_module(f"{__name__}.{home}")) for home in HOMES.split())
        globals()[name] = next(home[name] for home in homes if name in home)
        return globals()[name]
