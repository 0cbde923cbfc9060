"""The timeline and the headline: what all jobs and hosts did, and what is wrong."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from secrets import token_hex
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from django_shedlock.console.admin.headline import headline_of
from django_shedlock.console.admin.locks import LockRecordAdmin
from django_shedlock.console.admin.timeline import TimelinePart
from django_shedlock.console.monitoring.findings import Finding
from django_shedlock.console.monitoring.kinds import Kind
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord
from django_shedlock.sql.fields import DatabaseNow
from tests.support.last_runs import end_run
from tests.support.lateness import DAILY, give_schedule, newest_tick
from tests.support.locks import add_run, expire, pause, take
from tests.support.operators import HOSTILE, LIST, TIMELINE, operator, statements

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
VIEWER = ("view_lockrecord", "view_lockrun")


def look(query: str = "", *permissions: str) -> Any:
    """Return the answer to somebody who opens the timeline."""
    return operator(*(permissions or VIEWER)).get(reverse(TIMELINE) + query)


def parts(response: HttpResponse) -> dict[str, TimelinePart]:
    found: Any = response
    return {part.kind: part for part in found.context["shedlock_timeline"]}


def test_timeline_has_a_strip_for_each_lock_and_host() -> None:
    """The most urgent lock comes first; hosts are sorted by their last start."""
    for name in ("a.good", "b.bad"):
        take(name).release()
    end_run("a.good", duration=HOUR, host="web-1")
    end_run("b.bad", RunOutcome.FAILED, host="web-2", ago=2 * HOUR)
    response = look()
    locks, hosts = parts(response)["locks"], parts(response)["hosts"]
    assert [row.key for row in locks.rows] == ["lock b.bad", "lock a.good"]
    assert [row.kinds for row in locks.rows] == [["Failed"], []]
    assert [row.text for row in locks.rows] == ["1 failed, 1 succeeded", "2 succeeded"]
    assert [row.key for row in hosts.rows][1:] == ["host web-1", "host web-2"]
    html = response.content.decode()
    assert "<title>Timeline |" in html
    assert html.count('class="shedlock-chart shedlock-chart-timeline"') == 5
    for row in locks.rows:
        assert row.page in html
        assert row.runs_page.replace("&", "&amp;") in html


def test_timeline_has_what_the_list_chooses() -> None:
    """The timeline has the filters and the search of the list; its links keep them."""
    for name in ("billing", "search"):
        take(name).release()
    take("held")
    response = look("?state=free&q=billing")
    assert [row.key for row in parts(response)["locks"].rows] == ["lock billing"]
    back = f"{reverse(LIST)}?q=billing&amp;state=free"
    assert back in response.content.decode()
    there = open_list("?state=free&q=billing").content.decode()
    assert f"{reverse(TIMELINE)}?q=billing&amp;state=free" in there


def open_list(query: str, *permissions: str) -> Any:
    """Return the answer to somebody else, who opens the list."""
    others = permissions or VIEWER
    return operator(*others, name=token_hex(4)).get(reverse(LIST) + query)


@pytest.mark.parametrize("permission", VIEWER)
def test_timeline_needs_both_permissions(permission: str) -> None:
    """The timeline needs both permissions; without them the list has no link to it."""
    take("billing").release()
    assert look("", permission).status_code == 403
    there = open_list("", permission)
    assert reverse(TIMELINE) not in there.content.decode()


@pytest.mark.parametrize("query", ["?nonsense=1", "?q=%00"])
def test_bad_address_leads_to_the_timeline(query: str) -> None:
    """What the list refuses, the timeline refuses as well."""
    response = look(query)
    assert response.status_code == 302
    assert response["Location"] == f"{reverse(TIMELINE)}?e=1"


def test_refresh_gets_the_parts_of_the_timeline() -> None:
    """The parts of a refresh have the ids that the script looks for."""
    take("billing").release()
    client = operator(*VIEWER)
    page = client.get(reverse(TIMELINE)).content.decode()
    part = client.get(reverse(TIMELINE), headers={"X-Shedlock-Refresh": "yes"})
    html = part.content.decode()
    ids = ("headline", "attention", "states", "timeline", "pages")
    for each in ids:
        assert f'id="shedlock-{each}"' in html
        assert f'id="shedlock-{each}"' in page
    assert page.count("data-shedlock-refresh") == len(ids)
    assert "<html" not in html


def test_names_and_hosts_are_text() -> None:
    """A hostile name or host becomes no markup, neither in a title nor in a link."""
    take(HOSTILE).release()
    end_run(HOSTILE, RunOutcome.FAILED, host=HOSTILE, duration=HOUR)
    html = look().content.decode()
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert" in html


def test_number_of_statements_is_constant() -> None:
    """A page of 50 locks with runs costs as much as one of two."""
    client, counts = operator(*VIEWER), []
    client.get(reverse(TIMELINE))
    for numbers in (range(2), range(2, 60)):
        for number in numbers:
            take(f"job-{number:02}").release()
            add_run(f"job-{number:02}", duration=HOUR)
        with CaptureQueriesContext(connection) as asked:
            client.get(reverse(TIMELINE))
        counts.append(len(statements(asked)))
    assert counts[0] == counts[1] <= 18


def headline(query: str = "") -> str:
    response = open_list(query)
    return str(response.context["shedlock_headline"])


def test_headline_of_a_calm_project_names_the_next_run() -> None:
    """The headline of a calm project says that all is well, and what runs next."""
    assert headline() == "No locks yet"
    take("billing").release()
    assert headline() == "1 job, all well."
    take("search").release()
    pause("mail")
    for name in ("search", "mail"):
        give_schedule(name, tick=newest_tick(), succeeded=newest_tick())
    expected = next(DAILY.ticks_after(newest_tick()))
    LockRecord.objects.filter(name="mail").update(due_at=DatabaseNow() + HOUR / 60)
    text = headline()
    assert text.startswith("All 3 jobs are well. Next: search in ")
    record = LockRecord.objects.get(name="search")
    assert record.due_at == expected


def test_next_runs_at_the_same_time_are_named_by_their_names() -> None:
    """Of jobs with the same next tick, the headline always names the same one."""
    for name in ("0.later", "z.last", "a.first"):
        take(name).release()
        give_schedule(name, tick=newest_tick(), succeeded=newest_tick())
    LockRecord.objects.filter(name="0.later").update(due_at=DatabaseNow() + 48 * HOUR)
    assert "Next: a.first in " in headline()


def test_headline_leaves_out_what_has_the_same_cause() -> None:
    """Jobs that a dead scheduler does not start are one finding, of the store."""
    silent = Finding(Kind.SILENT, "default", None, "silent")
    history = Finding(Kind.HISTORY, "default", None, "history outgrown")
    overdue = Finding(Kind.OVERDUE, "default", "a", "overdue", is_folded=True)
    found = headline_of([silent, history], {"a": [overdue]}, 3, 0, None)
    assert str(found) == "1 scheduler silent, 1 problem with the history · 2 well"
    assert [part.choice for part in found.parts] == ["", ""]


@pytest.mark.each_store
def test_subclass_that_shows_some_locks_shows_their_hosts_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A subclass that shows some locks shows only the hosts of these."""
    for name in ("billing", "secret"):
        take(name).release()
    add_run("billing", host="web-1")
    add_run("secret", host="web-2")
    of_all = LockRecordAdmin.get_queryset

    def of_some(self: LockRecordAdmin, request: HttpRequest) -> Any:
        return of_all(self, request).filter(name="billing")

    monkeypatch.setattr(LockRecordAdmin, "get_queryset", of_some)
    hosts = [row.key for row in parts(look())["hosts"].rows]
    assert "host web-1" in hosts
    assert "host web-2" not in hosts


