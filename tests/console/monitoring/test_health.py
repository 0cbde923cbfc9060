"""The health of the locks, for machines and for people."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import ANY

import pytest
from django.core.cache import cache
from django.core.cache.backends.locmem import LocMemCache
from django.core.management import call_command
from django.db import DatabaseError, connection
from django.http import HttpResponse
from django.test import Client, RequestFactory, override_settings
from django.urls import path
from django.utils import timezone
from django.views import View
from pytest_django import DjangoAssertNumQueries

from django_shedlock.console.monitoring.health import (
    HealthCheck,
    HealthView,
)
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.sql import connections as connecting
from django_shedlock.sql.fields import DatabaseNow
from django_shedlock.testing import MEMORY_PROVIDERS
from tests.support.lateness import be_on_time, be_overdue
from tests.support.locks import end_run, expire, take
from tests.support.operators import operator
from tests.support.records import make_record_unreadable
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]

MINUTE = timedelta(minutes=1)
OPTIONS: dict[str, Any] = {"held_for": "5m", "grace": "1h"}

urlpatterns = [
    path("health", HealthView.as_view(**OPTIONS)),
    path("details", HealthView.as_view(public=True, **OPTIONS)),
    path("token", HealthView.as_view(token="sesame", **OPTIONS)),
    path("plain", HealthView.as_view(public=True)),
    path("other", HealthView.as_view(public=True, provider="other")),
    path("patient", HealthView.as_view(public=True, grace="4d")),
    path("kept", HealthView.as_view(public=True, keep_for="1h", **OPTIONS)),
    path("fresh", HealthView.as_view(public=True, keep_for=0, **OPTIONS)),
    path("brief", HealthView.as_view(public=True, keep_for="50ms", **OPTIONS)),
    path("fewer", HealthView.as_view(public=True, ignored=["import:*"], **OPTIONS)),
    path("strict", HealthView.as_view(public=True, clock_tolerance="10s")),
    path("balancer", HealthView.as_view(public=True, fail_on="critical", **OPTIONS)),
]


def age(name: str, by: timedelta) -> None:
    LockRecord.objects.filter(name=name).update(locked_at=DatabaseNow() - by)


def stick(name: str = "job") -> None:
    """Let a job run for longer than the views here allow."""
    take(name)
    age(name, 6 * MINUTE)


def refuse(execute: Any, sql: str, *arguments: Any) -> Any:
    raise DatabaseError("no reading today")


def set_clock_ahead(monkeypatch: pytest.MonkeyPatch, by: timedelta) -> None:
    def now(provider: DatabaseLockProvider) -> datetime:
        return timezone.now() + by

    monkeypatch.setattr(DatabaseLockProvider, "now", now)


def details(address: str = "/details") -> list[tuple[str, str | None]]:
    """Return the findings that the view tells."""
    answer = Client().get(address).json()
    return [(found["kind"], found["lock"]) for found in answer["findings"]]


def test_view_says_what_check_says() -> None:
    """There is one verdict: a job that failed three times is no good health."""
    for _ in range(3):
        end_run("job", RunOutcome.FAILED)
    answer, printed = Client().get("/details"), io.StringIO()
    with pytest.raises(SystemExit, match="1"):
        call_command("shedlock", "check", "--json", stdout=printed)
    assert (answer.status_code, answer.json()["status"]) == (503, "not ok")
    [found], [checked] = answer.json()["findings"], json.loads(printed.getvalue())
    assert {"severity": "warning", **found} == checked
    assert Client().get("/health").status_code == 503


@pytest.mark.parametrize("use_tz", [True, False])
def test_all_is_well(use_tz: bool) -> None:
    """Where all locks work the status is 200, and nobody keeps the answer."""
    take("job")
    with override_settings(USE_TZ=use_tz):
        answer = Client().get("/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    assert "no-store" in answer.headers["Cache-Control"]
    assert Client().head("/health").status_code == 200


def test_class_beside_it_is_asked(rf: RequestFactory) -> None:
    """A subclass may inherit a check of another view, too; nothing is cached then."""

    class Closed(View):
        def dispatch(self, *args: Any, **kwargs: Any) -> HttpResponse:
            return HttpResponse(status=418)

    closed = type("ClosedHealthView", (HealthView, Closed), {})
    answer = closed.as_view()(rf.get("/"))
    assert answer.status_code == 418
    assert "no-store" in answer.headers["Cache-Control"]


def test_store_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    """Without its store the view answers 503, and why stands in the log only."""
    with connection.execute_wrapper(refuse):
        answer = Client().get("/health")
    assert (answer.status_code, answer.json()) == (503, {"status": "not ok"})
    assert "no reading today" in caplog.text


def test_user_that_cannot_be_read() -> None:
    """The view answers also if the store of its users is down with that of locks."""
    client = operator("view_lockrecord")
    with connection.execute_wrapper(refuse):
        answer = client.get("/health")
    assert (answer.status_code, answer.json()) == (503, {"status": "not ok"})


@pytest.mark.django_db(transaction=True)
def test_missing_table() -> None:
    """A store without the table of locks is not well."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE shedlock RENAME TO elsewhere")
    try:
        assert details("/plain") == [("unreachable", None)]
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE elsewhere RENAME TO shedlock")


