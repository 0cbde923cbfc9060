"""Metrics of the locks in the stores, read when Prometheus asks."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from django_shedlock import conf
from django_shedlock.clocks import timestamp
from django_shedlock.contrib.prometheus.labels import LABELS, label_of
from django_shedlock.locks.configuration import default_duration
from django_shedlock.monitoring.summaries import LockSummary, summarize
from django_shedlock.providers import get_provider, provider_aliases

logger = logging.getLogger("django_shedlock")


class Gauge(NamedTuple):
    """A metric of each lock: its value, and that of locks that share a label."""

    name: str
    documentation: str
    value: Callable[[LockSummary, timedelta], float | None]
    combine: Callable[[list[float]], float] = max


class StoreCollector(Collector):
    """
    All locks of all providers, also those of processes that nobody scrapes.

    Three statements for each provider. A store that fails is logged, and
    ``shedlock_store_up`` is 0. Where names share a label, the metrics are the number of
    locks held, the longest time, the newest success, the most failures, and the soonest
    tick.
    """

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Read the stores; never raise."""
        up, *families = self.describe()
        for alias in provider_aliases():
            try:
                locks = summarize(get_provider(alias))
                grace = default_duration(conf.GRACE)
            except Exception as error:  # a broken store breaks no other metric
                logger.warning("The locks of provider %r: %s", alias, error)
                up.add_metric([alias], 0)
            else:
                up.add_metric([alias], 1)
                _add_locks(families, alias, locks, grace)
        return [up, *families]

    def describe(self) -> list[GaugeMetricFamily]:
        """Return the metrics without values, and ask no store."""
        documentation = "Whether the locks can be read."
        up = GaugeMetricFamily("shedlock_store_up", documentation, labels=["provider"])
        return [up, *(GaugeMetricFamily(*g[:2], labels=LABELS) for g in GAUGES)]


def _add_locks(
    families: Sequence[GaugeMetricFamily],
    alias: str,
    locks: Iterable[LockSummary],
    grace: timedelta,
) -> None:
    groups: defaultdict[str, list[LockSummary]] = defaultdict(list)
    for lock in locks:
        groups[label_of(lock.name)].append(lock)
    for label, group in sorted(groups.items()):
        for gauge, family in zip(GAUGES, families, strict=True):
            values = [gauge.value(lock, grace) for lock in group]
            # What never happened has no value, so an alert can ask for absent().
            if known := [value for value in values if value is not None]:
                family.add_metric([alias, label], gauge.combine(known))


def _held_seconds(lock: LockSummary, grace: timedelta) -> float:
    return lock.status.held_for.total_seconds() if lock.status else 0


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
