"""What needs somebody: first in the list, counted, told, and cured from there."""

from __future__ import annotations

import re
import socket
from datetime import timedelta
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
from django.contrib import admin
from django.contrib.admin import ModelAdmin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import path, reverse
from django.utils.text import capfirst
from django.utils.translation import override

from django_shedlock.beat.catch_up import note_catch_up
from django_shedlock.console.admin import LockRecordAdmin, filters, rows
from django_shedlock.console.models import ActionKind
from django_shedlock.console.monitoring.kinds import Kind, fact_of
from django_shedlock.console.monitoring.search import Search
from django_shedlock.locks.pauses import FOREVER
from django_shedlock.locks.status import LockState, RunOutcome
from django_shedlock.models import LockRecord, LockRecordQuerySet
from django_shedlock.providers import get_provider
from django_shedlock.sql.compiling import Select
from django_shedlock.sql.fields import DatabaseNow
from tests.console.admin.test_locks import age, first, names, scene, told
from tests.support import scenes
from tests.support.commands import call
from tests.support.last_runs import end_run
from tests.support.lateness import be_on_time, be_overdue
from tests.support.locks import add_run, expire, pause, state, take
from tests.support.operators import (
    ALL,
    HOSTILE,
    LIST,
    RUN,
    confirm,
    operator,
    statements,
)
from tests.support.pages import add_action

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)


