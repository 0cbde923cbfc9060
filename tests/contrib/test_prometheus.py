"""The metrics for Prometheus."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.db import DatabaseError, connection
from django.db.models import F
from django.test import Client, RequestFactory, override_settings
from django.urls import path
from django.utils import timezone
from prometheus_client import REGISTRY
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from pytest_django import DjangoAssertNumQueries

from django_shedlock import execute, scheduler_lock
from django_shedlock.contrib.prometheus.views import (
    STORE_METRICS,
    MetricsView,
    StoreCollector,
)
from django_shedlock.locks.pauses import FOREVER
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider
from django_shedlock.schedules.cron import Schedule
from django_shedlock.sql.fields import DatabaseNow
from django_shedlock.testing import MEMORY_PROVIDERS
from tests.support.jobs import only_jobs_of
from tests.support.lateness import (
    DAY,
    be_on_time,
    be_overdue,
    be_overdue_by_unknown_schedule,
    give_schedule,
    newest_tick,
)
from tests.support.locks import end_run, expire, pause, take
from tests.support.operators import operator
from tests.support.private_connections import counted_statements
from tests.support.records import counted_records, make_record_unreadable

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]

MINUTE = timedelta(minutes=1)
TOKEN = "öpen sesame"

urlpatterns = [
    path("metrics", MetricsView.as_view()),
    path("token", MetricsView.as_view(token=TOKEN)),
    path("empty", MetricsView.as_view(token="")),
    path("public", MetricsView.as_view(public=True)),
]


def stored() -> dict[tuple[str, str], float]:
    """Return what a scrape reads of the stores: values by metric and label."""
    return {
        (sample.name, sample.labels.get("lock", "")): sample.value
        for family in StoreCollector().collect()
        for sample in family.samples
    }


def run_job(name: str) -> None:
    execute(lambda: None, name)


@pytest.mark.parametrize("broken", ["no.such.function", lambda name: 1 / 0])
def test_broken_label_breaks_no_scrape(
    broken: Callable[[str], str] | str, caplog: pytest.LogCaptureFixture
) -> None:
    """A label that can't be made is logged, and the lock has metrics all the same."""
    run_job("job")
    with override_settings(SHEDLOCK_METRICS_LABEL=broken):
        assert ("shedlock_held", "(unlabelled)") in stored()
    assert "SHEDLOCK_METRICS_LABEL failed for lock 'job'" in caplog.text


def test_store_tells_of_held_locks() -> None:
    """A scrape tells who is held, since when, also of unscraped processes."""
    take("job")
    take("free").release()
    LockRecord.objects.filter(name="job").update(locked_at=DatabaseNow() - 3 * MINUTE)
    values = stored()
    assert values["shedlock_held", "job"] == 1
    assert 180 <= values["shedlock_held_seconds", "job"] < 240
    assert values["shedlock_held", "free"] == 0
    assert values["shedlock_held_seconds", "free"] == 0
    assert values["shedlock_store_up", ""] == 1


@pytest.mark.parametrize("use_tz", [True, False])
def test_store_tells_of_the_last_runs(use_tz: bool) -> None:
    """A scrape tells the last success, the last duration and the failures in a row."""
    run_job("job")
    succeeded = LockRecord.objects.get().ended_at
    for seconds in (7, 8):
        duration = timedelta(seconds=seconds)
        end_run("job", RunOutcome.FAILED, duration=duration)
    failed = LockRecord.objects.get().ended_at
    with override_settings(USE_TZ=use_tz):
        values = stored()
    success = values["shedlock_last_success_timestamp_seconds", "job"]
    assert success == pytest.approx(succeeded.timestamp())
    last = values["shedlock_last_run_timestamp_seconds", "job"]
    assert last == pytest.approx(failed.timestamp())
    assert values["shedlock_last_duration_seconds", "job"] == pytest.approx(8)
    assert values["shedlock_consecutive_failures", "job"] == 2


def test_store_tells_how_the_last_runs_ended() -> None:
    """An alert can ask for an outcome, and names that share a label are added up."""
    for name in ("import:a", "import:b", "import:c"):
        end_run(name, RunOutcome.FAILED)
    end_run("import:c")
    end_run("import:e", RunOutcome.TIMED_OUT)
    take("import:d")
    with override_settings(SHEDLOCK_METRICS_LABEL=lambda name: name.split(":")[0]):
        assert by_label("shedlock_last_outcome", "outcome") == {
            "failed": 2,
            "timed out": 1,
            "succeeded": 1,
        }


