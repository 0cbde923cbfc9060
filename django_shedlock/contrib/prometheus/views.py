"""The page that Prometheus scrapes, and the metrics that it reads from the stores."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from django_shedlock import conf
from django_shedlock.clocks import aware, clock_difference
from django_shedlock.contrib.prometheus import label_of
from django_shedlock.contrib.prometheus.selection import select
from django_shedlock.locks.configuration import ZERO, default_duration
from django_shedlock.locks.status import LockState, LockStatus
from django_shedlock.models import LockRun
from django_shedlock.providers import aliases_to_ask, get_provider
from django_shedlock.providers.base import LockProvider
from django_shedlock.registry.requests import age_of_request
from django_shedlock.signals import logger
from django_shedlock.sql.connections import read_rows
from django_shedlock.views import MonitoringView

Value = float | timedelta | datetime | None
Sample = tuple[str, list[str], Value]
"""A metric's name, its labels without the provider's, and its value."""


class MetricsView(MonitoringView):
    """
    Shows the metrics of the locks in the stores, and your own metrics of this process.

    With ``PROMETHEUS_MULTIPROC_DIR`` the page adds up your own metrics over all
    processes that share that directory. Callers without permission get a 403: see
    ``MonitoringView``.
    """

    def get(
        self, request: HttpRequest, *args: object, **kwargs: object
    ) -> HttpResponse:
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
    Collects metrics of the locks of all providers, whichever process holds them.

    It sends one statement for the store's clock, one for the number of records, one for
    each page of them, and one that looks whether the history can be read. If there are
    more locks than ``SHEDLOCK_METRICS_MAX_LOCKS``, it reads the most urgent ones: with
    three statements, one for the jobs that this process knows, and four more if not
    all locks that are in use have a place. If a store fails, that is logged, and
    ``shedlock_store_up`` is 0. If names share a label, their metrics are the number of
    locks, the longest time, the newest run and success, the most failures, and the
    soonest tick.
    """

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Read the stores; never raise."""
        families = _families()
        for alias in aliases_to_ask():
            found: dict[tuple[str, ...], list[float]] = defaultdict(list)
            try:
                for name, labels, value in _samples(get_provider(alias)):
                    # An event that never happened has no value; alerts use absent().
                    if value is not None:
                        found[name, *labels].append(_number(value))
            except Exception as error:  # a broken store breaks no other metric
                logger.warning("The locks of provider %r: %s", alias, error)
                found = {("shedlock_store_up",): [0]}
            for (name, *labels), values in sorted(found.items()):
                combined = STORE_METRICS[name].combine(values)
                families[name].add_metric([alias, *labels], combined)
        return families.values()

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return the metrics without values; read no store."""
        return _families().values()


class Metric(NamedTuple):
    """A metric of the stores, its labels, and how to combine the values of a label."""

    documentation: str
    labels: tuple[str, ...] = ("lock",)
    combine: Callable[[list[float]], float] = max


STORE_METRICS = {
    "shedlock_store_up": Metric("Whether the locks can be read.", ()),
    "shedlock_history_up": Metric("Whether the history of runs can be read.", ()),
    "shedlock_clock_difference_seconds": Metric(
        "How far the clock of the store is ahead of this host's; negative: behind.", ()
    ),
    "shedlock_locks": Metric("Locks in each state.", ("state",)),
    "shedlock_locks_left_out": Metric(
        "Locks without metrics of their own: see SHEDLOCK_METRICS_MAX_LOCKS.", ()
    ),
    "shedlock_unreadable": Metric("Locks whose record can't be read.", ()),
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
        "An estimate of how long a successful run takes."
    ),
    "shedlock_expired": Metric(
        "Locks whose lease has ended without a release.", combine=sum
    ),
    "shedlock_since_success_seconds": Metric(
        "How long ago the last success ended, by the clock of the store.", combine=min
    ),
    "shedlock_since_loss_seconds": Metric(
        "How long ago a run last lost its lock, by the clock of the store.", combine=min
    ),
    "shedlock_last_success_timestamp_seconds": Metric("When the last success ended."),
    "shedlock_last_run_timestamp_seconds": Metric("When the last run ended."),
    "shedlock_last_outcome": Metric(
        "Locks whose last run had this outcome.", ("lock", "outcome"), sum
    ),
    "shedlock_last_duration_seconds": Metric("How long the last run took."),
    "shedlock_consecutive_failures": Metric("Runs in a row that did not succeed."),
    "shedlock_requested": Metric(
        "Locks with a request for a run that has not begun.", combine=sum
    ),
    "shedlock_requested_seconds": Metric(
        "How long ago somebody asked for a run that has not begun; 0 if nobody did."
    ),
    "shedlock_unrecorded": Metric(
        "Locks whose last run could not be written to the history.",
        combine=sum,
    ),
    "shedlock_overdue_seconds": Metric(
        "How long ago the first tick was that has not succeeded; 0 if none is late."
    ),
    "shedlock_next_tick_timestamp_seconds": Metric(
        "When the next tick is due.", combine=min
    ),
}


