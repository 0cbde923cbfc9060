"""Jobs that are so short that each host runs the same tick."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client, RequestFactory, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from django_shedlock import execute
from django_shedlock.console.monitoring import repetitions
from django_shedlock.console.monitoring.findings import Finding, Kind
from django_shedlock.console.monitoring.search import Search
from django_shedlock.contrib.prometheus.views import MetricsView
from django_shedlock.locks.states import RunOutcome
from django_shedlock.models import LockRun
from django_shedlock.providers import get_provider
from tests.support.locks import MINUTE, add_run
from tests.support.operators import LIST

pytestmark = [pytest.mark.django_db, pytest.mark.each_store]

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
START = datetime.now(UTC)


def ran(host: str, ago: timedelta, name: str = "job", **columns: Any) -> None:
    columns = {"trigger": "scheduler", "started": START - ago, **columns}
    add_run(name, locked_by=f"{host}:7:a", **columns)


def twice(**columns: Any) -> None:
    """Let the job run on two hosts, a second apart."""
    ran("web-1", HOUR, **columns)
    ran("web-2", HOUR - SECOND, **columns)


def found(search: Search | None = None) -> list[Finding]:
    findings = (search or Search(MINUTE)).attention(get_provider()).findings
    return [each for listed in findings.values() for each in listed]


Hosts = Callable[[str], None]


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Hosts:
    """Let this process be on another host from now on."""
    return lambda host: monkeypatch.setattr(
        "django_shedlock.locks.lock.identity_of", lambda pid: f"{host}:{pid}:"
    )


def test_second_host_runs_what_the_first_has_run(on: Hosts) -> None:
    """Both hosts, the time and what to do are told, whoever holds the lock now."""
    for host in ("web-1", "web-2"):
        on(host)
        assert execute(lambda: None, "job").was_executed
    [finding] = found()
    assert (finding.kind, finding.lock) == (Kind.REPEATED, "job")
    assert finding.command == "python manage.py shedlock history job"
    told = finding.sentence
    assert told.startswith("Its job ran on web-1 at 20")
    assert ", and again on web-2 " in told
    assert "schedule=" in told
    assert "lock_at_least_for such as 30s" in told
    assert Search(MINUTE).of_locks(get_provider(), ["job"]) == {"job": [finding]}


def test_job_with_a_schedule_is_none() -> None:
    """Each tick runs once; so does each to come, if the job got its schedule since."""
    twice()
    assert [each.kind for each in found()] == [Kind.REPEATED]
    execute(lambda: None, "job", schedule="@daily")
    assert found() == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"host": "web-1"}),
        ({}, {"ago": HOUR - 6 * SECOND}),
        ({}, {"name": "import:umbrella"}),
        ({}, {"provider": "other"}),
        ({}, {"trigger": "operator"}),
        ({"trigger": "operator"}, {}),
        ({}, {"trigger": "catch-up"}),
        ({}, {"trigger": "retry"}),
        ({"ago": 25 * HOUR}, {"ago": 25 * HOUR - SECOND}),
    ],
    ids=str,
)
def test_other_runs_are_none(first: dict[str, Any], second: dict[str, Any]) -> None:
    """One host, later, of another lock, asked for by somebody, or long ago."""
    for host, run in (("web-1", first), ("web-2", second)):
        ago = HOUR if host == "web-1" else HOUR - SECOND
        ran(**{"host": host, "ago": ago, "name": "import:acme", **run})
    assert found() == []
    ran("web-1", timedelta(0), "import:acme")
    ran("web-2", timedelta(0), "import:acme")
    assert [each.lock for each in found()] == ["import:acme"]


def test_run_after_a_failure_is_none() -> None:
    """Another host may try again what has failed."""
    ran("web-1", HOUR, outcome=RunOutcome.FAILED)
    ran("web-2", HOUR - SECOND)
    assert found() == []


def test_last_repetition_is_told() -> None:
    """Of three hosts at each of two ticks it is that of the newest two runs."""
    for tick in (HOUR, 2 * HOUR):
        for number in range(3):
            ran(f"web-{number}", tick - number * SECOND)
    [finding] = found()
    assert "ran on web-1 at " in finding.sentence
    assert "again on web-2 1s later" in finding.sentence


def test_ignored_lock() -> None:
    """Whoever leaves out the lock does not hear of it."""
    twice()
    assert found(Search(MINUTE, ignored=("jo*",))) == []


def test_acknowledged_once_it_is_silent() -> None:
    """A queue may hand a task to any worker, again and again: that is no news."""
    twice()
    call_command(
        "shedlock", "acknowledge", "job", "--reason", "a queue", stdout=StringIO()
    )
    assert found() == []
    ran("web-3", MINUTE)
    ran("web-4", MINUTE)
    assert found() == []
    [finding] = found(Search(MINUTE, acknowledged=True))
    assert "a queue" in finding.acknowledged


def test_everybody_tells_of_it(admin_client: Client) -> None:
    """``check`` with its JSON, the admin's list, and the metrics."""
    twice()
    out = StringIO()
    with pytest.raises(SystemExit) as status:
        call_command("shedlock", "check", "--json", stdout=out)
    [row] = json.loads(out.getvalue())
    assert (status.value.code, row["kind"], row["lock"]) == (1, "repeated", "job")
    execute(lambda: None, "job")
    page = admin_client.get(reverse(LIST), {"attention": "repeated"})
    assert "ran on two hosts" in page.content.decode()
    assert "again on web-2 1s later" in page.content.decode()
    metrics = MetricsView.as_view(public=True)(RequestFactory().get("/metrics"))
    line = 'shedlock_repeated{lock="job",provider="default"} 1.0'
    assert line in metrics.content.decode()
    execute(lambda: None, "another")
    with override_settings(SHEDLOCK_METRICS_MAX_LOCKS=1):
        few = MetricsView.as_view(public=True)(RequestFactory().get("/metrics"))
    assert line in few.content.decode()


def test_only_the_newest_runs_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the history is, one statement reads a few runs, by an index."""
    twice()
    ran("web-1", MINUTE, "another")
    monkeypatch.setattr(repetitions, "NEWEST", 2)
    assert found() == []
    monkeypatch.setattr(repetitions, "NEWEST", 3)
    assert [each.kind for each in found()] == [Kind.REPEATED]
    with CaptureQueriesContext(connection) as captured:
        repetitions.repetitions(get_provider())
    [sql] = [each["sql"] for each in captured if "SELECT" in each["sql"]]
    assert sql.rstrip().endswith("LIMIT 3")
    # By the column itself: by what is selected of it, each row would be sorted.
    quote = connection.ops.quote_name
    column = f"{quote('shedlock_run')}.{quote('started')}"
    assert f"ORDER BY {column} DESC LIMIT" in sql
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("EXPLAIN QUERY PLAN " + sql.replace("%", "%%"))
            plan = str(cursor.fetchall())
        assert "shedlock_run_started" in plan
        assert "TEMP B-TREE" not in plan
    assert LockRun.objects.count() == 3