def test_store_tells_of_requests_and_of_gaps_in_the_history() -> None:
    """The metrics show which locks have a request or a gap in the history."""
    for name in ("asked", "unrecorded", "well"):
        run_job(name)
    provider = get_provider()
    provider.request_run("asked", "ada", "a customer waits")
    provider.note_unrecorded("unrecorded")
    values = stored()
    for metric, name in {"requested": "asked", "unrecorded": "unrecorded"}.items():
        told = {
            label: value
            for (m, label), value in values.items()
            if m == f"shedlock_{metric}"
        }
        assert told == {"asked": 0, "unrecorded": 0, "well": 0, name: 1}


def test_store_shows_how_long_a_request_waits() -> None:
    """
    The metrics show how long a request waits, by the clock of the store.

    For a shared label, the oldest request counts.
    """
    for name, minutes in {"import:a": 3, "import:b": 5, "import:c": 0}.items():
        run_job(name)
        if minutes:
            get_provider().request_run(name, "ada", "a customer waits")
        ago = DatabaseNow() - minutes * MINUTE
        LockRecord.objects.filter(name=name, asked_at__isnull=False).update(
            asked_at=ago
        )
    values = stored()
    assert 180 <= values["shedlock_requested_seconds", "import:a"] < 240
    assert values["shedlock_requested_seconds", "import:c"] == 0
    with override_settings(SHEDLOCK_METRICS_LABEL=lambda name: name.split(":")[0]):
        assert 300 <= stored()["shedlock_requested_seconds", "import"] < 360


@pytest.mark.each_store
def test_history_that_can_be_read_is_up() -> None:
    """The metrics report that a readable history is up, even without runs."""
    assert stored()["shedlock_history_up", ""] == 1


def refuse_history(execute: Any, sql: str, *arguments: Any) -> Any:
    if "shedlock_run" in sql:
        raise DatabaseError("no history today")
    return execute(sql, *arguments)


def test_history_that_is_down_hides_no_lock(caplog: pytest.LogCaptureFixture) -> None:
    """The look fails, that is logged, and the locks have their metrics."""
    take("job")
    with connection.execute_wrapper(refuse_history):
        values = stored()
    assert values["shedlock_history_up", ""] == 0
    assert values["shedlock_store_up", ""] == 1
    assert values["shedlock_held", "job"] == 1
    assert "The history of provider 'default': no history today" in caplog.text


