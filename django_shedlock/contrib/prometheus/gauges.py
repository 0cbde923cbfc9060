"""What the metrics of the tables mean, and how each is computed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

from django_shedlock.clocks import aware, timestamp
from django_shedlock.console.monitoring.summaries import LockSummary
from django_shedlock.contrib.prometheus.labels import LABELS
from django_shedlock.locks.states import LockState

RECENT = timedelta(hours=1)
"""Runs that began since then are added up."""


class Gauge(NamedTuple):
    """A metric of each lock: its value, and that of locks that share a label."""

    name: str
    documentation: str
    value: Callable[[LockSummary, timedelta], float | None]
    combine: Callable[[list[float]], float] = max


def _held_seconds(lock: LockSummary, grace: timedelta) -> float:
    return lock.status.held_for.total_seconds() if lock.status else 0


def _running_seconds(lock: LockSummary, grace: timedelta) -> float | None:
    status = lock.status
    if status is None:
        return None
    return status.held_for.total_seconds() if status.state.is_running else 0


def _expired(lock: LockSummary, grace: timedelta) -> float:
    return lock.status is not None and lock.status.state is LockState.EXPIRED


def _usual_duration(lock: LockSummary, grace: timedelta) -> float | None:
    usual = lock.usual_duration
    return None if usual is None else usual.total_seconds()


def _since_success(lock: LockSummary, grace: timedelta) -> float | None:
    if lock.last_success is None or lock.status is None:
        return None
    return (aware(lock.status.clock) - aware(lock.last_success)).total_seconds()


def _last_success(lock: LockSummary, grace: timedelta) -> float | None:
    return timestamp(lock.last_success) if lock.last_success else None


def _last_duration(lock: LockSummary, grace: timedelta) -> float | None:
    duration = lock.last_duration
    return None if duration is None else duration.total_seconds()


def _overdue_seconds(lock: LockSummary, grace: timedelta) -> float | None:
    if lock.status is None or lock.status.schedule_state.due_at is None:
        return None
    return lock.status.overdue_for(grace).total_seconds()


def _next_tick(lock: LockSummary, grace: timedelta) -> float | None:
    tick = lock.status.next_tick if lock.status else None
    return timestamp(tick) if tick else None


STORE_GAUGES = (
    ("shedlock_store_up", "Whether the locks can be read.", ("provider",)),
    (
        "shedlock_locks",
        "Locks in each state, if the store can list them.",
        ("provider", "state"),
    ),
    (
        "shedlock_locks_left_out",
        "Locks without metrics of their own: see SHEDLOCK_METRICS_MAX_LOCKS.",
        ("provider",),
    ),
    ("shedlock_unreadable", "Locks whose record can't be read.", ("provider",)),
    (
        "shedlock_history_outgrown",
        "Whether runs that nobody needs are older than their retention and a week.",
        ("provider",),
    ),
)
RECENT_GAUGES = (
    (
        "shedlock_recent_runs",
        "Runs in the history that began within the last hour.",
        (*LABELS, "outcome"),
    ),
    (
        "shedlock_recent_skips",
        "Skips that the runs of the last hour report.",
        LABELS,
    ),
    (
        "shedlock_recent_run_seconds",
        "How long the ended runs of the last hour took together.",
        LABELS,
    ),
)
GAUGES = (
    Gauge(
        "shedlock_held",
        "Locks that nobody can acquire now.",
        lambda lock, grace: lock.is_held,
        sum,
    ),
    Gauge(
        "shedlock_held_seconds",
        "How long ago the lock was acquired; 0 if it is not held.",
        _held_seconds,
    ),
    Gauge(
        "shedlock_running_seconds",
        "How long the job has run under the lock; 0 if it does not run.",
        _running_seconds,
    ),
    Gauge(
        "shedlock_usual_duration_seconds",
        "How long the last run took that succeeded.",
        _usual_duration,
    ),
    Gauge(
        "shedlock_expired",
        "Locks whose lease is over, and that nobody released.",
        _expired,
        sum,
    ),
    Gauge(
        "shedlock_since_success_seconds",
        "How long ago the last success ended, by the clock of the store.",
        _since_success,
        min,
    ),
    Gauge(
        "shedlock_last_success_timestamp_seconds",
        "When the last success ended.",
        _last_success,
    ),
    Gauge(
        "shedlock_last_duration_seconds",
        "How long the last run took that ended.",
        _last_duration,
    ),
    Gauge(
        "shedlock_consecutive_failures",
        "Runs in a row that did not succeed.",
        lambda lock, grace: lock.failures,
    ),
    Gauge(
        "shedlock_overdue_seconds",
        "How long ago the first tick was that should have succeeded; 0 if none is "
        "late.",
        _overdue_seconds,
    ),
    Gauge(
        "shedlock_next_tick_timestamp_seconds",
        "When the next tick is due.",
        _next_tick,
        min,
    ),
)
