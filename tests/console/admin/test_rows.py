"""The list of locks when it is long, refreshed, bounded, or acted on."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
from django.contrib import admin
from django.contrib.admin import ModelAdmin
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils.translation import override

from django_shedlock.beat.catch_up import note_catch_up
from django_shedlock.console.admin import LockRecordAdmin, filters, rows
from django_shedlock.console.models import ActionKind
from django_shedlock.console.monitoring.kinds import Kind, fact_of
from django_shedlock.locks.status import LockState, RunOutcome
from django_shedlock.models import LockRecord
from django_shedlock.providers import get_provider
from django_shedlock.sql.compiling import Select
from django_shedlock.sql.fields import DatabaseNow
from tests.console.admin.reading import (
    briefs,
    choices,
    cures,
    headline,
    html_of,
    names,
    states,
    to_refresh,
)
from tests.support import scenes
from tests.support.commands import call
from tests.support.last_runs import end_run
from tests.support.lateness import be_overdue
from tests.support.locks import expire, state, take
from tests.support.operators import (
    ALL,
    LIST,
    RUN,
    confirm,
    operator,
    statements,
    superuser,
)
from tests.support.pages import add_action

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)
REFRESH: Any = {"headers": {"X-Shedlock-Refresh": "yes"}}


@pytest.fixture
def incident() -> None:
    """A lock in each state, and for each common finding; the urgent ones are last."""
    scenes.each_state()


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the list search for two locks only."""
    monkeypatch.setattr(filters, "LISTED_FINDING_LIMIT", 2)


def open_list(client: Client, query: str = "") -> str:
    return html_of(client.get(reverse(LIST) + query))


def initials(page: Any) -> str:
    """Return the first letters of the listed locks, in their order."""
    return "".join(name[0] for name in names(page))


@pytest.mark.each_store
def test_acknowledged_expired_lock_is_counted_by_its_state(viewer: Client) -> None:
    """An acknowledged expired lock is neither wrong nor well, and counts as expired."""
    for name in ("known", "new"):
        take(name)
        expire(name)
    page = open_list(viewer)
    assert (headline(page), states(page)) == ("2 locks expired", {})
    assert "There are no locks yet" not in page
    call("acknowledge", "known", "--reason", "it is looked at")
    page = open_list(viewer)
    assert headline(page) == "1 lock expired · 1 acknowledged"
    assert states(page) == {"expired": 1}
    # The run is still open, but another service has acquired the lock since.
    take("new")
    LockRecord.objects.filter(name="new").update(open_run="web-1:7:gone")
    assert states(open_list(viewer)) == {"expired": 1, "running": 1}


@pytest.mark.each_store
@pytest.mark.usefixtures("few")
def test_list_of_too_many_is_not_calm(viewer: Client) -> None:
    """No job is said to be well if locks were left out of the search."""
    for name in ("a", "b", "c"):
        take(name)
        expire(name)
    assert "well." not in headline(open_list(viewer))
    for name in ("a", "b", "c"):
        call("acknowledge", name, "--reason", "it is looked at")
    page = open_list(viewer)
    assert "most urgent locks are counted" in page
    assert headline(page) == "more than 2 locks may need attention"


@pytest.mark.usefixtures("incident", "few")
def test_counters_of_many_are_bounded(viewer: Client) -> None:
    """
    A long list counts overdue jobs first, then the bad ends that are longest ago.

    Each lock on the page has its findings all the same.
    """
    page = open_list(viewer)
    assert choices(page) == {
        "overdue": "1 job overdue",
        "abandoned": "1 run never reported its end",
    }
    assert headline(page) == (
        "1 job overdue, 1 run never reported its end · more than 2 locks may need "
        "attention"
    )
    assert "Only the 2 most urgent locks are counted and filtered here" in page
    assert states(page)["expired"] == 1  # which is none of these two
    assert sorted(name[0] for name in briefs(page)) == list("ceefghij")


