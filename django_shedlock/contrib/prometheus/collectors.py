"""Metrics of the locks in the stores, read when Prometheus asks."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from django_shedlock import conf
from django_shedlock.console.monitoring.findings import history_is_outgrown
from django_shedlock.console.monitoring.selection import Selection, select
from django_shedlock.console.monitoring.summaries import (
    LockSummary,
    RecentRuns,
    recent_runs,
)
from django_shedlock.contrib.prometheus.gauges import (
    GAUGES,
    RECENT,
    RECENT_GAUGES,
    STORE_GAUGES,
)
from django_shedlock.contrib.prometheus.labels import LABELS, label_of
from django_shedlock.locks.configuration import default_duration
from django_shedlock.locks.states import log_unreadable
from django_shedlock.providers import get_provider, provider_aliases
from django_shedlock.providers.base import LockProvider

logger = logging.getLogger("django_shedlock")


class StoreCollector(Collector):
    """
    The locks of all providers, also those of processes that nobody scrapes.

    Seven statements for each provider, and eleven at the most: if it has more locks
    than ``SHEDLOCK_METRICS_MAX_LOCKS``, or runs that have outlived the retention. Of
    more locks it reads the most urgent ones, then those of the project's jobs. A store
    that fails is logged, and ``shedlock_store_up`` is 0. Where names share a label, the
    metrics are the number of locks held or expired, the longest time, the newest
    success, the most failures, and the soonest tick.
    """

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Read the stores; never raise."""
        families = Families()
        for alias in provider_aliases():
            try:
                provider = get_provider(alias)
                told = _read(provider)
            except Exception as error:  # a broken store breaks no other metric
                logger.warning("The locks of provider %r: %s", alias, error)
                families.add("shedlock_store_up", [alias], 0)
            else:
                families.add("shedlock_store_up", [alias], 1)
                families.add_store(alias, told)
        return families.all

    def describe(self) -> list[GaugeMetricFamily]:
        """Return the metrics without values, and ask no store."""
        return Families().all


@dataclass(frozen=True)
class Told:
    """What a scrape tells of one provider."""

    selection: Selection
    recent: list[RecentRuns]
    has_outgrown: bool
    grace: timedelta


def _read(provider: LockProvider) -> Told:
    grace = default_duration(conf.GRACE)
    most = max(0, conf.METRICS_MAX_LOCKS.value)
    selection = select(provider, grace, most)
    names = [lock.name for lock in selection.locks]
    return Told(
        selection,
        recent_runs(provider, names, RECENT),
        history_is_outgrown(provider),
        grace,
    )


class Families:
    """The metrics, to which values are added."""

    def __init__(self) -> None:
        self._families = {
            name: GaugeMetricFamily(name, documentation, labels=labels)
            for name, documentation, labels in [
                *STORE_GAUGES,
                *((gauge.name, gauge.documentation, LABELS) for gauge in GAUGES),
                *RECENT_GAUGES,
            ]
        }

    @property
    def all(self) -> list[GaugeMetricFamily]:
        """All of them, also those without a value."""
        return list(self._families.values())

    def add(self, name: str, labels: Sequence[str], value: float) -> None:
        """Add a value to the metric of this name."""
        self._families[name].add_metric(labels, value)

    def add_store(self, alias: str, told: Told) -> None:
        """Add what is told of the provider and of its locks."""
        for state, count in told.selection.states.items():
            self.add("shedlock_locks", [alias, state.value], count)
        if told.selection.states:  # else nobody can count them
            self.add("shedlock_locks_left_out", [alias], told.selection.left_out)
        self.add("shedlock_history_outgrown", [alias], told.has_outgrown)
        self._add_locks(alias, told.selection.locks, told.grace)
        self._add_recent(alias, told.recent)

    def _add_locks(
        self, alias: str, locks: Iterable[LockSummary], grace: timedelta
    ) -> None:
        groups: defaultdict[str, list[LockSummary]] = defaultdict(list)
        unreadable = set()
        for lock in locks:
            groups[label_of(lock.name)].append(lock)
        for label, group in sorted(groups.items()):
            for gauge in GAUGES:
                values = []
                for lock in group:
                    try:
                        values.append(gauge.value(lock, grace))
                    except Exception as error:  # what somebody wrote into one record
                        unreadable.add(lock.name)
                        log_unreadable(lock.name, f"{type(error).__name__}: {error}")
                # What never happened has no value, so an alert can ask for absent().
                if known := [value for value in values if value is not None]:
                    self.add(gauge.name, [alias, label], gauge.combine(known))
            unreadable.update(lock.name for lock in group if lock.is_unreadable)
        self.add("shedlock_unreadable", [alias], len(unreadable))

    def _add_recent(self, alias: str, recent: Iterable[RecentRuns]) -> None:
        runs: Counter[tuple[str, str]] = Counter()
        skips: Counter[str] = Counter()
        seconds: defaultdict[str, float] = defaultdict(float)
        for each in recent:
            label = label_of(each.name)
            runs[label, each.outcome.value] += each.runs
            skips[label] += each.skips
            seconds[label] += each.duration.total_seconds()
        for (label, outcome), count in sorted(runs.items()):
            self.add("shedlock_recent_runs", [alias, label, outcome], count)
        for label in sorted(seconds):
            self.add("shedlock_recent_skips", [alias, label], skips[label])
            self.add("shedlock_recent_run_seconds", [alias, label], seconds[label])