def test_headline_counts_findings_and_what_is_well() -> None:
    """Each kind of finding is a part of the headline that leads to its filter."""
    for name in ("a", "b", "c", "d"):
        take(name).release()
    for name in ("a", "b"):
        end_run(name, RunOutcome.FAILED)
    take("e")
    expire("e")
    response = open_list("")
    found = response.context["shedlock_headline"]
    assert str(found) == "2 jobs failed, 1 lock expired · 2 well"
    assert [part.choice for part in found.parts] == ["failed", "expired"]
    html = response.content.decode()
    assert '<a href="?attention=failed">2 jobs failed</a>' in html
    assert "<title>Locks |" in html
    chosen = open_list("?attention=failed").content.decode()
    assert 'aria-current="true">2 jobs failed</a>' in chosen


def test_acknowledged_jobs_are_neither_wrong_nor_well() -> None:
    """An acknowledged job is neither wrong nor well in the headline."""
    for name in ("a", "b"):
        take(name).release()
    end_run("a", RunOutcome.FAILED)
    call_command("shedlock", "acknowledge", "a", "--reason", "known", stdout=StringIO())
    assert headline() == "1 acknowledged · 1 well"


def test_headline_of_a_long_list_counts_no_locks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The headline of a long list counts no locks, since counting takes long."""
    monkeypatch.setattr(
        "django_shedlock.console.admin.rows.WHOLE_REFRESH_LOCK_LIMIT", 1
    )
    for name in ("a", "b"):
        take(name).release()
        give_schedule(name, tick=newest_tick(), succeeded=newest_tick())
    assert headline() == "All jobs are well."
    end_run("a", RunOutcome.FAILED)
    assert headline() == "1 job failed"


def test_headline_is_about_all_locks() -> None:
    """A filter or a search chooses rows, and changes no verdict."""
    for name in ("a", "b"):
        take(name).release()
    end_run("a", RunOutcome.FAILED)
    assert headline("?q=b") == "1 job failed · 1 well"
    assert headline("?state=running") == "1 job failed · 1 well"
