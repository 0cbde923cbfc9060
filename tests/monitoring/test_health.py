"""The health of the locks, for machines and for people."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.test import Client, override_settings
from django.urls import path
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from django_shedlock.fields import DatabaseNow
from django_shedlock.models import LockRecord
from django_shedlock.monitoring.health import HealthView, find_problems
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.test import MEMORY
from tests.support.lateness import be_on_time, be_overdue
from tests.support.locks import expire, take
from tests.support.operators import operator

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]

MINUTE = timedelta(minutes=1)
OPTIONS: dict[str, Any] = {"stuck_after": "5m", "overdue_after": "1h"}

urlpatterns = [
    path("health", HealthView.as_view(**OPTIONS)),
    path("details", HealthView.as_view(public=True, **OPTIONS)),
    path("token", HealthView.as_view(token="sesame", **OPTIONS)),
    path("plain", HealthView.as_view(public=True)),
    path("other", HealthView.as_view(public=True, provider="other")),
    path("patient", HealthView.as_view(public=True, overdue_after="4d")),
    path("strict", HealthView.as_view(public=True, clock_tolerance="10s")),
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
    """Return the problems that the view tells."""
    answer = Client().get(address).json()
    return [(problem["kind"], problem["lock"]) for problem in answer["problems"]]


@pytest.mark.parametrize("use_tz", [True, False])
def test_all_is_well(use_tz: bool) -> None:
    """Where all locks work the status is 200, and nobody keeps the answer."""
    take("job")
    with override_settings(USE_TZ=use_tz):
        answer = Client().get("/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    assert "no-store" in answer.headers["Cache-Control"]
    assert Client().head("/health").status_code == 200


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
    assert details() == []


def test_overdue_job() -> None:
    """A job whose tick has not succeeded is told, after as long as the option says."""
    take("overdue").release()
    be_overdue("overdue")
    take("on time").release()
    be_on_time("on time")
    take("without a schedule").release()
    assert details() == [("overdue", "overdue")]
    assert Client().get("/health").status_code == 503
    assert details("/plain") == details("/patient") == []


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
    [problem] = operator("view_lockrecord").get("/health").json()["problems"]
    assert (problem["lock"], problem["provider"]) == ("secret", "default")
    assert LockRecord.objects.get().locked_by in problem["text"]


def test_every_provider_is_asked() -> None:
    """One provider that fails is enough; a view may also ask for a single one."""
    providers = {"broken": {"BACKEND": "no.such.provider"}, "other": MEMORY["default"]}
    with override_settings(SHEDLOCK_PROVIDERS=providers):
        assert details() == [("unreachable", None)]
        assert details("/other") == []


@pytest.mark.parametrize("option", ["clock_tolerance", "stuck_after", "overdue_after"])
def test_wrong_option_is_refused(option: str) -> None:
    """An option that is no duration is an error, and no bad health."""
    with pytest.raises(ValueError, match="soon"):
        find_problems(**{option: "soon"})


@pytest.mark.django_db(transaction=True)
def test_statements(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    """A check costs one statement, and one more to look for what is late."""
    with django_assert_num_queries(1):
        Client().get("/plain")
    with django_assert_num_queries(2):
        Client().get("/details")