def _families() -> dict[str, GaugeMetricFamily]:
    return {
        name: GaugeMetricFamily(
            name, metric.documentation, labels=["provider", *metric.labels]
        )
        for name, metric in STORE_METRICS.items()
    }


def _samples(provider: LockProvider) -> Iterator[Sample]:
    grace = default_duration(conf.GRACE)
    difference = clock_difference(provider.now)
    yield "shedlock_clock_difference_seconds", [], difference
    selection = select(provider, grace, max(0, conf.METRICS_MAX_LOCKS.value))
    yield "shedlock_store_up", [], 1
    for state, count in selection.states.items():
        yield "shedlock_locks", [state.value], count
    yield "shedlock_locks_left_out", [], selection.left_out
    unreadable = 0
    for status in selection.locks:
        label, outcome = label_of(status.name), status.job.outcome
        unreadable += bool(status.unreadable)
        for name, value in _values(status, grace).items():
            yield name, [label], value
        if outcome is not None:
            yield "shedlock_last_outcome", [label, outcome], 1
    yield "shedlock_unreadable", [], unreadable
    if provider.history_database is not None:
        can_be_read = _can_read_history(provider.alias, provider.history_database)
        yield "shedlock_history_up", [], can_be_read


def _can_read_history(alias: str, using: str) -> bool:
    # No run has this identity, so an index answers, however long the history is.
    nothing = LockRun.objects.using(using).filter(locked_by="")
    try:
        read_rows(nothing, using)
    except Exception as error:  # a history that is down hides no lock
        logger.warning("The history of provider %r: %s", alias, error)
        return False
    return True


def _values(status: LockStatus, grace: timedelta) -> dict[str, Value]:
    state, job, held_for = status.state, status.job, status.held_for
    values: dict[str, Value] = {
        "shedlock_held": state.is_held,
        "shedlock_held_seconds": held_for,
        "shedlock_running_seconds": held_for if state is LockState.RUNNING else ZERO,
        "shedlock_paused_seconds": held_for if status.is_endless else ZERO,
        "shedlock_expired": state is LockState.EXPIRED,
        "shedlock_usual_duration_seconds": job.usual_duration,
        "shedlock_last_success_timestamp_seconds": job.succeeded_at,
        "shedlock_last_run_timestamp_seconds": job.ended_at,
        "shedlock_last_duration_seconds": job.last_duration,
        "shedlock_consecutive_failures": job.failures,
        "shedlock_requested": job.asked_at is not None,
        "shedlock_requested_seconds": age_of_request(status) if job.asked_at else ZERO,
        "shedlock_unrecorded": job.is_unrecorded,
        "shedlock_next_tick_timestamp_seconds": status.next_tick,
    }
    now, since = aware(status.clock), status.overdue_since(grace)
    if job.lost_at is not None:
        values["shedlock_since_loss_seconds"] = now - aware(job.lost_at)
    if job.succeeded_at is not None:
        values["shedlock_since_success_seconds"] = now - aware(job.succeeded_at)
    if status.ticks.due_at is not None:
        values["shedlock_overdue_seconds"] = now - since if since else ZERO
    return values


def _number(value: float | timedelta | datetime) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    return aware(value).timestamp() if isinstance(value, datetime) else value
