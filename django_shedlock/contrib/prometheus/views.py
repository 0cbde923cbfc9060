"""The page that Prometheus scrapes, and the metrics that it reads from the stores."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from django_shedlock import conf
from django_shedlock.clocks import aware
from django_shedlock.console.monitoring.health import MonitoringView
from django_shedlock.console.monitoring.search import select
from django_shedlock.console.monitoring.summaries import LockSummary
from django_shedlock.console.monitoring.traces import history_is_outgrown, recent_runs
from django_shedlock.contrib.prometheus import label_of
from django_shedlock.locks.configuration import ZERO, default_duration
from django_shedlock.locks.states import LockState
from django_shedlock.models.last_runs import USUAL_OF
from django_shedlock.providers import get_provider, provider_aliases
from django_shedlock.providers.base import LockProvider
from django_shedlock.signals import logger

RECENT = timedelta(hours=1)
"""Runs that began since then are added up."""

Value = float | timedelta | datetime | None
Sample = tuple[str, list[str], Value]
"""The name of a metric, its labels after the provider's, and a value."""


class MetricsView(MonitoringView):
    """
    All metrics of this process, and those of the locks in the stores.

    With ``PROMETHEUS_MULTIPROC_DIR`` it shows all processes that share that directory.
    Callers without permission get a 403: see ``MonitoringView``.
    """

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not self.is_allowed:
            raise PermissionDenied
        registry = CollectorRegistry()
        if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        else:
            registry.register(REGISTRY)
        registry.register(StoreCollector())
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return HttpResponse(encode(registry), content_type=content_type)


class StoreCollector(Collector):
    """
    The locks of all providers, also those of processes that nobody scrapes.

    Eight statements for each provider, and at most fifteen: if it has more locks
    than ``SHEDLOCK_METRICS_MAX_LOCKS``, or runs that have outlived the retention. Of
    more locks it reads the most urgent ones, then those of the project's jobs. A store
    that fails is logged, and ``shedlock_store_up`` is 0. Where names share a label, the
    metrics are the number of locks held or expired, the longest time, the newest
    success, the most failures, and the soonest tick.
    """

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Read the stores; never raise."""
        families = _families()
        for alias in provider_aliases():
            found: dict[tuple[str, ...], list[float]] = defaultdict(list)
            try:
                for name, labels, value in _samples(get_provider(alias)):
                    # What never happened has no value: an alert asks for absent().
                    if value is not None:
                        found[name, *labels].append(_number(value))
            except Exception as error:  # a broken store breaks no other metric
                logger.warning("The locks of provider %r: %s", alias, error)
                found = {("shedlock_store_up",): [0]}
            for (name, *labels), values in sorted(found.items()):
                combined = METRICS[name].combine(values)
                families[name].add_metric([alias, *labels], combined)
        return families.values()

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return the metrics without values, and ask no store."""
        return _families().values()


class Metric(NamedTuple):
    """A metric of the stores, its labels, and how values of one label are combined."""

    documentation: str
    labels: tuple[str, ...] = ("lock",)
    combine: Callable[[list[float]], float] = max


