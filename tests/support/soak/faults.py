"""Faults of the library's own, to see that the soak finds them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from django_shedlock.locks.lock import Lock
from django_shedlock.models import LockRecordQuerySet
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.schedules.state import Decision, ScheduleState

decide = ScheduleState.decide


def _set(owner: Any, name: str, value: Any) -> Callable[[], Any]:
    return patch.object(owner, name, value).start


def _allow(*args: Any) -> Decision:
    return replace(decide(*args), is_allowed=True)


def _every(records: LockRecordQuerySet) -> LockRecordQuerySet:
    return records.all()


BREAKS: dict[str, Callable[[], Any]] = {
    "lease": _set(LockRecordQuerySet, "acquirable", _every),
    "fence": _set(DatabaseLockProvider, "fence", lambda self, lock: True),
    "clock": _set(Lock, "is_lost", False),
    "tick": _set(ScheduleState, "decide", _allow),
    "heartbeat": _set(DatabaseLockProvider, "extend", lambda *args, **how: True),
}
"""
What is taken out of a worker: that ``lock_until`` is over before a lock is acquired,
the owner in ``fence()``, the holder's own clock, that a tick runs once, and the
statement of the heartbeat.
"""
