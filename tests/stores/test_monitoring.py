"""Metrics, health and findings of each store, and of one that is down."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import path

from django_shedlock import execute
from django_shedlock.console.monitoring.health import HealthView
from django_shedlock.console.monitoring.kinds import Kind
from django_shedlock.console.monitoring.search import Search
from django_shedlock.contrib.prometheus.views import StoreCollector
from django_shedlock.providers import get_provider
from tests.support.lateness import HOUR
from tests.support.locks import Broken, let_its_clock_move, take

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]

urlpatterns = [path("health", HealthView.as_view(public=True, keep_for=0))]


def metrics() -> dict[tuple[str, ...], float]:
    """Return what a scrape tells: values by the metric and all of its labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in StoreCollector().collect()
        for sample in family.samples
    }


def test_metrics(store: str) -> None:
    """Held locks have metrics, and there are numbers of all locks."""
    take("job")
    take("other")
    told = metrics()
    assert told["shedlock_store_up", "default"] == 1
    assert told["shedlock_held", "default", "job"] == 1
    assert told["shedlock_locks", "default", "running"] == 2
    assert told["shedlock_locks_left_out", "default"] == 0
    assert told["shedlock_held", "default", "other"] == 1


def fail(name: str) -> None:
    """Let a run of this job fail."""
    take(name).release(Broken())


def test_metrics_of_the_last_runs(store: str) -> None:
    """Each store's records have them, also without a history."""
    execute(lambda: None, "job", history=False)
    fail("failed")
    fail("failed")
    told = metrics()
    assert told["shedlock_consecutive_failures", "default", "failed"] == 2
    assert told["shedlock_consecutive_failures", "default", "job"] == 0
    assert told["shedlock_last_outcome", "default", "job", "succeeded"] == 1
    assert told["shedlock_last_outcome", "default", "failed", "failed"] == 1
    assert ("shedlock_last_success_timestamp_seconds", "default", "job") in told
    assert ("shedlock_usual_duration_seconds", "default", "job") in told


def test_findings_of_the_last_runs(store: str) -> None:
    """Each store's records tell of failures, and of workers that died."""
    execute(lambda: None, "job")
    fail("failed")
    [found] = Search(HOUR).findings(get_provider())
    assert (found.kind, found.lock) == (Kind.FAILED, "failed")


def test_metrics_have_a_bound(store: str, settings: Any) -> None:
    """What failed comes first."""
    settings.SHEDLOCK_METRICS_MAX_LOCKS = 1
    take("job")
    fail("failed")
    held = {key[2] for key in metrics() if key[0] == "shedlock_held"}
    assert held == {"failed"}


def test_metrics_of_a_store_that_is_down(away: str) -> None:
    """The metrics report a store that is down, and the other store's locks."""
    take("job")
    told = metrics()
    assert told["shedlock_store_up", "away"] == 0
    assert told["shedlock_store_up", "default"] == 1
    assert told["shedlock_held", "default", "job"] == 1


def test_health(store: str) -> None:
    """A job that runs for too long is found where its lock's name is known."""
    search = Search(HOUR, held_for=0 * HOUR)
    assert search.verdict(["default"]) == []
    take("job")
    let_its_clock_move(get_provider())
    [found] = search.verdict(["default"])
    assert (found.kind, found.lock) == (Kind.LONG, "job")


def test_health_of_a_store_that_is_down(away: str) -> None:
    """Whatever else is right, the answer is 503, and names the provider."""
    answer = Client().get("/health")
    assert answer.status_code == 503
    [found] = answer.json()["findings"]
    assert (found["kind"], found["provider"]) == ("unreachable", "away")


def test_locks_can_be_left_out(store: str) -> None:
    """An ignored name is no finding."""
    take("job")
    provider = get_provider()
    let_its_clock_move(provider)
    held = Search(HOUR, held_for=0 * HOUR)
    assert [found.lock for found in held.findings(provider)] == ["job"]
    ignoring = Search(HOUR, held_for=0 * HOUR, ignored=("j*",))
    assert list(ignoring.findings(provider)) == []


@pytest.mark.parametrize("store", ["memory", "redis"], indirect=True)
def test_bad_record(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The finding says where the record is that somebody has to correct."""
    lock = take("job")
    provider: Any = get_provider()
    entry, version, _ = provider.read("job")
    object.__setattr__(entry, "ticks", "nonsense")
    assert provider.write("job", entry, version)
    [found] = Search(HOUR).findings(provider)
    assert found.kind is Kind.UNREADABLE
    where = {
        "memory": "its record in the store of provider 'default'",
        "redis": "its key 'shedlock:{job}' in Redis",
    }
    assert found.sentence.endswith(f"Correct or delete it. See {where[store]}.")
    assert lock.name == "job"
