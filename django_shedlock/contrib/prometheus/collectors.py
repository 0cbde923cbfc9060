"""What the tables say, read when Prometheus asks."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from django_shedlock import conf
from django_shedlock.clocks import timestamp
from django_shedlock.contrib.prometheus.labels import label_of
from django_shedlock.options import default_duration
from django_shedlock.providers import get_provider, provider_aliases
from django_shedlock.summaries import LockSummary, summarize

LABELS = ("provider", "lock")

logger = logging.getLogger("django_shedlock")


class StoreCollector(Collector):
    """
    All locks of all providers, also those of processes that nobody scrapes.

    Three statements for each provider. A store that fails is logged, and told by
    ``shedlock_store_up``. Where names share a label, the metrics tell the number of
    locks held, the longest time, the newest success, the most failures, and the soonest
    tick.
    """

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Read the stores; never raise."""
        families = _Families()
        for alias in provider_aliases():
            try:
                locks = summarize(get_provider(alias))
                grace = default_duration(conf.GRACE)
            except Exception as error:  # a broken store breaks no other metric
                logger.warning("The locks of provider %r: %s", alias, error)
                families.up.add_metric([alias], 0)
            else:
                families.up.add_metric([alias], 1)
                families.add_locks(alias, locks, grace)
        return families.all

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return the metrics without values, without a look at the stores."""
        return _Families().all


class _Families:
    def __init__(self) -> None:
        self.up = GaugeMetricFamily(
            "shedlock_store_up", "Whether the locks can be read.", labels=["provider"]
        )
        self.held = _family("held", "Locks that nobody can acquire now.")
        self.held_seconds = _family(
            "held_seconds", "How long ago the lock was taken; 0 if it is not held."
        )
        self.last_success = _family(
            "last_success_timestamp_seconds", "When the last success ended."
        )
        self.last_duration = _family(
            "last_duration_seconds", "How long the last run took that ended."
        )
        self.failures = _family(
            "consecutive_failures", "Runs that did not succeed since the last success."
        )
        self.overdue = _family(
            "overdue_seconds",
            "How long ago the first tick was that should have succeeded; 0 if none is "
            "late.",
        )
        self.next_tick = _family(
            "next_tick_timestamp_seconds", "The tick that is to be run next."
        )

    @property
    def all(self) -> list[GaugeMetricFamily]:
        return list(vars(self).values())

    def add_locks(
        self, alias: str, locks: Sequence[LockSummary], grace: timedelta
    ) -> None:
        for label, group in _grouped(locks):
            labels = [alias, label]
            self.held.add_metric(labels, sum(lock.is_held for lock in group))
            longest = max(lock.held_for for lock in group)
            self.held_seconds.add_metric(labels, longest.total_seconds())
            self.failures.add_metric(labels, max(lock.failures for lock in group))
            # What never was has no value, and an alert can ask for absent().
            ends = [timestamp(lock.last_success) for lock in group if lock.last_success]
            if ends:
                self.last_success.add_metric(labels, max(ends))
            lengths = [lock.last_duration for lock in group if lock.last_outcome]
            known = [length for length in lengths if length is not None]
            if known:
                self.last_duration.add_metric(labels, max(known).total_seconds())
            self._add_ticks(labels, [lock for lock in group if lock.schedule], grace)

    def _add_ticks(
        self, labels: list[str], locks: Sequence[LockSummary], grace: timedelta
    ) -> None:
        ticks = [lock.next_tick for lock in locks]
        if known := [timestamp(tick) for tick in ticks if tick]:
            longest = max(lock.overdue_for(grace) for lock in locks)
            self.overdue.add_metric(labels, longest.total_seconds())
            self.next_tick.add_metric(labels, min(known))


def _family(name: str, documentation: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"shedlock_{name}", documentation, labels=LABELS)


def _grouped(locks: Sequence[LockSummary]) -> Iterator[tuple[str, list[LockSummary]]]:
    groups: defaultdict[str, list[LockSummary]] = defaultdict(list)
    for lock in locks:
        groups[label_of(lock.name)].append(lock)
    yield from sorted(groups.items())