@pytest.fixture
def incident() -> None:
    """A lock of each kind, its name in the order of urgency backwards."""
    take("a.free").release()
    take("b.kept", lock_at_least_for=MINUTE).release()
    pause("c.paused")
    take("d.running")
    take("e.abandoned").release()
    end_run("e.abandoned", RunOutcome.ABANDONED)
    take("f.lost").release()
    end_run("f.lost", RunOutcome.LOST)
    take("g.long")
    age("g.long", 9 * MINUTE)
    end_run("g.long", duration=MINUTE)
    take("h.expired")
    expire("h.expired")
    take("i.failed").release()
    end_run("i.failed", RunOutcome.FAILED, exception_type="ValueError")
    take("j.overdue").release()
    be_overdue("j.overdue")


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the list search for two locks only."""
    monkeypatch.setattr(filters, "LISTED_FINDING_LIMIT", 2)


@pytest.mark.usefixtures("incident")
def test_list_is_in_the_order_of_urgency(viewer: Client) -> None:
    """What needs somebody comes first, then by state."""
    shown = names(viewer.get(reverse(LIST)))
    assert [name[0] for name in shown] == list("jihgfedcba")


def without_durations(text: str) -> str:
    """Return the text without what differs from one second to the next."""
    return re.sub(r"\b(\d+[dhms])+\b", "", text)


@pytest.mark.usefixtures("incident")
def test_only_what_goes_on_has_lasted_for_some_time(viewer: Client) -> None:
    """An overdue job, a long run or a pause is "for 3d"; an event is "3d ago"."""
    pause("k.endless", lasting=FOREVER)
    age("k.endless", timedelta(days=3))
    shown = {lock.name: lock.lines for lock in scene(viewer.get(reverse(LIST))).locks}
    said = {name: lines[0] for name, lines in shown.items() if lines}
    lasting = {
        name for name, line in said.items() if re.search(r" for \d+[dhms]", line)
    }
    assert lasting == {"g.long", "j.overdue", "k.endless"}
    events = {name for name, line in said.items() if re.search(r"\d+[dhms] ago", line)}
    assert events == {"e.abandoned", "f.lost", "h.expired", "i.failed"}


@pytest.mark.usefixtures("incident")
def test_holder_is_named_once(viewer: Client) -> None:
    """The line above the strip leaves out a holder that a finding names."""
    pause("k.endless", lasting=FOREVER)
    age("k.endless", timedelta(days=3))
    html = viewer.get(reverse(LIST)).content.decode()
    rows_of_locks = re.findall(
        r'<tbody data-shedlock-key="lock (.*?)".*?>(.*?)</tbody>', html, re.S
    )
    lines = {
        name: first(r'<div class="shedlock-holding">(.*?)</div>', row)
        for name, row in rows_of_locks
    }
    holders = re.compile(rf"{re.escape(socket.gethostname())}|alice")
    naming = {name for name, line in lines.items() if holders.search(line)}
    assert naming == {"c.paused", "d.running"}


@pytest.mark.usefixtures("incident")
def test_list_says_what_check_says(viewer: Client) -> None:
    """Each finding is a line below its lock, with the words of ``shedlock check``."""
    page = viewer.get(reverse(LIST))
    said = Search(timedelta(minutes=5)).attention(get_provider()).findings
    shown = {lock.name: lock for lock in scene(page).locks}
    assert [name for name, lock in shown.items() if lock.lines] == list(said)
    for name, [finding] in said.items():
        [line], [details] = shown[name].lines, shown[name].details
        assert line.startswith(f"{capfirst(str(finding.kind.label))} ")
        assert without_durations(line).endswith(
            without_durations(f"· {finding.brief.meaning}")
        )
        assert without_durations(finding.sentence) in without_durations(details)
        assert finding.command in details
    [details] = shown["h.expired"].details
    assert "python manage.py shedlock show h.expired" in details


@pytest.mark.usefixtures("incident")
def test_list_counts_what_needs_somebody(viewer: Client) -> None:
    """The headline counts each kind, and the locks that are well."""
    shown = scene(viewer.get(reverse(LIST)))
    assert shown.choices == {
        "overdue": "1 job overdue",
        "failed": "1 job failed",
        "expired": "1 lock expired",
        "long": "1 job runs too long",
        "lost": "1 lock was lost",
        "abandoned": "1 run never reported its end",
    }
    assert shown.headline == f"{', '.join(shown.choices.values())} · 4 well"
    assert shown.states == {"running": 2, "paused": 1, "held at least": 1, "free": 5}


@pytest.mark.each_store
@pytest.mark.usefixtures("incident")
@pytest.mark.parametrize(
    ("choice", "found"), [("any", "jihgfe"), ("lost", "f"), ("clock", "")]
)
def test_list_can_be_filtered_by_what_needs_somebody(
    viewer: Client, choice: str, found: str
) -> None:
    """All that is found, or one kind; a kind that concerns no lock finds nothing."""
    page = viewer.get(reverse(LIST), {"attention": choice})
    assert [name[0] for name in names(page)] == list(found)


def test_calm_list_says_so(viewer: Client) -> None:
    """The headline says that all jobs are well, and which one runs next."""
    take("billing")
    shown = scene(viewer.get(reverse(LIST)))
    assert (shown.headline, shown.choices) == ("1 job, all well.", {})
    assert shown.states == {"running": 1}
    take("cleanup").release()
    be_on_time("cleanup")
    headline = scene(viewer.get(reverse(LIST))).headline
    assert re.fullmatch(r"All 2 jobs are well\. Next: cleanup in \d+h\w*", headline)


@pytest.mark.each_store
def test_acknowledged_expired_lock_is_counted_by_its_state(viewer: Client) -> None:
    """An acknowledged expired lock is neither wrong nor well, and counts as expired."""
    for name in ("known", "new"):
        take(name)
        expire(name)
    shown = scene(viewer.get(reverse(LIST)))
    assert (shown.headline, shown.states) == ("2 locks expired", {})
    call("acknowledge", "known", "--reason", "it is looked at")
    shown = scene(viewer.get(reverse(LIST)))
    assert shown.headline == "1 lock expired · 1 acknowledged"
    assert shown.states == {"expired": 1}
    # The run is still open, but another service has acquired the lock since.
    take("new")
    LockRecord.objects.filter(name="new").update(open_run="web-1:7:gone")
    assert scene(viewer.get(reverse(LIST))).states == {"expired": 1, "running": 1}


@pytest.mark.each_store
@pytest.mark.usefixtures("few")
def test_list_of_too_many_is_not_calm(viewer: Client) -> None:
    """No job is said to be well if locks were left out of the search."""
    for name in ("a", "b", "c"):
        take(name)
        expire(name)
    assert "well." not in scene(viewer.get(reverse(LIST))).headline
    for name in ("a", "b", "c"):
        call("acknowledge", name, "--reason", "it is looked at")
    page = viewer.get(reverse(LIST))
    assert "most urgent locks are counted" in page.content.decode()
    assert scene(page).headline == "more than 2 locks may need attention"


@pytest.mark.usefixtures("incident", "few")
def test_counters_of_many_are_bounded(viewer: Client) -> None:
    """
    A long list counts overdue jobs first, then the bad ends that are longest ago.

    Each lock on the page has its findings all the same.
    """
    page = viewer.get(reverse(LIST))
    shown = scene(page)
    assert shown.choices == {"overdue": "1 job overdue", "lost": "1 lock was lost"}
    assert shown.headline == (
        "1 job overdue, 1 lock was lost · more than 2 locks may need attention"
    )
    html = page.content.decode()
    assert "Only the 2 most urgent locks are counted and filtered here" in html
    assert shown.states["expired"] == 1  # which is none of these two
    assert sorted(name[0] for name in told(page)) == list("efghij")


@pytest.fixture
def partial_view(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the admin show only the locks up to f, as a subclass may."""
    everything = LockRecordAdmin.get_queryset

    def get_queryset(self: LockRecordAdmin, request: Any) -> Any:
        return everything(self, request).filter(name__lt="g")

    monkeypatch.setattr(LockRecordAdmin, "get_queryset", get_queryset)


