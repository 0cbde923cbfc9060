"""The check for django-health-check, in its own view."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connections
from django.test import Client, override_settings
from django.urls import path
from health_check.exceptions import ServiceUnavailable
from health_check.views import HealthCheckView

from django_shedlock.console.monitoring.findings import Kind
from django_shedlock.console.monitoring.search import Search
from django_shedlock.contrib.health_check import SUMMARIES, ShedLock
from django_shedlock.models import LockRecord
from django_shedlock.sql.fields import DatabaseNow
from tests.support.lateness import be_overdue
from tests.support.locks import take
from tests.support.threads import NewThreads
from tests.support.waiting import PATIENCE, wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

CHECK = "django_shedlock.contrib.health_check.ShedLock"

urlpatterns = [
    path(
        "health",
        HealthCheckView.as_view(
            checks=[
                (
                    CHECK,
                    {
                        "held_for": timedelta(minutes=5),
                        "grace": timedelta(hours=1),
                    },
                )
            ],
        ),
    ),
]


@pytest.fixture(autouse=True)
def empty_cache() -> None:
    cache.clear()


def report() -> tuple[int, str]:
    """Return the status and the text of the one check."""
    answer = Client().get("/health", {"format": "json"})
    [text] = answer.json().values()
    return answer.status_code, text


def test_all_is_well() -> None:
    """Where the locks work the check is OK."""
    take("job")
    assert report() == (200, "OK")


def test_store_that_fails() -> None:
    """A store that can't be read is unavailable."""
    providers = {"default": {"BACKEND": "no.such.provider"}}
    with override_settings(SHEDLOCK_PROVIDERS=providers):
        assert report() == (500, "Unavailable: The locks can't be read.")


def test_stuck_job_is_a_warning_without_names() -> None:
    """What everybody may read tells of no lock's name, however many are stuck."""
    for name in ("secret", "another"):
        take(name)
    LockRecord.objects.update(locked_at=DatabaseNow() - timedelta(minutes=6))
    assert report() == (500, "Warning: A job runs for too long.")


def test_every_kind_of_finding_has_a_summary() -> None:
    """Else the check would break just when something is wrong."""
    assert set(SUMMARIES) == set(Kind)


def test_overdue_job_is_a_warning() -> None:
    """A tick that has not succeeded is told without its lock's name, too."""
    take("secret").release()
    be_overdue("secret")
    assert report() == (500, "Warning: A job is overdue.")


def test_check_leaves_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads of the check keep no connection to the database open."""
    left: list[Any] = []
    run = ShedLock.run

    def run_and_look(check: ShedLock) -> None:
        run(check)
        left.append([c.connection for c in connections.all(initialized_only=True)])

    monkeypatch.setattr(ShedLock, "run", run_and_look)
    threads = NewThreads("background")
    assert asyncio.run(ShedLock(keep_for=0).get_result()).error is None
    assert wait_for(lambda: not threads)
    [opened] = left
    assert not any(opened)


def test_store_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the deadline it is unavailable, and one thread only waits for it."""
    goes_on = threading.Event()
    monkeypatch.setattr(
        Search, "verdict", lambda search, aliases: [][: goes_on.wait(PATIENCE)]
    )
    threads = NewThreads("background")
    check = ShedLock(deadline=timedelta(milliseconds=10))
    for _ in range(3):
        with pytest.raises(ServiceUnavailable):
            check.run()
    assert len(threads) == 1
    goes_on.set()
    assert wait_for(lambda: not threads)