@pytest.mark.parametrize("use_tz", [True, False])
@pytest.mark.parametrize("seconds", [45, -45])
def test_clocks_that_differ(
    monkeypatch: pytest.MonkeyPatch, seconds: int, use_tz: bool
) -> None:
    """A store whose clock is 30 s off, and more, is told, in either direction."""
    set_clock_ahead(monkeypatch, timedelta(seconds=seconds))
    with override_settings(USE_TZ=use_tz):
        assert details() == [("clock", None)]


def test_tolerated_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """How far the clocks may be apart is an option."""
    set_clock_ahead(monkeypatch, timedelta(seconds=20))
    assert details() == []
    assert details("/strict") == [("clock", None)]


def test_stuck_job() -> None:
    """A job that runs for longer than the option says is told."""
    stick()
    take("quick")
    assert details() == [("long", "job")]
    assert Client().get("/health").status_code == 503
    assert details("/plain") == []


def test_job_that_ended_is_not_stuck() -> None:
    """Locks that are kept, expired or free have no job that could be stuck."""
    take("kept", lock_at_least_for=MINUTE).release()
    take("expired")
    take("free").release()
    for name in ("kept", "expired", "free"):
        age(name, timedelta(hours=1))
    LockRecord.objects.filter(name="kept").update(lock_until=DatabaseNow() + MINUTE)
    expire("expired")
    assert details() == [("expired", "expired")]


def test_overdue_job() -> None:
    """A job whose tick has not succeeded is told, after as long as the option says."""
    take("overdue").release()
    be_overdue("overdue")
    take("on time").release()
    be_on_time("on time")
    take("without a schedule").release()
    assert details() == [("overdue", "overdue")]
    assert Client().get("/health").status_code == 503
    assert details("/plain") == [("overdue", "overdue")]
    assert details("/patient") == []


def test_details_only_for_those_who_may_see_them() -> None:
    """The names of locks are for staff with the permission, and for the token."""
    stick("secret")
    assert "secret" not in Client().get("/health").content.decode()
    assert "secret" not in operator().get("/health").content.decode()
    seen = Client().get("/token", headers={"Authorization": "Bearer sesame"})
    assert "secret" in seen.content.decode()


def test_staff_with_permission_sees_details() -> None:
    """Who may see the locks in the admin learns which one is stuck, and who runs it."""
    stick("secret")
    [found] = operator("view_lockrecord").get("/health").json()["findings"]
    assert (found["lock"], found["provider"]) == ("secret", "default")
    assert LockRecord.objects.get().locked_by in found["sentence"]
    assert found["command"] == "python manage.py shedlock show secret --held-for 5m"


def test_every_provider_is_asked() -> None:
    """
    The health view asks every provider, and one that fails is enough.

    A view may also ask a single provider.
    """
    providers = {
        "broken": {"BACKEND": "no.such.provider"},
        "other": MEMORY_PROVIDERS["default"],
    }
    with override_settings(SHEDLOCK_PROVIDERS=providers):
        assert details() == [("unreachable", None)]
        assert details("/other") == []


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("clock_tolerance", "soon", "clock_tolerance: 'soon' is not a duration"),
        ("held_for", "5", "held_for: '5' has no unit"),
        ("grace", -60, "grace=-60 must not be negative"),
        ("keep_for", None, "keep_for: None is not a duration"),
        ("ignored", "import:*", r"ignored='import:\*' must be a list"),
        ("fail_on", "critcal", "fail_on='critcal' must be 'warning' or 'critical'"),
    ],
)
def test_wrong_option_is_refused_when_urls_are_loaded(
    option: str, value: Any, text: str
) -> None:
    """A view, a class of one, and a check with a wrong option can't be made."""
    made = type("OwnHealthView", (HealthView,), {option: value})
    for make in (HealthView.as_view, HealthCheck):
        with pytest.raises(ValueError, match=text):
            make(**{option: value})
    with pytest.raises(ValueError, match=text):
        made.as_view()


class BrokenProvider:
    def __init__(self, alias: str, **options: Any):
        raise ValueError("no database at redis://:s3cr3t@db")


