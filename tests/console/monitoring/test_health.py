"""The health of the locks, for machines and for people."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import ANY

import pytest
from django.db import DatabaseError, connection
from django.test import Client, override_settings
from django.urls import path
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from django_shedlock.console.monitoring.findings import Finding, Kind
from django_shedlock.console.monitoring.health import (
    HealthCheck,
    HealthView,
    find_problems,
)
from django_shedlock.console.monitoring.verdicts import MOST_UNDER_WAY, Verdicts
from django_shedlock.fields import DatabaseNow
from django_shedlock.models import LockRecord
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.test import MEMORY
from tests.support.lateness import be_on_time, be_overdue
from tests.support.locks import expire, take
from tests.support.operators import operator
from tests.support.records import counted_records, make_unreadable
from tests.support.threads import Asides
from tests.support.waiting import PATIENCE, wait_for

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]

MINUTE = timedelta(minutes=1)
DEADLINE = 2
"""Seconds: many more than five answers take that do not wait."""
OPTIONS: dict[str, Any] = {"stuck_after": "5m", "overdue_after": "1h"}

urlpatterns = [
    path("health", HealthView.as_view(**OPTIONS)),
    path("details", HealthView.as_view(public=True, **OPTIONS)),
    path("token", HealthView.as_view(token="sesame", **OPTIONS)),
    path("plain", HealthView.as_view(public=True)),
    path("other", HealthView.as_view(public=True, provider="other")),
    path("patient", HealthView.as_view(public=True, overdue_after="4d")),
    path("kept", HealthView.as_view(public=True, keep_for="1h", **OPTIONS)),
    path("fresh", HealthView.as_view(public=True, keep_for=0, **OPTIONS)),
    path("brief", HealthView.as_view(public=True, keep_for="50ms", **OPTIONS)),
    path("hasty", HealthView.as_view(public=True, deadline="10ms", keep_for=0)),
    path("deadline", HealthView.as_view(public=True, deadline=DEADLINE, keep_for=0)),
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
    return [(problem["kind"], problem["lock"]) for problem in answer["findings"]]


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
    [problem] = operator("view_lockrecord").get("/health").json()["findings"]
    assert (problem["lock"], problem["provider"]) == ("secret", "default")
    assert LockRecord.objects.get().locked_by in problem["sentence"]


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


@pytest.mark.parametrize(
    "option",
    ["clock_tolerance", "stuck_after", "overdue_after", "keep_for", "deadline"],
)
def test_wrong_option_is_no_store_that_hangs(option: str) -> None:
    """It is refused before a thread could die of it."""
    with pytest.raises(ValueError, match="soon"):
        HealthCheck(**{option: "soon"})


def test_statements(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    """A check costs one statement, and one more to look for what is late."""
    with django_assert_num_queries(1 * 3):  # each in a savepoint of the test's
        Client().get("/plain")
    with django_assert_num_queries(2 * 3):
        Client().get("/details")


def test_others_cost_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may not see the findings needs only one; the others get a bounded list."""
    monkeypatch.setattr("django_shedlock.console.monitoring.health.MOST", 3)
    for number in range(5):
        stick(f"stuck-{number}")
        take(f"quick-{number}")
    with counted_records(monkeypatch) as read:
        assert Client().get("/health").status_code == 503
        assert len(read) == 1
        assert len(details()) == 3
        assert len(read) == 1 + 3


