"""Receivers that count what this process does with locks. They can't break a job."""

import time
from typing import Any
from weakref import WeakKeyDictionary

from django.dispatch import receiver
from prometheus_client import Counter, Gauge, Histogram

from django_shedlock import conf, signals
from django_shedlock.contrib.prometheus import LABELS, OTHERS, label_of
from django_shedlock.locks.configuration import LockConfiguration
from django_shedlock.locks.lock import Lock
from django_shedlock.mutexes import Mutex, renewed_in_child
from django_shedlock.providers.base import LockProvider

ATTEMPTS = Counter("shedlock_attempts", "Attempts to run a job under its lock.", LABELS)
ACQUIRED = Counter("shedlock_acquired", "Attempts that got the lock.", LABELS)
NOT_ACQUIRED = Counter(
    "shedlock_not_acquired", "Attempts that were skipped: the lock was held.", LABELS
)
LOST = Counter("shedlock_lost", "Locks that were lost while their job ran.", LABELS)
DURATION = Histogram(
    "shedlock_run_duration_seconds",
    "How long runs took, however they ended.",
    LABELS,
    buckets=(0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 1800, 3600, 7200, 21600),
)
RUNNING = Gauge(
    "shedlock_running",
    "Jobs that run under a lock now, in the scraped processes.",
    LABELS,
    multiprocess_mode="livesum",
)

_known: set[tuple[str, str]] = set()
"""The labels that have counts."""
_begun: WeakKeyDictionary[Lock, tuple[float, tuple[str, str]]] = WeakKeyDictionary()
"""When each run began, and its labels."""
_counting = renewed_in_child(Mutex())


@receiver(signals.lock_acquired)
def count_acquired(*, lock: Lock, **kwargs: Any) -> None:
    """Count the acquisition, and its job as running."""
    labels = _labels(lock.provider, lock.name)
    ATTEMPTS.labels(*labels).inc()
    ACQUIRED.labels(*labels).inc()
    with _counting:
        _begun[lock] = time.monotonic(), labels
        _count_running(labels)


@receiver(signals.lock_not_acquired)
def count_not_acquired(
    *, configuration: LockConfiguration, provider: LockProvider, **kwargs: Any
) -> None:
    """Count a job that was skipped."""
    labels = _labels(provider, configuration.name)
    ATTEMPTS.labels(*labels).inc()
    NOT_ACQUIRED.labels(*labels).inc()


@receiver(signals.lock_lost)
def count_lost(*, lock: Lock, **kwargs: Any) -> None:
    """Count a lock that its job lost."""
    LOST.labels(*_labels(lock.provider, lock.name)).inc()


@receiver(signals.lock_released)
def observe_duration(*, lock: Lock, **kwargs: Any) -> None:
    """Observe how long the run took; its job no longer counts as running."""
    with _counting:
        if lock not in _begun:
            return
        begun, labels = _begun.pop(lock)
        _count_running(labels)
    DURATION.labels(*labels).observe(time.monotonic() - begun)


def _labels(provider: Any, name: str) -> tuple[str, str]:
    labels = provider.alias, label_of(name)
    if labels not in _known:
        # Each label is kept, and sent to Prometheus, for as long as the process lives.
        if len(_known) >= conf.METRICS_MAX_LOCKS.value:
            return provider.alias, OTHERS
        _known.add(labels)
    return labels


def _count_running(labels: tuple[str, str]) -> None:
    # Counted afresh, not up and down: no signal reports a release that failed, and a
    # forked process inherits its parent's locks.
    same = [lock for lock, (_, own) in list(_begun.items()) if own == labels]
    RUNNING.labels(*labels).set(sum(lock.is_active for lock in same))