def test_error_of_the_settings_is_told_without_its_secrets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A finding is mailed and posted, whatever the error is that it tells of."""
    broken = {"default": {"BACKEND": f"{__name__}.BrokenProvider"}}
    with override_settings(SHEDLOCK_PROVIDERS=broken):
        [found] = Client().get("/plain").json()["findings"]
    assert "no database at redis://:***" in found["sentence"]
    assert "s3cr3t" not in found["sentence"] + caplog.text


def test_load_balancer_keeps_a_host_whose_jobs_fail() -> None:
    """With ``fail_on`` less severe findings are shown, and the status is 200."""
    stick()
    answer = Client().get("/balancer")
    assert (answer.status_code, answer.json()["status"]) == (200, "ok")
    assert details("/balancer") == details("/details") == [("long", "job")]
    with connection.execute_wrapper(refuse):
        answer = Client().get("/balancer")
    assert (answer.status_code, answer.json()["status"]) == (503, "not ok")


def test_own_view_asks_whether_a_check_fails() -> None:
    """A verdict has all findings, and says whether one of them is severe enough."""
    stick()
    for fail_on, fails in (("warning", True), ("critical", False)):
        verdict = HealthCheck(held_for="5m", fail_on=fail_on).verdict(["default"])
        assert ([found.lock for found in verdict.findings], verdict.fails) == (
            ["job"],
            fails,
        )


@pytest.mark.parametrize("providers", [{}, ["default"]])
def test_settings_with_which_no_job_runs(providers: Any) -> None:
    """Unusable provider settings are a finding, and no server error."""
    with override_settings(SHEDLOCK_PROVIDERS=providers):
        assert details() == [("unreachable", None)]


def test_ignored_locks() -> None:
    """A view can leave out what another one looks at."""
    stick("import:7")
    assert details() == [("long", "import:7")]
    assert details("/fewer") == []


def test_statements(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    """A check of locks that need nobody costs three statements."""
    take("free").release()
    with django_assert_num_queries(3 * 3):  # each in a savepoint of the test's
        Client().get("/details")


def test_list_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be many findings: the most urgent ones are enough."""
    monkeypatch.setattr(
        "django_shedlock.console.monitoring.health.ANSWER_FINDING_LIMIT", 3
    )
    for number in range(5):
        stick(f"stuck-{number}")
    assert len(details()) == 3


@pytest.mark.each_store
def test_bad_record_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unreadable record is a finding, and does not hide the others."""
    stick("stuck")
    stick("broken")
    make_record_unreadable(monkeypatch)
    assert sorted(details()) == [("long", "stuck"), ("unreadable", "broken")]


class TestVerdicts:
    """What a check finds is kept for some time."""

    pytestmark = pytest.mark.django_db(transaction=True)

    @pytest.fixture(autouse=True)
    def empty_cache(self) -> None:
        cache.clear()

    def test_verdict_is_kept(self) -> None:
        """Callers share a check for some seconds; who may see more learns its age."""
        assert Client().get("/kept").json() == {
            "status": "ok",
            "findings": [],
            "age": ANY,
        }
        stick()
        kept = Client().get("/kept").json()
        assert (kept["status"], kept["age"] > 0) == ("ok", True)
        assert Client().get("/fresh").json()["status"] == "not ok"

    def test_verdict_ends(self) -> None:
        """The store is asked again after a verdict's time is over."""
        assert Client().get("/brief").json()["status"] == "ok"
        stick()

        def is_told() -> bool:
            return bool(Client().get("/brief").json()["status"] == "not ok")

        assert wait_for(is_told)

    @pytest.mark.each_store
    def test_other_options_are_another_check(self) -> None:
        """A view does not tell what another one found."""
        stick("import:7")
        assert Client().get("/details").status_code == 503
        assert Client().get("/fewer").status_code == 200

    def test_cache_that_is_down(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each call checks the locks while the cache is down."""
        monkeypatch.setattr(LocMemCache, "get", refuse)
        monkeypatch.setattr(LocMemCache, "set", refuse)
        assert Client().get("/kept").status_code == 200
        stick()
        assert Client().get("/kept").status_code == 503

    @pytest.mark.servers_only
    def test_table_that_somebody_locked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A store that does not answer is a 503 by the deadline, and says why."""
        watched = connecting.PrivateConnections
        monkeypatch.setattr(watched, "answer_timeout_seconds", 0.5)
        monkeypatch.setattr(watched, "watch_interval_seconds", 0.05)
        with locked_table():
            answer = Client().get("/fresh")
            assert answer.status_code == 503
            [found] = answer.json()["findings"]
            assert "another transaction has locked its table" in found["sentence"]
        monkeypatch.undo()  # a machine that is busy may answer late
        assert Client().get("/fresh").status_code == 200


@contextmanager
def locked_table() -> Iterator[None]:
    """Let another connection keep the table of locks to itself."""
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            if connection.vendor == "postgresql":
                cursor.execute("BEGIN")
                cursor.execute("LOCK TABLE shedlock IN ACCESS EXCLUSIVE MODE")
            else:
                cursor.execute("LOCK TABLES shedlock WRITE")
        yield
    finally:
        other.close()