def test_bad_record_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not hide the others, and the answer is no error of the server."""
    stick("stuck")
    stick("broken")
    make_unreadable(monkeypatch, LockRecord, "schedule_state")
    assert sorted(details()) == [("long", "stuck"), ("unreadable", "broken")]


class TestVerdicts:
    """What a check finds is kept, and a store that hangs holds up one thread."""

    pytestmark = pytest.mark.django_db(transaction=True)

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
        """After that the store is asked again."""
        assert Client().get("/brief").json()["status"] == "ok"
        stick()

        def is_told() -> bool:
            return bool(Client().get("/brief").json()["status"] == "not ok")

        assert wait_for(is_told)

    def test_other_options_are_another_check(self) -> None:
        """A view does not tell what another one found."""
        stick()
        assert Client().get("/plain").status_code == 200
        assert Client().get("/details").status_code == 503

    def test_one_thread_waits_for_a_store(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However many ask meanwhile; after the deadline no caller waits."""
        goes_on, asked = threading.Event(), []

        def hang(alias: str, **options: Any) -> list[Finding]:
            asked.append(alias)
            assert goes_on.wait(PATIENCE)
            return []

        monkeypatch.setattr(
            "django_shedlock.console.monitoring.health.find_problems", hang
        )
        asides = Asides()
        for _ in range(10):
            answer = Client().get("/hasty")
            assert answer.status_code == 503
            [problem] = answer.json()["findings"]
            assert problem["kind"] == "unreachable"
            assert "has not answered within 10ms" in problem["sentence"]
        assert (len(asked), len(asides)) == (1, 1)
        goes_on.set()
        assert wait_for(lambda: Client().get("/hasty").status_code == 200)
        assert wait_for(lambda: not asides)

    def test_check_that_never_ends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its connection may be dead: the store is asked again, in few threads."""
        monkeypatch.setattr("django_shedlock.console.monitoring.verdicts.PATIENCE", 0)
        kept, goes_on = Verdicts(), threading.Event()
        asides = Asides()

        def hang() -> list[Finding]:
            assert goes_on.wait(PATIENCE)
            return [
                Finding(Kind.UNREACHABLE, "default", None, "The connection is dead.")
            ]

        for _ in range(MOST_UNDER_WAY + 2):
            kept.begin("check", hang, timedelta(0))
        assert len(asides) == MOST_UNDER_WAY
        goes_on.set()
        assert wait_for(lambda: not asides)
        goes_on.clear()
        kept.begin("check", hang, timedelta(0))
        kept.begin("check", list, timedelta(0))
        verdict = kept.wait("check", timedelta(seconds=PATIENCE))
        assert verdict is not None
        goes_on.set()
        assert wait_for(lambda: not asides)
        # What the first check says at last is older.
        assert kept.wait("check", timedelta(0)) is verdict
        assert not verdict.findings

    def test_check_that_ends_without_a_verdict(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The next caller asks again."""
        monkeypatch.setattr(threading, "excepthook", lambda failed: None)
        kept = Verdicts()
        kept.begin("check", lambda: 1 / 0, timedelta(0))  # type: ignore[arg-type,return-value]
        assert kept.wait("check", timedelta(seconds=PATIENCE)) is None
        kept.begin("check", list, timedelta(0))
        assert kept.wait("check", timedelta(seconds=PATIENCE)) is not None

    def test_forked_child_asks_for_itself(self) -> None:
        """Its parent's threads are not there to end what they began."""
        kept, goes_on = Verdicts(), threading.Event()
        kept.begin("check", lambda: [goes_on.wait(PATIENCE)], timedelta(0))  # type: ignore[list-item]
        kept.forget()
        kept.begin("check", list, timedelta(0))
        assert kept.wait("check", timedelta(seconds=PATIENCE)) is not None
        goes_on.set()

    def test_number_of_verdicts_is_bounded(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As many checks as there may be, so much is kept."""
        monkeypatch.setattr("django_shedlock.console.monitoring.verdicts.MOST", 3)
        kept = Verdicts()
        for number in range(10):
            kept.begin(number, list, timedelta(0))
            assert kept.wait(number, timedelta(seconds=PATIENCE)) is not None
        assert len(kept._kept) <= 3

    @pytest.mark.servers_only
    def test_table_that_somebody_locked(self) -> None:
        """A store that does not answer is a 503 by the deadline, and says why."""
        asides, took = Asides(), []
        with locked_table():
            for _ in range(5):
                began = time.monotonic()
                answer = Client().get("/deadline")
                took.append(time.monotonic() - began)
                assert answer.status_code == 503
                [problem] = answer.json()["findings"]
                assert "another transaction has locked its table" in problem["sentence"]
            # The next ones do not wait for the same store again.
            assert min(took) < DEADLINE <= took[0]
            assert len(asides) == 1
        assert wait_for(lambda: Client().get("/deadline").status_code == 200)
        assert wait_for(lambda: not asides)


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