@pytest.mark.each_store
@pytest.mark.usefixtures("incident")
def test_subclass_counts_only_what_it_shows(
    viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A project's own admin that leaves locks out does not count them either."""
    everything = LockRecordAdmin.get_queryset

    def get_queryset(self: LockRecordAdmin, request: Any) -> Any:
        return everything(self, request).filter(name__lt="g")

    monkeypatch.setattr(LockRecordAdmin, "get_queryset", get_queryset)
    page = open_list(viewer)
    assert headline(page) == (
        "1 lock was lost, 2 runs never reported their end, 1 pause has no end · 3 well"
    )
    assert states(page) == {"running": 1, "paused": 1, "held at least": 1, "free": 4}
    assert list(briefs(page)) == ["f.lost", "e.abandoned", "e.unknown", "c.paused"]


@pytest.fixture
def hundreds() -> None:
    """Let 300 locks be expired, whose last runs failed, and the ones before lost."""
    now = DatabaseNow()
    LockRecord.objects.bulk_create(
        LockRecord(
            name=f"job-{number}",
            locked_by=f"web-1:{number}:a",
            locked_at=now - 2 * MINUTE,
            lock_until=now - MINUTE,
            open_run=f"web-1:{number}:a",
            last_run=f"web-1:{number}:b",
            outcome=RunOutcome.FAILED.value,
            started_at=now - 9 * MINUTE,
            ended_at=now - 8 * MINUTE,
            failures=1,
            lost_at=now - 10 * MINUTE,
            lost_run=f"web-1:{number}:c",
        )
        for number in range(300)
    )


@pytest.mark.each_store
@pytest.mark.usefixtures("hundreds")
def test_list_of_hundreds_is_sixteen_statements_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    A list and its refresh need so many, with those of session and permissions.

    There are more locks than the search for what needs attention returns.
    """
    assert filters.LISTED_FINDING_LIMIT < 300
    monkeypatch.setattr(LockRecordAdmin, "list_per_page", 10)
    chief = operator(*ALL)
    chief.get(reverse(LIST))
    sent = {}
    queries = ("", "?attention=any", "?last=failed", "?state=expired", "?q=job-2")
    for query in (*queries, "?p=30"):
        address = reverse(LIST) + query
        with CaptureQueriesContext(connection) as captured:
            page: Any = chief.get(address)
        sent[query] = len(statements(captured))
        assert len(briefs(html_of(page))) == 10
        shown = {rows.SHOWN_FIELD: names(page)}
        with CaptureQueriesContext(connection) as captured:
            parts: Any = chief.post(address, shown, **REFRESH)
        assert len(briefs(html_of(parts))) == 10
        sent[f"refresh of {query}"] = len(statements(captured))
    assert max(sent.values()) <= 16, sent


@pytest.mark.each_store
@pytest.mark.usefixtures("incident")
def test_list_is_fourteen_statements_at_most() -> None:
    """
    That is with two of session and user, for any number and kind of locks.

    Order, filter, headline and rows share one search. One statement looks up the runs
    to which the page links, and three read the last 24 hours of the page's locks.
    """
    get_provider().request_run("j.overdue", "alice", "a customer waits")
    root = superuser()
    queries = ("", "?attention=any", "?attention=lost", "?last=failed", "?q=.")
    root.get(reverse(LIST))
    for more in (0, 60):
        for number in range(more):
            take(f"job.{number}").release()
            end_run(f"job.{number}", RunOutcome.FAILED)
            take(f"job.{number}")  # its last run is the one before
        sent = {}
        for query in queries:
            with CaptureQueriesContext(connection) as captured:
                page = root.get(reverse(LIST) + query)
            sent[query] = len(statements(captured))
            assert "The run</a>" in html_of(page)
            if query in ("", "?q=."):
                assert page.context["cl"].result_count == LockRecord.objects.count()
        assert max(sent.values()) <= 14, sent


@pytest.mark.each_store
@pytest.mark.usefixtures("incident")
def test_refresh_of_a_long_list_is_a_part(
    viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The refresh of a long list sends only some of the locks.

    Those are the locks that need attention, and the ones that the page already shows.
    """
    assert "data-shedlock-long" not in open_list(viewer)
    monkeypatch.setattr(rows, "WHOLE_REFRESH_LOCK_LIMIT", 10)
    page = open_list(viewer)
    assert "data-shedlock-long" in page
    assert to_refresh(page) == ["headline", "attention", "locks"]
    shown = {rows.SHOWN_FIELD: ["a.free", "h.expired", "gone"]}
    with CaptureQueriesContext(connection) as captured:
        answer: Any = viewer.post(reverse(LIST), shown, **REFRESH)
    parts = html_of(answer)
    assert to_refresh(parts) == to_refresh(page)
    assert initials(answer) == "jihgfeeca"
    assert headline(parts) == headline(page)
    of_all = [
        sql
        for sql in statements(captured)
        if re.search(r"FROM .shedlock. ", sql) and not re.search(r"name. IN \(", sql)
    ]
    # The clock, and the search for what needs attention.
    assert [("MAX(" in sql) for sql in of_all] == [True, False]


@pytest.mark.each_store
@pytest.mark.usefixtures("incident")
def test_refresh_of_a_long_list_keeps_to_it(viewer: Client) -> None:
    """What the filter leaves out goes; a further or sorted page gets nothing new."""
    shown = {rows.SHOWN_FIELD: ["a.free", "d.running"]}
    found = {"?state=running": "gd", "?p=2": "da", "?o=0": "ad"}
    for query, expected in found.items():
        page: Any = viewer.post(reverse(LIST) + query, shown, **REFRESH)
        assert (query, initials(page)) == (query, expected)


def test_list_compiles_what_django_made(viewer: Client) -> None:
    """Findings and their actions are sent by statements that are kept."""
    take("job").release()
    end_run("job", RunOutcome.FAILED)
    viewer.get(reverse(LIST))
    with patch.object(Select, "_compile") as compiled:
        viewer.get(reverse(LIST))
    assert not compiled.called


def test_checkbox_is_djangos() -> None:
    """The checkbox has the same HTML as Django's, without a template."""
    record = LockRecord(name="<job> & 'others'")
    pages: Any = LockRecordAdmin(LockRecord, admin.site)
    with override("de"):
        made = pages.action_checkbox(record)
        assert made == ModelAdmin.action_checkbox(pages, record)


def press(client: Client, value: str, **fields: Any) -> Any:
    """Press a button below a lock."""
    return client.post(reverse(LIST), {"action": "", "shedlock_cure": value, **fields})


def test_job_that_may_still_run_is_not_to_be_run() -> None:
    """An overdue job is, unless its last run may still go on."""
    take("over").release()
    take("dead")
    expire("dead")
    for name in ("over", "dead"):
        be_overdue(name)
    client = operator("view_lockrecord", "run_lockrecord")
    assert cures(open_list(client)) == {}  # nobody would carry it out
    note_catch_up(get_provider())
    assert cures(open_list(client)) == {"over": ["Run job now…"]}


@pytest.mark.usefixtures("incident")
def test_cure_asks_about_its_lock_alone(chief: Client) -> None:
    """What else is selected does not matter; then it is released as usual."""
    fields = {"_selected_action": ["d.running"], "select_across": "1"}
    page = press(chief, "release_selected h.expired", **fields)
    assert [lock.record.name for lock in page.context["meant"]] == ["h.expired"]
    record = LockRecord.objects.get(name="h.expired")
    confirm(chief, "h.expired", record.locked_by)
    assert state("h.expired") is LockState.FREE
    assert state("d.running") is LockState.RUNNING


@pytest.mark.usefixtures("incident")
def test_forged_cure_does_nothing(viewer: Client) -> None:
    """Without the permission, or with another value, the list comes back."""
    for value in ("release_selected h.expired", "", "\0 \0", "x y"):
        assert press(viewer, value).status_code in (200, 302)
    assert state("h.expired") is LockState.EXPIRED
    assert not LogEntry.objects.exists()


def test_bad_run_is_linked_until_it_is_acknowledged(viewer: Client) -> None:
    """A loss is linked though a later run has succeeded; what is known is not."""
    for name in ("lost", "failed"):
        take(name).release()
    lost = end_run("lost", RunOutcome.LOST)
    end_run("lost")
    failed = end_run("failed", RunOutcome.FAILED)
    be_overdue("failed")
    facts = fact_of(Kind.FAILED, failed.locked_by)
    add_action("failed", kind=ActionKind.ACKNOWLEDGE, facts=facts)
    page = open_list(viewer)
    assert cures(page) == {"lost": ["The run"]}
    assert f'href="{reverse(RUN, args=[lost.pk])}"' in page
    assert [line.split()[0] for line in briefs(page)["failed"]] == ["Overdue"]


@pytest.mark.each_store
def test_incident_among_hundreds(viewer: Client) -> None:
    """Whatever is chosen of a long list, those that need somebody come first."""
    scenes.incident()
    found = {
        "": 308,
        "?p=2": 308,
        "?attention=any": 6,
        "?state=free": 304,
        "?state=running": 2,
        "?state=running&attention=any": 1,
    }
    for query, expected in found.items():
        page = viewer.get(reverse(LIST) + query)
        assert (query, page.context["cl"].result_count) == (query, expected)
        urgent = list(briefs(html_of(page)))
        assert names(page)[: len(urgent)] == urgent
