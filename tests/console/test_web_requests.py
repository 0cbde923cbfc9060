"""What a web process loads for a request: no module of the project's jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.contrib import admin
from django.test import Client, override_settings
from django.urls import path, reverse

from django_shedlock.beat.catch_up import note_catch_up
from django_shedlock.console.models import ActionResult, LockAction
from django_shedlock.console.monitoring.health import HealthView
from django_shedlock.contrib.prometheus.views import MetricsView
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider
from django_shedlock.registry.discovery import named_jobs
from tests.support.jobs import unimported_jobs
from tests.support.lateness import be_overdue
from tests.support.locks import end_run, take
from tests.support.operators import (
    ACTIONS,
    ALL,
    CHANGE,
    LIST,
    RUN,
    RUNS,
    confirm,
    operator,
)
from tests.support.operators import ask as open_confirmation

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]

NIGHTLY = "packages.nightly"

urlpatterns = [
    path("admin/", admin.site.urls),
    path("metrics", MetricsView.as_view(public=True)),
    path("health", HealthView.as_view(public=True, keep_for=0)),
]


@pytest.fixture(autouse=True)
def imported() -> Iterator[Callable[[], list[str]]]:
    """Let the project's jobs be unknown; return which of their modules are imported."""
    with unimported_jobs() as imported:
        yield imported


@pytest.fixture
def chief() -> Client:
    """Return a client of somebody who may do everything, where much has happened."""
    end_run(NIGHTLY, RunOutcome.FAILED)
    for name in ("free", "idle", "overdue"):
        take(name).release()
    be_overdue("overdue")
    return operator(*ALL)


def test_search_for_jobs_would_import_them(imported: Callable[[], list[str]]) -> None:
    """The other tests can fail: what starts jobs imports these modules."""
    assert imported() == []
    known = {job.name for job in named_jobs("default")}
    assert {NIGHTLY, "packages.task", "twins.digest"} <= known
    assert "tests.apps.packages.jobs.nightly" in imported()
    assert "tests.apps.twins.management.commands.digest" in imported()


def test_pages_of_the_admin(chief: Client, imported: Callable[[], list[str]]) -> None:
    """The admin's lists and its pages of locks and runs look for no jobs."""
    run = LockRun.objects.filter(name=NIGHTLY).latest("pk")
    pages = [
        reverse(LIST),
        f"{reverse(LIST)}?attention=any",
        reverse(CHANGE, args=[NIGHTLY]),
        reverse(RUNS),
        f"{reverse(RUNS)}?name__exact={NIGHTLY}",
        reverse(RUN, args=[run.pk]),
        reverse(ACTIONS),
    ]
    for page in pages:
        assert chief.get(page).status_code == 200, page
        assert imported() == [], page


@pytest.mark.parametrize("most", [1000, 3])
def test_metrics(chief: Client, imported: Callable[[], list[str]], most: int) -> None:
    """However many locks there may be, a scrape does not look for jobs."""
    with override_settings(SHEDLOCK_METRICS_MAX_LOCKS=most):
        page = chief.get("/metrics").content.decode()
    assert 'shedlock_store_up{provider="default"} 1.0' in page
    assert f'shedlock_consecutive_failures{{lock="{NIGHTLY}"' in page
    assert imported() == []


def test_health(chief: Client, imported: Callable[[], list[str]]) -> None:
    """A check of the health finds what is wrong by the records alone."""
    found = chief.get("/health").json()["findings"]
    assert [each["lock"] for each in found] == ["overdue", NIGHTLY]
    assert imported() == []


def test_run_of_a_job_that_is_not_imported(
    chief: Client, imported: Callable[[], list[str]]
) -> None:
    """An operator can request a run of a job that only another process imports."""
    note_catch_up(get_provider())
    by = {"action": "run_selected"}
    page = open_confirmation(chief, NIGHTLY, **by).content.decode()
    assert "on any host where the job is known" in page
    assert "expires after 1h" in page
    locked_by = LockRecord.objects.get(name=NIGHTLY).locked_by
    confirm(chief, NIGHTLY, locked_by, **by)
    assert LockAction.objects.get().result == ActionResult.REQUESTED
    assert imported() == []
