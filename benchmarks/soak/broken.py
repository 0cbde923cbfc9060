"""Faults of the library's own, to see that the soak finds them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import django_shedlock
from django_shedlock.locks.lock import Lock
from django_shedlock.providers.database import DatabaseLockProvider, statements
from django_shedlock.schedules.state import Decision, ScheduleState

decide = ScheduleState.decide


def _set(owner: Any, name: str, value: Any) -> Callable[[], Any]:
    return patch.object(owner, name, value).start


def _allow(*args: Any) -> Decision:
    return replace(decide(*args), is_allowed=True)


def _acquire_whatever_is_held() -> tuple[Any, Any]:
    _, columns = statements.acquire._build()
    return statements.the_record(), columns


BREAKS: dict[str, Callable[[], Any]] = {
    "lease": _set(statements.acquire.usual, "_build", _acquire_whatever_is_held),
    "fence": _set(DatabaseLockProvider, "fence", lambda self, lock: True),
    "clock": _set(Lock, "is_lost", False),
    "tick": _set(ScheduleState, "decide", _allow),
    "heartbeat": _set(DatabaseLockProvider, "heartbeat", lambda *args: True),
    "shutdown": _set(django_shedlock, "shut_down", lambda: None),
}
"""
What is taken out of a worker: that a lock is free before it is acquired, the owner in
``fence()``, the holder's own clock, that a tick runs once, the heartbeat's UPDATE, and
the ordered end of a process.
"""