@pytest.mark.each_store
@pytest.mark.django_db(transaction=True)
def test_history_whose_table_is_missing_is_down(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The same goes for a table of an older version, which lacks a column."""
    take("job").release()
    table = LockRun._meta.db_table
    with connection.schema_editor() as editor:
        editor.alter_db_table(LockRun, table, "moved")
    try:
        values = stored()
    finally:
        with connection.schema_editor() as editor:
            editor.alter_db_table(LockRun, "moved", table)
    assert values["shedlock_history_up", ""] == 0
    assert values["shedlock_held", "job"] == 0
    assert "The history of provider 'default'" in caplog.text
    assert stored()["shedlock_history_up", ""] == 1


def test_provider_without_a_history_has_no_metric_of_it() -> None:
    """There is nothing that could be down."""
    with override_settings(SHEDLOCK_PROVIDERS=MEMORY_PROVIDERS):
        names = {name for name, _ in stored()}
    assert "shedlock_store_up" in names
    assert "shedlock_history_up" not in names


@pytest.mark.parametrize("seconds", [120, -120])
def test_host_whose_clock_is_off_is_shown(
    seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The value is how far the store's clock is ahead of the scraped host's."""
    really = time.time
    monkeypatch.setattr(time, "time", lambda: really() - seconds)
    difference = stored()["shedlock_clock_difference_seconds", ""]
    assert difference == pytest.approx(seconds, abs=5)


def test_store_tells_what_is_overdue() -> None:
    """A scrape tells for how long a job is overdue, and when its next tick is."""
    for name in ("late", "quick", "unplanned"):
        take(name).release()
    since = be_overdue("late")
    be_on_time("quick")
    values = stored()
    age = (timezone.now() - since).total_seconds()
    assert values["shedlock_overdue_seconds", "late"] == pytest.approx(age, abs=300)
    assert values["shedlock_overdue_seconds", "quick"] == 0
    coming = (newest_tick() + DAY).timestamp()
    assert values["shedlock_next_tick_timestamp_seconds", "late"] == coming
    assert ("shedlock_overdue_seconds", "unplanned") not in values
    assert ("shedlock_next_tick_timestamp_seconds", "unplanned") not in values
    with override_settings(SHEDLOCK_GRACE="30d"):
        assert stored()["shedlock_overdue_seconds", "late"] == 0


def test_running_job_is_not_overdue_yet() -> None:
    """A running job is not overdue in the metrics."""
    take("job")
    be_overdue("job")
    assert stored()["shedlock_overdue_seconds", "job"] == 0


def test_metrics_of_a_schedule_that_nobody_reads() -> None:
    """The next tick of another version's schedule is missing, its delay is not."""
    take("job").release()
    be_overdue_by_unknown_schedule("job")
    values = stored()
    assert values["shedlock_store_up", ""] == 1
    assert values["shedlock_overdue_seconds", "job"] > 0
    assert ("shedlock_next_tick_timestamp_seconds", "job") not in values


def test_worst_and_soonest_of_a_shared_label() -> None:
    """A shared label shows the longest delay and the earliest next tick."""
    for name in ("import:a", "import:b", "import:c"):
        take(name).release()
    since = be_overdue("import:a")
    be_on_time("import:b")
    yearly = Schedule("0 0 1 1 *", "UTC")
    done = next(yearly.ticks_until(timezone.now()))
    give_schedule("import:c", tick=done, succeeded=done, schedule=yearly)
    with override_settings(SHEDLOCK_METRICS_LABEL=lambda name: name.split(":")[0]):
        values = stored()
    age = (timezone.now() - since).total_seconds()
    assert values["shedlock_overdue_seconds", "import"] == pytest.approx(age, abs=300)
    coming = (newest_tick() + DAY).timestamp()
    assert values["shedlock_next_tick_timestamp_seconds", "import"] == coming


def test_store_tells_the_time_since_the_last_loss() -> None:
    """However later runs end; of a shared label the last loss counts."""
    for name, minutes in {"import:a": 3, "import:b": 5}.items():
        end_run(name, RunOutcome.LOST)
        end_run(name)
        ago = DatabaseNow() - minutes * MINUTE
        LockRecord.objects.filter(name=name).update(lost_at=ago)
    end_run("never")
    with override_settings(SHEDLOCK_METRICS_LABEL=lambda name: name.split(":")[0]):
        values = stored()
    assert 180 <= values["shedlock_since_loss_seconds", "import"] < 240
    assert ("shedlock_since_loss_seconds", "never") not in values


def test_each_metric_has_a_value_for_a_lock_that_has_everything() -> None:
    """A row of the table without a value would be a metric that is always empty."""
    with pytest.raises(ZeroDivisionError):
        execute(lambda: 1 / 0, "job")
    run_job("job")
    LockRecord.objects.update(lost_at=DatabaseNow() - MINUTE)
    be_overdue("job")
    found = {name for name, _ in stored()}
    assert set(STORE_METRICS) <= found


def test_what_never_was_has_no_value() -> None:
    """A lock that never succeeded has no time of its last success, not even zero."""
    take("job")
    names = {name for name, label in stored() if label == "job"}
    assert "shedlock_consecutive_failures" in names
    assert "shedlock_last_success_timestamp_seconds" not in names
    assert "shedlock_last_duration_seconds" not in names


def test_store_adds_up_names_that_share_a_label() -> None:
    """A shared label adds up the held locks and shows the worst or newest values."""
    take("import:a")
    take("import:b")
    end_run("import:a", RunOutcome.FAILED, duration=MINUTE)
    end_run("import:b", RunOutcome.SUCCEEDED, duration=2 * MINUTE)
    with override_settings(SHEDLOCK_METRICS_LABEL=lambda name: name.split(":")[0]):
        values = stored()
    assert {label for _, label in values} == {"", "import"}
    assert values["shedlock_held", "import"] == 2
    assert values["shedlock_consecutive_failures", "import"] == 1
    assert values["shedlock_last_duration_seconds", "import"] == pytest.approx(120)


def test_newest_success_and_longest_hold_of_a_shared_label() -> None:
    """A shared label shows the newest success and the longest hold of its locks."""
    now = timezone.now()
    for name, minutes in {"import:a": 1, "import:b": 3}.items():
        take(name)
        ago = now - minutes * MINUTE
        LockRecord.objects.filter(name=name).update(locked_at=ago, succeeded_at=ago)
    with override_settings(SHEDLOCK_METRICS_LABEL=lambda name: name.split(":")[0]):
        values = stored()
    success = values["shedlock_last_success_timestamp_seconds", "import"]
    assert success == pytest.approx((now - MINUTE).timestamp(), abs=0.01)
    assert 60 <= values["shedlock_since_success_seconds", "import"] < 120
    assert 180 <= values["shedlock_held_seconds", "import"] < 240


@pytest.mark.django_db(transaction=True)
def test_scrape_costs_few_statements() -> None:
    """However many locks there are, a public scrape asks the store few times."""
    for number in range(3):
        run_job(f"job {number}")
        be_overdue(f"job {number}")
    for most, statements in {1000: 4, 3: 4, 2: 6, 1: 6}.items():
        with override_settings(SHEDLOCK_METRICS_MAX_LOCKS=most):
            with counted_statements() as sent:
                assert Client().get("/public").status_code == 200
            assert len(sent) == statements


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("most", [1000, 1])
def test_scrape_reads_no_run(most: int) -> None:
    """Where there are millions of runs, only a look by an index is quick."""
    for number in range(3):
        end_run(f"job {number}", RunOutcome.FAILED)
        take(f"job {number}")
    unlimited = {"SHEDLOCK_METRICS_MAX_LOCKS": most, "SHEDLOCK_HISTORY_RETENTION": None}
    with override_settings(**unlimited), counted_statements() as queries:
        assert Client().get("/public").status_code == 200
    for query in queries:
        assert "JOIN" not in query["sql"]
        assert query["sql"].count("SELECT") == 1
    [look] = [each["sql"] for each in queries if "shedlock_run" in each["sql"]]
    assert re.search(r"WHERE \W?shedlock_run\W+locked_by\W? = ''$", look)


def incident() -> None:
    """A lock with each finding, a running job, and some free locks."""
    for name in ("overdue", "failed", "free 1", "free 2", "free 3"):
        take(name).release()
    be_overdue("overdue")
    end_run("failed", RunOutcome.FAILED)
    take("expired")
    expire("expired")
    take("running")
    take("kept", lock_at_least_for=MINUTE).release()


def labels_of(metric: str) -> set[str]:
    return {label for name, label in stored() if name == metric}


def by_label(metric: str, label: str) -> dict[str, float]:
    """Return the values of a metric by another label than that of the lock."""
    return {
        sample.labels[label]: sample.value
        for family in StoreCollector().collect()
        for sample in family.samples
        if sample.name == metric
    }


STATES = {"running": 1, "paused": 0, "held at least": 1, "expired": 1, "free": 5}


@pytest.mark.parametrize("most", [1000, 7, 4])
def test_locks_are_counted_by_state(most: int) -> None:
    """All of them, also those that have no metrics of their own."""
    incident()
    with override_settings(SHEDLOCK_METRICS_MAX_LOCKS=most):
        assert by_label("shedlock_locks", "state") == STATES
        assert len(labels_of("shedlock_held")) == min(most, 8)


def test_metrics_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The locks that need somebody come first, then the jobs of the project."""
    incident()
    for number in range(20):
        take(f"other {number}").release()
    with override_settings(SHEDLOCK_METRICS_MAX_LOCKS=6), only_jobs_of():
        known = scheduler_lock("free 2")(lambda: None)
        with counted_records(monkeypatch) as read:
            told = labels_of("shedlock_held")
        urgent = {"overdue", "expired", "kept", "failed", "running"}
        assert told == urgent | {"free 2"}
        assert len(read) <= 3 * 6
        assert stored()["shedlock_locks_left_out", ""] == 22
    with override_settings(SHEDLOCK_METRICS_MAX_LOCKS=2):
        assert labels_of("shedlock_held") == {"overdue", "failed"}
        assert stored()["shedlock_locks_left_out", ""] == 26
    assert stored()["shedlock_locks_left_out", ""] == 0
    assert callable(known)


def test_locks_that_need_nobody_hide_no_failure() -> None:
    """However many jobs are paused, or kept by ``lock_at_least_for``."""
    for number in range(2):
        take(f"kept {number}", lock_at_least_for=MINUTE).release()
        pause(f"paused {number}")
    end_run("failed", RunOutcome.FAILED)
    with override_settings(SHEDLOCK_METRICS_MAX_LOCKS=2):
        assert stored()["shedlock_consecutive_failures", "failed"] == 1
        assert len(labels_of("shedlock_held")) == 2


def test_store_tells_of_killed_and_hung_jobs() -> None:
    """Without a schedule, and of processes that nobody scrapes."""
    incident()
    end_run("running", duration=timedelta(seconds=7))
    ago = DatabaseNow() - 3 * MINUTE
    LockRecord.objects.filter(name__in=["running", "kept"]).update(locked_at=ago)
    values = stored()
    assert values["shedlock_expired", "expired"] == 1
    assert values["shedlock_expired", "running"] == 0
    assert 180 <= values["shedlock_running_seconds", "running"] < 240
    assert values["shedlock_running_seconds", "kept"] == 0
    assert values["shedlock_running_seconds", "expired"] == 0
    assert values["shedlock_usual_duration_seconds", "running"] == 7
    assert ("shedlock_usual_duration_seconds", "expired") not in values


@pytest.mark.parametrize("use_tz", [True, False])
def test_store_tells_the_time_since_the_last_success(use_tz: bool) -> None:
    """By the clock of the store, so that no other clock has to be right."""
    run_job("job")
    ago = DatabaseNow() - 3 * MINUTE
    LockRecord.objects.update(succeeded_at=ago)
    with override_settings(USE_TZ=use_tz):
        assert 180 <= stored()["shedlock_since_success_seconds", "job"] < 240


def test_paused_job_does_not_run() -> None:
    """However long it is paused, no alert takes it for one that hangs."""
    take("job").release()
    pause("job")
    LockRecord.objects.update(locked_at=DatabaseNow() - timedelta(hours=3))
    values = stored()
    assert values["shedlock_running_seconds", "job"] == 0
    assert values["shedlock_expired", "job"] == 0
    assert by_label("shedlock_locks", "state")["paused"] == 1


@pytest.mark.parametrize("lasting", [FOREVER, timedelta(days=3)])
def test_only_a_pause_without_an_end_is_reminded_of(lasting: timedelta) -> None:
    """
    The metrics show the duration of an open-ended pause only.

    Any other pause ends by itself.
    """
    pause("job", lasting=lasting)
    moved = {each: F(each) - timedelta(days=2) for each in ("locked_at", "lock_until")}
    LockRecord.objects.update(**moved)
    take("other")
    values = stored()
    days = values["shedlock_paused_seconds", "job"] / 86_400
    assert days == (pytest.approx(2, abs=0.01) if lasting == FOREVER else 0)
    assert values["shedlock_paused_seconds", "other"] == 0


@pytest.mark.each_store
def test_bad_record_hides_no_other_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unreadable record is counted and hides no metrics of other locks."""
    take("job").release()
    be_on_time("job")
    take("broken").release()
    be_on_time("broken")
    make_record_unreadable(monkeypatch)
    values = stored()
    assert values["shedlock_unreadable", ""] == 1
    assert values["shedlock_held", "broken"] == 0
    assert ("shedlock_next_tick_timestamp_seconds", "job") in values
    assert ("shedlock_next_tick_timestamp_seconds", "broken") not in values
    assert values["shedlock_store_up", ""] == 1


def refuse(execute: Any, sql: str, *arguments: Any) -> Any:
    raise DatabaseError("no reading today")


def test_store_that_fails_breaks_no_scrape(caplog: pytest.LogCaptureFixture) -> None:
    """A scrape without its store still shows the process's metrics, and logs why."""
    with connection.execute_wrapper(refuse):
        page = Client().get("/public")
    assert page.status_code == 200
    assert 'shedlock_store_up{provider="default"} 0.0' in page.content.decode()
    assert "python_info" in page.content.decode()
    assert "no reading today" in caplog.text


def test_provider_that_fails_hides_no_other() -> None:
    """Each provider has its own shedlock_store_up."""
    providers = {"broken": {"BACKEND": "no.such.provider"}, **MEMORY_PROVIDERS}
    with override_settings(SHEDLOCK_PROVIDERS=providers):
        page = Client().get("/public").content.decode()
    assert 'shedlock_store_up{provider="broken"} 0.0' in page
    assert 'shedlock_store_up{provider="default"} 1.0' in page


@override_settings(SHEDLOCK_PROVIDERS="nonsense")
def test_wrong_settings_hide_no_other_metric() -> None:
    """The project's own metrics are on the page as well."""
    page = Client().get("/public").content.decode()
    assert 'shedlock_store_up{provider="default"} 0.0' in page
    assert "python_info" in page


def test_collector_registers_without_a_statement(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    """Registering the collector elsewhere, as at start-up, asks no store."""
    with django_assert_num_queries(0):
        REGISTRY.register(StoreCollector())
    collector = REGISTRY._names_to_collectors["shedlock_store_up"]
    REGISTRY.unregister(collector)


def test_page_is_valid_and_never_cached() -> None:
    """Prometheus can read the page in the format that it asks for."""
    run_job('quoted "name"')
    page = Client().get("/public", headers={"Accept": "application/openmetrics-text"})
    names = {f.name for f in text_string_to_metric_families(page.content.decode())}
    assert {"shedlock_held", "shedlock_store_up", "python_info"} <= names
    assert "no-store" in page.headers["Cache-Control"]
    plain = Client().get("/public")
    assert plain.headers["Content-Type"].startswith("text/plain")


def test_staff_with_permission_may_scrape(viewer: Client) -> None:
    """Who may see the locks in the admin may see their metrics."""
    assert viewer.get("/metrics").status_code == 200


def test_others_may_not_scrape() -> None:
    """Anonymous users, and staff without the permission, may not scrape the metrics."""
    assert Client().get("/metrics").status_code == 403
    assert operator("release_lockrecord").get("/metrics").status_code == 403


def test_permission_without_staff_is_not_enough() -> None:
    """A customer who somehow got the permission sees nothing."""
    client = operator("view_lockrecord")
    User.objects.update(is_staff=False)
    assert client.get("/metrics").status_code == 403


@pytest.mark.parametrize(
    ("address", "sent", "status"),
    [
        ("/token", f"Bearer {TOKEN}", 200),
        ("/token", "Bearer", 403),
        ("/token", "Bearer ", 403),
        ("/token", TOKEN, 403),
        ("/token", f"Basic {TOKEN}", 403),
        ("/token", f"Bearer {TOKEN}s", 403),
        ("/empty", "Bearer ", 403),
        ("/metrics", "Bearer ", 403),
        ("/metrics", "Bearer None", 403),
    ],
)
def test_token_lets_in(address: str, sent: str, status: int) -> None:
    """Only the very token that the view was given lets in who has no session."""
    headers = {"Authorization": sent.encode().decode("latin-1")}  # as servers do
    assert Client().get(address, headers=headers).status_code == status


def test_view_needs_no_users() -> None:
    """A project without the middleware of users refuses as well."""
    request = RequestFactory().get("/metrics")
    assert not hasattr(request, "user")
    view = MetricsView()
    view.setup(request)
    assert not view.is_allowed
    request.user = AnonymousUser()
    assert not view.is_allowed


def test_view_is_in_no_transaction() -> None:
    """
    The metrics view runs in no transaction, even with ATOMIC_REQUESTS.

    Otherwise a store that is down would end the request too early.
    """
    assert MetricsView.as_view()._non_atomic_requests == {"default", "other"}


WORKERS = """
import django
from django.conf import settings
from django_shedlock.testing import MEMORY_PROVIDERS

settings.configure(
    INSTALLED_APPS=["django_shedlock"], SHEDLOCK_PROVIDERS=MEMORY_PROVIDERS
)
django.setup()

import os
from django.test import RequestFactory
from django_shedlock import hold
from django_shedlock.contrib.prometheus.views import MetricsView
from prometheus_client import Counter

ORDERS = Counter("orders", "Orders of the shop.")

for _ in range(2):
    worker = os.fork()
    if worker == 0:
        ORDERS.inc()
        os._exit(0)
    assert os.waitpid(worker, 0) == (worker, 0)
with hold("other"):
    view = MetricsView.as_view(public=True)
    print(view(RequestFactory().get("/metrics")).content.decode())
"""
"""Forks two workers, as a web server does, and is scraped itself."""
CORE = """
import sys

import django
from django.conf import settings

sys.modules["prometheus_client"] = None
settings.configure(INSTALLED_APPS=["django_shedlock"])
django.setup()
import django_shedlock.testing, django_shedlock.console.monitoring.search
import django_shedlock.views
"""


def python(script: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_processes_add_up(tmp_path: Path) -> None:
    """The page adds up a project's metrics in prometheus_client's multiprocess mode."""
    page = python(WORKERS, PROMETHEUS_MULTIPROC_DIR=str(tmp_path)).splitlines()
    assert "orders_total 2.0" in page
    assert 'shedlock_held{lock="other",provider="default"} 1.0' in page
    assert 'shedlock_store_up{provider="default"} 1.0' in page


def test_core_needs_no_other_library() -> None:
    """The package works where prometheus-client is missing."""
    python(CORE)