METRICS = {
    "shedlock_store_up": Metric("Whether the locks can be read.", ()),
    "shedlock_locks": Metric("Locks in each state.", ("state",)),
    "shedlock_locks_left_out": Metric(
        "Locks without metrics of their own: see SHEDLOCK_METRICS_MAX_LOCKS.", ()
    ),
    "shedlock_unreadable": Metric("Locks whose record can't be read.", ()),
    "shedlock_history_outgrown": Metric(
        "Whether runs that nobody needs are older than their retention and a week.", ()
    ),
    "shedlock_held": Metric("Locks that nobody can acquire now.", combine=sum),
    "shedlock_held_seconds": Metric(
        "How long ago the lock was acquired; 0 if it is not held."
    ),
    "shedlock_running_seconds": Metric(
        "How long the job has run under the lock; 0 if it does not run."
    ),
    "shedlock_paused_seconds": Metric(
        "How long ago the job was paused without an end; 0 if it is not."
    ),
    "shedlock_usual_duration_seconds": Metric(
        f"The median duration of the last {USUAL_OF} runs that succeeded."
    ),
    "shedlock_expired": Metric(
        "Locks whose lease is over, and that nobody released.", combine=sum
    ),
    "shedlock_since_success_seconds": Metric(
        "How long ago the last success ended, by the clock of the store.", combine=min
    ),
    "shedlock_last_success_timestamp_seconds": Metric("When the last success ended."),
    "shedlock_last_duration_seconds": Metric("How long the last run took that ended."),
    "shedlock_consecutive_failures": Metric("Runs in a row that did not succeed."),
    "shedlock_repeated": Metric(
        "Locks without a schedule whose job ran on two hosts within seconds.",
        combine=sum,
    ),
    "shedlock_overdue_seconds": Metric(
        "How long ago the first tick was that should have succeeded; 0 if none is late."
    ),
    "shedlock_next_tick_timestamp_seconds": Metric(
        "When the next tick is due.", combine=min
    ),
    "shedlock_recent_runs": Metric(
        "Runs in the history that began within the last hour.", ("lock", "outcome"), sum
    ),
    "shedlock_recent_skips": Metric(
        "Skips that the runs of the last hour report.", combine=sum
    ),
    "shedlock_recent_run_seconds": Metric(
        "How long the ended runs of the last hour took together.", combine=sum
    ),
}


def _families() -> dict[str, GaugeMetricFamily]:
    return {
        name: GaugeMetricFamily(
            name, metric.documentation, labels=["provider", *metric.labels]
        )
        for name, metric in METRICS.items()
    }


def _samples(provider: LockProvider) -> Iterator[Sample]:
    grace = default_duration(conf.GRACE)
    selection = select(provider, grace, max(0, conf.METRICS_MAX_LOCKS.value))
    yield "shedlock_store_up", [], 1
    for state, count in selection.states.items():
        yield "shedlock_locks", [state.value], count
    yield "shedlock_locks_left_out", [], selection.left_out
    yield "shedlock_history_outgrown", [], history_is_outgrown(provider)
    unreadable = 0
    for lock in selection.locks:
        label = label_of(lock.name)
        unreadable += lock.status is not None and bool(lock.status.unreadable)
        for name, value in _values(lock, grace).items():
            yield name, [label], value
    yield "shedlock_unreadable", [], unreadable
    names = [lock.name for lock in selection.locks]
    for run in recent_runs(provider, names, RECENT):
        label = label_of(run["name"])
        yield "shedlock_recent_runs", [label, run["outcome"]], run["runs"]
        yield "shedlock_recent_skips", [label], run["skips"]
        yield "shedlock_recent_run_seconds", [label], run["duration"]


def _values(lock: LockSummary, grace: timedelta) -> dict[str, Value]:
    status = lock.status
    state = LockState.FREE if status is None else status.state
    held_for = ZERO if status is None else status.held_for
    values: dict[str, Value] = {
        "shedlock_held": state.is_held,
        "shedlock_held_seconds": held_for,
        "shedlock_expired": state is LockState.EXPIRED,
        "shedlock_usual_duration_seconds": lock.usual_duration,
        "shedlock_last_success_timestamp_seconds": lock.last_success,
        "shedlock_last_duration_seconds": lock.last_duration,
        "shedlock_consecutive_failures": lock.failures,
        "shedlock_repeated": lock.repetition is not None,
    }
    if status is None:
        return values
    values |= {
        "shedlock_running_seconds": held_for if state is LockState.RUNNING else ZERO,
        "shedlock_paused_seconds": held_for if status.is_endless else ZERO,
        "shedlock_next_tick_timestamp_seconds": status.next_tick,
    }
    now, since = aware(status.clock), status.overdue_since(grace)
    if lock.last_success is not None:
        values["shedlock_since_success_seconds"] = now - aware(lock.last_success)
    if status.schedule_state.due_at is not None:
        values["shedlock_overdue_seconds"] = now - since if since else ZERO
    return values


def _number(value: float | timedelta | datetime) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    return aware(value).timestamp() if isinstance(value, datetime) else value