@pytest.mark.each_store
@pytest.mark.usefixtures("incident", "partial_view")
def test_counters_count_only_what_the_admin_shows(viewer: Client) -> None:
    """A subclass that shows some of the locks counts these alone."""
    page = viewer.get(reverse(LIST))
    shown = scene(page)
    assert list(shown.choices) == ["lost", "abandoned"]
    assert shown.headline == f"{', '.join(shown.choices.values())} · 4 well"
    assert shown.states == {"running": 1, "paused": 1, "held at least": 1, "free": 3}
    assert [name[0] for name in told(page)] == list("fe")


def test_lock_without_a_record_is_not_counted(viewer: Client) -> None:
    """A failed run whose lock was deleted is in the history alone."""
    add_run("gone", RunOutcome.FAILED)
    take("billing")
    shown = scene(viewer.get(reverse(LIST)))
    assert (shown.headline, shown.choices) == ("1 job, all well.", {})
    assert shown.states == {"running": 1}


@pytest.mark.usefixtures("incident")
def test_attention_is_searched_once(viewer: Client) -> None:
    """Order, filter, headline and rows share one search."""
    queries: dict[str, int] = {}
    for choice in ("any", "lost"):
        viewer.get(reverse(LIST), {"attention": choice})
        with CaptureQueriesContext(connection) as captured:
            viewer.get(reverse(LIST), {"attention": choice})
        queries[choice] = len(statements(captured))
    assert queries == {"any": 14, "lost": 14}


@pytest.mark.each_store
@pytest.mark.parametrize("locks", [10, 100])
@pytest.mark.parametrize("query", ["", "?attention=any", "?last=failed", "?q=job"])
@pytest.mark.usefixtures("incident")
def test_list_is_thirteen_statements_at_most(locks: int, query: str) -> None:
    """
    That is with two of session and user, for any number and kind of locks.

    One of them looks up the runs to which the page links, and three read the last 24
    hours of the page's locks.
    """
    for number in range(locks - 10):
        take(f"job-{number}").release()
        end_run(f"job-{number}", RunOutcome.FAILED)
        take(f"job-{number}")  # its last run is the one before
    get_provider().request_run("j.overdue", "alice", "a customer waits")
    root = Client()
    root.force_login(User.objects.create_superuser("root"))
    root.get(reverse(LIST) + query)
    with CaptureQueriesContext(connection) as captured:
        page = root.get(reverse(LIST) + query)
    has_links = any(row["bad_run"] for row in page.context["shedlock_rows"])
    assert has_links is (query != "?q=job" or locks > 10)
    assert len(statements(captured)) <= 13, statements(captured)
    if not query:
        assert page.context["cl"].result_count == LockRecord.objects.count() == locks


@pytest.fixture
def thousands() -> None:
    """Let 3,000 locks be expired, whose last runs failed, and the ones before lost."""
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
        for number in range(3000)
    )


REFRESH: Any = {"headers": {"X-Shedlock-Refresh": "yes"}}


@pytest.mark.each_store
@pytest.mark.usefixtures("thousands")
@pytest.mark.parametrize(
    "query",
    ["", "?attention=any", "?last=failed", "?state=expired", "?q=job-2", "?p=60"],
)
def test_list_of_thousands_is_sixteen_statements_at_most(query: str) -> None:
    """A list and its refresh need so many, with those of session and permissions."""
    viewer = operator(*ALL)
    address = reverse(LIST) + query
    page: Any = viewer.get(address)
    with CaptureQueriesContext(connection) as captured:
        page = viewer.get(address)
    assert len(page.context["shedlock_rows"]) == 50
    assert len(told(page)) == 50
    assert len(statements(captured)) <= 16, statements(captured)
    shown = {rows.SHOWN_FIELD: names(page)}
    with CaptureQueriesContext(connection) as captured:
        parts: Any = viewer.post(address, shown, **REFRESH)
    assert len(told(parts)) == 50
    assert len(statements(captured)) <= 16, statements(captured)


def ids_to_refresh(page: Any) -> list[str]:
    parts = r'id="([\w-]+)"[^>]* data-shedlock-refresh'
    return re.findall(parts, page.content.decode())


@pytest.mark.each_store
@pytest.mark.usefixtures("incident")
def test_refresh_of_a_long_list_is_a_part(
    viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has what needs attention, and the locks that the page already shows."""
    assert "data-shedlock-long" not in viewer.get(reverse(LIST)).content.decode()
    monkeypatch.setattr(rows, "WHOLE_REFRESH_LOCK_LIMIT", 9)
    page = viewer.get(reverse(LIST))
    assert "data-shedlock-long" in page.content.decode()
    assert ids_to_refresh(page) == [
        "shedlock-headline",
        "shedlock-attention",
        "shedlock-locks",
    ]
    shown = {rows.SHOWN_FIELD: ["a.free", "h.expired", "gone"]}
    with CaptureQueriesContext(connection) as captured:
        parts: Any = viewer.post(reverse(LIST), shown, **REFRESH)
    assert ids_to_refresh(parts) == ids_to_refresh(page)
    assert [name[0] for name in names(parts)] == list("jihgfea")
    assert scene(parts).headline == scene(page).headline
    of_all = [
        sql
        for sql in statements(captured)
        if re.search(r"FROM .shedlock. ", sql) and not re.search(r"name. IN \(", sql)
    ]
    # The clock, and the search for what needs attention.
    assert [("MAX(" in sql) for sql in of_all] == [True, False]


@pytest.mark.each_store
@pytest.mark.parametrize(
    ("query", "found"), [("?state=running", "gd"), ("?p=2", "da"), ("?o=0", "ad")]
)
@pytest.mark.usefixtures("incident")
def test_refresh_of_a_long_list_keeps_to_it(
    viewer: Client, query: str, found: str
) -> None:
    """What the filter leaves out goes; a further or sorted page gets nothing new."""
    shown = {rows.SHOWN_FIELD: ["a.free", "d.running"]}
    page: Any = viewer.post(reverse(LIST) + query, shown, **REFRESH)
    assert [name[0] for name in names(page)] == list(found)


def test_list_of_expired_locks_is_not_empty(viewer: Client) -> None:
    """Expired locks are counted as what needs attention, not by their state."""
    take("billing")
    expire("billing")
    page = viewer.get(reverse(LIST))
    assert (scene(page).headline, scene(page).states) == ("1 lock expired", {})
    assert "There are no locks yet" not in page.content.decode()


def test_list_compiles_what_django_made(viewer: Client) -> None:
    """Findings and their actions are sent by statements that are kept."""
    take("job").release()
    end_run("job", RunOutcome.FAILED)
    viewer.get(reverse(LIST))
    with patch.object(Select, "_compile") as compiled:
        viewer.get(reverse(LIST))
    assert not compiled.called


def test_checkbox_is_djangos() -> None:
    """It is the same text, made without a template."""
    record = LockRecord(name="<job> & 'others'")
    pages: Any = LockRecordAdmin(LockRecord, admin.site)
    with override("de"):
        made = pages.action_checkbox(record)
        assert made == ModelAdmin.action_checkbox(pages, record)


def cure(client: Client, value: str, **fields: Any) -> Any:
    """Press a button below a lock."""
    return client.post(reverse(LIST), {"action": "", "shedlock_cure": value, **fields})


def cures(page: Any) -> dict[str, list[str]]:
    """Return the buttons below each lock."""
    rows = page.context["shedlock_rows"]
    return {
        row["name"][2:]: [f"{c.label}…" for c in row["cures"]]
        for row in rows
        if row["cures"]
    }


@pytest.mark.usefixtures("incident")
def test_findings_have_their_cures(chief: Client) -> None:
    """A finding offers what helps."""
    offered = cures(chief.get(reverse(LIST)))
    assert offered["long"] == ["Extend…", "Release…"]
    assert offered["expired"] == ["Release…"]


def test_job_that_may_still_run_is_not_to_be_run() -> None:
    """An overdue job is, unless its last run may still go on."""
    take("a.over").release()
    take("a.dead")
    expire("a.dead")
    for name in ("a.over", "a.dead"):
        be_overdue(name)
    client = operator("view_lockrecord", "run_lockrecord")
    assert cures(client.get(reverse(LIST))) == {}  # nobody would carry it out
    note_catch_up(get_provider())
    offered = cures(client.get(reverse(LIST)))
    assert offered == {"over": ["Run job now…"]}


@pytest.mark.usefixtures("incident")
def test_viewers_are_offered_nothing(viewer: Client) -> None:
    """They read what is found, but have no button."""
    page = viewer.get(reverse(LIST))
    assert len(told(page)) == 6
    assert cures(page) == {}


@pytest.mark.usefixtures("incident")
def test_cure_asks_about_its_lock_alone(chief: Client) -> None:
    """What else is selected does not matter; then it is released as usual."""
    fields = {"_selected_action": ["d.running"], "select_across": "1"}
    page = cure(chief, "release_selected h.expired", **fields)
    assert [lock.record.name for lock in page.context["meant"]] == ["h.expired"]
    record = LockRecord.objects.get(name="h.expired")
    confirm(chief, "h.expired", record.locked_by)
    assert state("h.expired") is LockState.FREE
    assert state("d.running") is LockState.RUNNING


@pytest.mark.usefixtures("incident")
@pytest.mark.parametrize("value", ["release_selected h.expired", "", "\0 \0", "x y"])
def test_forged_cure_does_nothing(viewer: Client, value: str) -> None:
    """Without the permission, or with another value, the list comes back."""
    page = cure(viewer, value)
    assert page.status_code in (200, 302)
    assert state("h.expired") is LockState.EXPIRED
    assert not LogEntry.objects.exists()


def test_name_in_a_finding_is_escaped(chief: Client) -> None:
    """Markup in a name is text, also where a command is told."""
    name = f"{HOSTILE}`<b>"
    take(name)
    expire(name)
    page = chief.get(reverse(LIST)).content.decode()
    assert HOSTILE not in page
    assert "<b>" not in page


@pytest.mark.parametrize("may_see_runs", [True, False])
def test_bad_end_links_to_its_run(*, may_see_runs: bool) -> None:
    """The run with its exception is one click away, for whoever may see runs."""
    permissions = ["view_lockrecord", *(["view_lockrun"] * may_see_runs)]
    take("billing").release()
    failed = end_run("billing", RunOutcome.FAILED)
    page = operator(*permissions).get(reverse(LIST)).content.decode()
    assert (f'href="{reverse(RUN, args=[failed.pk])}"' in page) is may_see_runs


def test_earlier_loss_links_to_its_run(viewer: Client) -> None:
    """The record knows which run it was, though a later one has succeeded."""
    take("billing").release()
    lost = end_run("billing", RunOutcome.LOST)
    end_run("billing")
    [row] = viewer.get(reverse(LIST)).context["shedlock_rows"]
    assert row["bad_run"] == lost.pk


def test_acknowledged_end_has_no_link(viewer: Client) -> None:
    """The list shows what is found, and no more of a run than of its finding."""
    take("billing").release()
    failed = end_run("billing", RunOutcome.FAILED)
    be_overdue("billing")
    facts = fact_of(Kind.FAILED, failed.locked_by)
    add_action("billing", kind=ActionKind.ACKNOWLEDGE, facts=facts)
    [row] = viewer.get(reverse(LIST)).context["shedlock_rows"]
    assert [line.finding.kind for line in row["lines"]] == [Kind.OVERDUE]
    assert row["bad_run"] is None


@pytest.mark.each_store
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", 308),
        ("?p=2", 308),
        ("?attention=any", 6),
        ("?state=free", 304),
        ("?state=running", 2),
        ("?state=running&attention=any", 1),
    ],
)
def test_incident_among_hundreds(viewer: Client, query: str, found: int) -> None:
    """Whatever is chosen of a long list, those that need somebody come first."""
    scenes.incident()
    page = viewer.get(reverse(LIST) + query)
    assert page.context["cl"].result_count == found
    names = [record.pk for record in page.context["cl"].result_list]
    urgent = [name for name in names if name in told(page)]
    assert names[: len(urgent)] == urgent


class OfOneTeam(LockRecordAdmin):
    """A project's own admin, which shows the locks of one team."""

    def get_queryset(self, request: Any) -> LockRecordQuerySet:
        return super().get_queryset(request).filter(name__startswith="billing")


@pytest.mark.each_store
def test_counters_count_what_the_list_shows(chief: Client) -> None:
    """A subclass whose list leaves locks out does not count them either."""
    site = admin.AdminSite(name="team")
    site.register(LockRecord, OfOneTeam)
    urls: Any = ModuleType("urls")
    urls.urlpatterns = [path("team/", site.urls)]
    for name in ("billing.invoices", "billing.reports", "search.index"):
        take(name)
    with override_settings(ROOT_URLCONF=urls):
        page: Any = chief.get("/team/django_shedlock/lockrecord/")
    [(choice, _, locks)] = page.context["shedlock_states"]
    assert (choice, locks) == ("running", 2)
