"""The page of one lock: five answers, findings, what is offered, and its runs."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from django_shedlock import scheduler_lock
from django_shedlock.beat.catch_up import note_catch_up
from django_shedlock.clocks import local_text
from django_shedlock.console.monitoring.search import Search
from django_shedlock.console.operators import RequestRun
from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.pauses import FOREVER
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider
from django_shedlock.registry.requests import REQUEST_LIFETIME
from django_shedlock.schedules.cron import Schedule
from django_shedlock.sql.fields import DatabaseNow
from tests.support.jobs import only_jobs_of
from tests.support.last_runs import end_run
from tests.support.lateness import (
    DAY,
    HOUR,
    HOURLY,
    be_on_time,
    be_overdue,
    give_schedule,
    newest_tick,
)
from tests.support.locks import MINUTE, add_run, expire, pause, take
from tests.support.operators import CHANGE, LIST, RUN, statements
from tests.support.pages import add_action

pytestmark = pytest.mark.django_db

SECOND = timedelta(seconds=1)
REFRESH = {"X-Shedlock-Refresh": "yes"}


def text(html: str) -> str:
    """Return what a reader sees, in one line."""
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def open_page(client: Client, name: str = "billing", **how: Any) -> Any:
    response = client.get(reverse(CHANGE, args=[name]), **how)
    assert response.status_code == 200
    return response


def told(client: Client, where: str, name: str = "billing") -> dict[str, str]:
    """Return what a list of the page tells, as a reader sees it."""
    page = open_page(client, name).content.decode()
    part = rf'<(dl|div) [^>]*id="{where}".*?</\1>'
    found = re.search(part, page, re.DOTALL)
    assert found
    lines = re.findall(r"<dt>(.*?)</dt>\s*<dd.*?>(.*?)</dd>", found[0], re.DOTALL)
    return {label: text(value) for label, value in lines}


def answers(client: Client, name: str = "billing") -> dict[str, str]:
    """Return what the page answers first."""
    keys = ("state", "holder", "heartbeat", "last", "next")
    values = told(client, "shedlock-answers", name).values()
    return dict(zip(keys, values, strict=True))


def details(client: Client, name: str = "billing") -> dict[str, str]:
    """Return what is folded away."""
    return told(client, "shedlock-details", name)


def buttons(client: Client, name: str = "billing") -> list[str]:
    """Return the actions that the page offers."""
    page = open_page(client, name).content.decode()
    return re.findall(r'name="action" value="(\w+)"', page)


def findings(client: Client, name: str = "billing") -> list[str]:
    found = open_page(client, name).context["shedlock_findings"]
    return [f"{finding.sentence} {finding.command}" for finding in found]


def age(by: timedelta, name: str = "billing") -> None:
    """Let the lock have been acquired that much earlier."""
    LockRecord.objects.filter(name=name).update(locked_at=DatabaseNow() - by)


def test_page_of_a_running_job(viewer: Client) -> None:
    """What it does and for how long, who since when, and how much lease is left."""
    lock = take("billing")
    age(2 * HOUR)
    end_run("billing", duration=3 * HOUR)
    told = answers(viewer)
    assert told["state"] == "running for 2h usually 3h"
    host, pid, _ = lock.locked_by.split(":")
    assert re.fullmatch(rf"{re.escape(host)} \({pid}\) 2h ago [\d:-]+", told["holder"])
    assert "its lease was not extended since then" in told["heartbeat"]
    assert re.search(r"\dm(\d+s)? of the lease left", told["heartbeat"])
    assert "succeeded after 3h" in told["last"]
    assert told["next"] == "It has no schedule: whatever calls its job starts it."


def test_job_that_runs_longer_than_usual(viewer: Client) -> None:
    """It says so next to its state."""
    take("billing")
    age(2 * HOUR)
    end_run("billing", duration=MINUTE)
    assert answers(viewer)["state"] == "running for 2h usually 1m longer than usual"


def test_job_with_a_heartbeat_is_alive(viewer: Client) -> None:
    """The meter of a job that ran for hours counts from its last extension."""
    lock = take("billing")
    age(9 * HOUR)
    lock.extend()
    LockRecord.objects.update(extended_at=DatabaseNow() - 6 * SECOND)
    page = open_page(viewer).content.decode()
    assert re.match(r"heartbeat \d+s ago ", answers(viewer)["heartbeat"])
    [used] = re.findall(r'<meter [^>]*value="(\d+)"', page)
    assert int(used) < 10


def test_page_of_an_expired_lock(viewer: Client) -> None:
    """It tells since when, who held it, and when the holder was last alive."""
    lock = take("billing")
    lock.extend()
    age(HOUR)
    LockRecord.objects.update(
        lock_until=DatabaseNow() - 9 * MINUTE, extended_at=DatabaseNow() - 14 * MINUTE
    )
    told = answers(viewer)
    assert re.match(
        r"expired Its lease ended 9m\d?s? ago, and nobody released it\.", told["state"]
    )
    assert lock.locked_by.split(":")[0] in told["holder"]
    assert re.fullmatch(r"heartbeat 14m\d?s? ago", told["heartbeat"])


def test_page_of_a_free_lock(viewer: Client) -> None:
    """It tells who held it last, and how its last run ended."""
    lock = take("billing")
    lock.release()
    end_run(
        "billing",
        RunOutcome.FAILED,
        duration=2 * MINUTE,
        exception_type="shop.NoPaper",
        exception_message="tray 2",
    )
    told = answers(viewer)
    assert told["state"] == "free"
    assert told["holder"].startswith("Nobody; the last one was ")
    assert told["heartbeat"] == "No job runs under this lock."
    assert re.fullmatch(r"failed after 2m \ds ago [\d:-]+ NoPaper tray 2", told["last"])


def test_last_run_without_a_history(viewer: Client) -> None:
    """The record has all but what its job raised."""
    take("billing").release()
    end_run("billing", RunOutcome.SUCCEEDED, duration=MINUTE)
    add_run("billing", RunOutcome.LOST, exception_type="Stale")
    LockRun.objects.exclude(outcome="lost").delete()
    assert re.fullmatch(r"succeeded after 1m \ds ago [\d:-]+", answers(viewer)["last"])


def test_failures_in_a_row_are_counted(viewer: Client) -> None:
    """Several of them, of which the history may have fewer."""
    take("billing").release()
    end_run("billing", RunOutcome.FAILED)
    assert "in a row" not in answers(viewer)["last"]
    end_run("billing", RunOutcome.ABANDONED, duration=None, started=None)
    LockRun.objects.all().delete()
    assert re.fullmatch(
        r"abandoned \ds ago [\d:-]+ 2 runs in a row have not succeeded",
        answers(viewer)["last"],
    )


def test_lost_run_that_goes_on(viewer: Client) -> None:
    """It has no end yet: the page tells when it lost its lock."""
    lock = take("billing")
    LockRecord.objects.update(
        lock_until=DatabaseNow() - MINUTE, locked_at=DatabaseNow() - HOUR
    )
    get_provider().account_for_loss(lock, has_ended=False)
    assert re.fullmatch(r"lost \ds ago [\d:-]+", answers(viewer)["last"])


def test_open_request_is_shown(chief: Client) -> None:
    """Who asked for a run, until the request expires; it can be withdrawn."""
    take("billing").release()
    get_provider().request_run("billing", "alice", "a customer waits")
    asked = r"alice asked for a run \ds ago, which is still open"
    assert re.match(asked, answers(chief)["next"])
    assert "withdraw_selected" in buttons(chief)
    [row] = chief.get(reverse(LIST)).context["shedlock_rows"]
    assert re.fullmatch(asked, row["request"])
    assert [each.name for each in row["cures"]] == ["withdraw_selected"]
    LockRecord.objects.update(asked_at=DatabaseNow() - REQUEST_LIFETIME)
    assert "asked" not in answers(chief)["next"]
    assert "withdraw_selected" in buttons(chief)
    [row] = chief.get(reverse(LIST)).context["shedlock_rows"]
    assert (row["request"], row["cures"]) == ("", [])


def test_run_that_nobody_would_carry_out_is_a_command(chief: Client) -> None:
    """No button promises it where neither a beat nor a catch-up was seen lately."""
    take("billing").release()
    command = '<code lang="en" dir="ltr">python manage.py shedlock trigger billing'
    assert command in open_page(chief).content.decode()
    assert "run_selected" not in buttons(chief)
    note_catch_up(get_provider())
    assert command not in open_page(chief).content.decode()
    assert "run_selected" in buttons(chief)
    ago = F("locked_at") - REQUEST_LIFETIME
    LockRecord.objects.filter(name="shedlock.catch-up").update(locked_at=ago)
    assert command in open_page(chief).content.decode()


def test_page_says_who_asked_for_the_last_run(chief: Client) -> None:
    """So whoever asked learns what came of it."""
    take("billing").release()
    end_run("billing", operator="alice", reason="a customer waits")
    last = answers(chief)["last"]
    assert last.startswith("succeeded")
    assert last.endswith("alice asked for it, because: a customer waits")


def test_page_of_a_kept_lock(viewer: Client) -> None:
    """It tells that only lock_at_least_for keeps it, and for how long."""
    take("billing", lock_at_least_for=MINUTE).release()
    expected = (
        r"held at least Its job has ended; lock_at_least_for keeps it for \d+m?\w? \."
    )
    assert re.fullmatch(expected, answers(viewer)["state"])


def test_page_of_a_paused_job(viewer: Client) -> None:
    """It tells who paused it, why and until when, and that it is not overdue."""
    pause("billing", lasting=2 * HOUR)
    be_overdue("billing")
    told = answers(viewer)
    assert re.fullmatch(
        r"paused until [\d-]+ [\d:-]+ Its job does not run meanwhile, and is not "
        r"overdue\.",
        told["state"],
    )
    assert re.fullmatch(r"alice \ds ago [\d:-]+ the mail server moves", told["holder"])
    assert told["heartbeat"] == "No job runs under this lock."
    assert told["next"].endswith("Ticks are skipped while it is paused.")
    assert "overdue since" not in told["next"]
    assert findings(viewer) == []


def test_pause_without_an_end(viewer: Client) -> None:
    """It lasts until somebody resumes the job."""
    pause("billing", lasting=FOREVER)
    assert answers(viewer)["state"].startswith("paused until it is resumed")
    assert "until it is resumed" in viewer.get(reverse(LIST)).content.decode()


def test_paused_job_offers_to_resume_it_first(chief: Client) -> None:
    """The page's buttons, and that of its line on the list, which runs nothing."""
    pause("billing", lasting=FOREVER)
    LockRecord.objects.update(locked_at=DatabaseNow() - 2 * DAY)
    end_run("billing", RunOutcome.FAILED)
    page = open_page(chief)
    assert [str(each.label) for each in page.context["shedlock_buttons"]] == [
        "Resume job",
        "Pause job",
        "Acknowledge",
    ]
    [row] = chief.get(reverse(LIST)).context["shedlock_rows"]
    assert [str(each.label) for each in row["cures"]] == ["Resume job", "Acknowledge"]


def test_page_tells_what_the_job_is_for(viewer: Client) -> None:
    """With a link to what is to be done; a text can do nothing to the page."""
    take("billing")
    wiki = "https://wiki.example.com/?a=1&b=2"
    with only_jobs_of():
        job = scheduler_lock("billing", description="<b>Bill</b>", runbook=wiki)(open)
        page = open_page(viewer).content.decode()
    assert callable(job)
    assert "&lt;b&gt;Bill&lt;/b&gt;" in page
    assert 'href="https://wiki.example.com/?a=1&amp;b=2"' in page
    assert "What to do if it fails" not in open_page(viewer).content.decode()


def test_long_leases_have_an_end(viewer: Client) -> None:
    """Neither that of a job, nor that of a pause, is until somebody resumes it."""
    pause("billing", lasting=FOREVER / 2)
    assert "until it is resumed" not in answers(viewer)["state"]
    take("long", lock_at_most_for=FOREVER)
    assert "until it is resumed" not in viewer.get(reverse(LIST)).content.decode()


def test_lock_that_nobody_ever_held(viewer: Client) -> None:
    """A job that is only registered has no holder, and was not locked at any time."""
    get_provider().register("billing", Schedule("@hourly", "UTC"))
    told = answers(viewer)
    assert told["holder"] == "Nobody has held it yet."
    assert told["last"] == "No run has reported its end yet."
    folded = details(viewer)
    assert folded["Acquisition"] == folded["Locked at"] == folded["Lock until"] == "-"


def test_page_shows_the_ticks(viewer: Client) -> None:
    """The page shows the schedule, what was run, what is due, next and late."""
    take("billing").release()
    tick = datetime(2026, 3, 2, 10, tzinfo=UTC)
    give_schedule("billing", tick=tick + 2 * HOUR, succeeded=tick, schedule=HOURLY)
    expected = (
        r"in \d+m?\w* \d\d:00-0[56]:00 0 \* \* \* \* UTC overdue since "
        r"2026-03-02 05:00:00-06:00"
    )
    assert re.fullmatch(expected, answers(viewer)["next"])
    folded = details(viewer)
    assert folded["Schedule"] == "0 * * * * UTC"
    assert folded["Newest tick that was run"] == "2026-03-02 06:00:00-06:00"
    assert folded["Due at"] == "2026-03-02 05:00:00-06:00"


def test_page_of_a_job_on_time(viewer: Client) -> None:
    """Nothing is overdue then, and nothing is found."""
    take("billing").release()
    be_on_time("billing")
    assert "overdue" not in text(open_page(viewer).content.decode())
    assert findings(viewer) == []


def test_page_of_a_job_that_never_ran(viewer: Client) -> None:
    """What is only registered was not run, and is due at its first tick."""
    take("billing").release()
    give_schedule("billing", tick=None, succeeded=newest_tick())
    folded = details(viewer)
    assert folded["Newest tick that was run"] == "-"
    assert folded["Due at"] == local_text(newest_tick() + DAY)


def test_page_without_a_schedule(viewer: Client) -> None:
    """A lock without a schedule has no empty lines for its ticks."""
    take("billing")
    assert details(viewer).keys().isdisjoint({"Schedule", "Due at"})


def test_rest_of_the_record_is_folded_away(viewer: Client) -> None:
    """Identity, instants, and the fencing token are there for whoever unfolds them."""
    lock = take("billing", lock_at_least_for=MINUTE)
    folded = details(viewer)
    assert folded["Acquisition"] == lock.locked_by
    assert folded["Fencing token"] == str(lock.fencing_token)
    assert re.fullmatch(r"[\d-]+ [\d:-]+", folded["Lock at least until"])
    page = open_page(viewer).content.decode()
    assert '<details class="shedlock-details module">' in page


def test_findings_stand_on_top(viewer: Client) -> None:
    """They are in the words of the command, with what to do next, as code."""
    take("billing").release()
    be_overdue("billing")
    [told] = Search(MINUTE).of_locks(get_provider(), ["billing"])["billing"]
    [shown] = findings(viewer)
    assert shown == f"{told.sentence} {told.command}"
    page = open_page(viewer).content.decode()
    assert "<code>python manage.py shedlock catch-up billing</code>" in page
    assert page.index("shedlock-findings") < page.index("shedlock-answers")


def test_findings_of_another_lock_stay_there(viewer: Client) -> None:
    """A page has those of its own lock only."""
    take("billing").release()
    take("late").release()
    be_overdue("late")
    assert findings(viewer) == []


def test_store_that_fails_is_told(
    viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of the page is still there."""

    def fail(*arguments: Any) -> None:
        raise LockProviderError("Could not read the runs: <no table>")

    take("billing")
    monkeypatch.setattr(Search, "of_locks", fail)
    page = open_page(viewer).content.decode()
    assert "Could not read the runs: &lt;no table&gt;" in page
    assert answers(viewer)["state"].startswith("running")


def test_store_that_fails_later_is_told(
    chief: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is offered while nobody can read in which state the lock is."""

    def fail(*arguments: Any) -> None:
        raise LockProviderError("Could not read the catch-up: <no table>")

    take("billing").release()
    monkeypatch.setattr(RequestRun, "command_instead", fail)
    page = open_page(chief).content.decode()
    assert "Could not read the catch-up: &lt;no table&gt;" in page
    assert buttons(chief) == []


def test_host_of_an_ended_pause_is_its_operator(viewer: Client) -> None:
    """The page of a lock names who paused it last, until the next run."""
    pause("billing").release()
    assert "Nobody; the last one was alice" in answers(viewer)["holder"]
    # The list shows who holds a lock only while somebody does.
    assert "alice" not in viewer.get(reverse(LIST)).content.decode()


def test_only_what_applies_is_offered(chief: Client) -> None:
    """Of an expired lock nothing can be extended, and a free one needs nothing."""
    lock = take("billing")
    assert {"release_selected", "extend_selected"} <= set(buttons(chief))
    expire("billing")
    assert "release_selected" in buttons(chief)
    assert "extend_selected" not in buttons(chief)
    lock.release()
    assert {"release_selected", "extend_selected"}.isdisjoint(buttons(chief))


def test_buttons_name_their_lock(chief: Client) -> None:
    """They belong to the form that has the lock's name."""
    take("billing")
    page = open_page(chief).content.decode()
    form = re.search(r'<form [^>]*id="shedlock-act".*?</form>', page, re.DOTALL)
    assert form
    assert 'name="_selected_action" value="billing"' in form[0]
    assert page.count('form="shedlock-act"') == len(buttons(chief))


def test_viewer_is_offered_nothing(viewer: Client) -> None:
    """Seeing a lock is not acting on it."""
    take("billing")
    assert buttons(viewer) == []


def test_page_has_its_last_runs(viewer: Client) -> None:
    """The table and the chart have the lock's own runs, the chart also the open one."""
    take("billing")
    add_run("billing", duration=MINUTE, trigger="scheduler")
    failed = add_run(
        "billing",
        RunOutcome.FAILED,
        duration=2 * MINUTE,
        exception_type="ValueError",
        exception_message="no paper",
        trigger="operator",
        operator="alice",
    )
    add_run("cleanup", RunOutcome.LOST)
    add_run("billing", RunOutcome.ABANDONED, provider="second")
    response = open_page(viewer)
    rows = response.context["shedlock_runs"]
    assert [row["row"].outcome for row in rows] == ["failed", "succeeded"]
    page = response.content.decode()
    assert "ValueError no paper" in text(page)
    assert "operator alice" in text(page)
    durations = response.context["shedlock_durations"]
    assert (durations.scale_text, durations.half_text) == ("2m", "1m")
    chart = durations.chart
    run_pages = [reverse(RUN, args=[row["row"].pk]) for row in reversed(rows)]
    assert [(mark.kind, mark.page) for mark in chart.marks] == [
        ("succeeded", run_pages[0]),
        ("failed", run_pages[1]),
        ("running", ""),
    ]
    assert run_pages[1] == reverse(RUN, args=[failed.pk])
    assert drawn(page) == [(mark.kind, mark.title, mark.page) for mark in chart.marks]
    assert f'role="group" aria-label="{chart.title}"' in page
    assert "50 % Succeeded 1m Median 1m 95 % took at most 2" in _statistics(page)


def drawn(page: str) -> list[tuple[str, str, str]]:
    """Return the kind, the title and the link of each mark in a page's charts."""
    marks = re.findall(
        r'<(?:a|g)(?: href="([^"]*)")? class="shedlock-mark shedlock-(\S+)".*?'
        r"<title>(.*?)</title>",
        page,
        re.DOTALL,
    )
    return [(kind, unescape(title), link) for link, kind, title in marks]


def _statistics(page: str) -> str:
    shown = re.search(r'<dl class="shedlock-statistics">.*?</dl>', page, re.DOTALL)
    assert shown
    pairs = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", shown[0])
    return " ".join(f"{text(value)} {label}" for label, value in pairs)


def test_missed_ticks_are_drawn(viewer: Client) -> None:
    """A gap in the chart shows that the scheduler started nothing."""
    take("billing").release()
    be_overdue("billing")
    add_run("billing", started=DatabaseNow() - 3 * DAY)
    page = open_page(viewer).content.decode()
    [(kind, title, link)] = [mark for mark in drawn(page) if mark[0] == "missed"]
    assert (kind, link) == ("missed", "")
    assert "ticks without a run after" in title


def test_page_has_ten_runs_and_thirty_bars_at_the_most(viewer: Client) -> None:
    """Of a lock with a long history only the newest runs are on its page."""
    take("billing")
    for _ in range(31):
        add_run("billing")
    response = open_page(viewer)
    assert len(response.context["shedlock_runs"]) == 10
    assert len(drawn(response.content.decode())) == 30
    assert response.context["shedlock_statistics"]["runs"] == 31


def test_open_run_is_not_denied(viewer: Client) -> None:
    """The history lacks it, and it has not ended; its holder is on the page."""
    lock = take("billing")
    expire("billing")
    page = open_page(viewer).content.decode()
    assert "The history has no run of this lock." in page
    assert lock.locked_by in page
    assert answers(viewer)["last"] == "No run has reported its end yet."


def test_page_of_a_new_lock(viewer: Client) -> None:
    """A lock without history says so."""
    take("billing")
    page = open_page(viewer).content.decode()
    assert "The history has no run of this lock." in page
    assert "shedlock-chart" not in page.replace("charts.css", "")


def test_runs_need_their_permission(releaser: Client) -> None:
    """Who may not see runs sees none on the lock's page either."""
    take("billing").release()
    end_run("billing", RunOutcome.FAILED, exception_message="secret")
    page = open_page(releaser).content.decode()
    assert "secret" not in page
    assert "secret" not in releaser.get(reverse(LIST)).content.decode()
    assert "Last runs" not in page
    assert re.fullmatch(r"failed after 0ms \ds ago [\d:-]+", answers(releaser)["last"])


def test_unknown_lock_leads_back(viewer: Client) -> None:
    """The page of a lock that is gone leads to the admin's start, with a message."""
    response = viewer.get(reverse(CHANGE, args=["gone"]), follow=True)
    assert "gone" in text(response.content.decode())
    assert response.redirect_chain


def test_page_has_as_many_queries_whatever_it_shows(chief: Client) -> None:
    """Nothing on it asks for each run, each action or each tick."""
    take("billing").release()
    end_run("billing", RunOutcome.FAILED)
    counts = []
    open_page(chief)
    for number in range(3):
        for _ in range(10 * number):
            end_run("billing", RunOutcome.FAILED, ago=3 * DAY)
            add_action("billing")
        be_overdue("billing")
        with CaptureQueriesContext(connection) as queries:
            open_page(chief)
        counts.append(len(statements(queries)))
    assert counts == [11] * 3


def test_no_traceback_is_loaded(viewer: Client) -> None:
    """It may be long, and only a run's own page shows it."""
    take("billing")
    add_run("billing", RunOutcome.FAILED, exception_traceback="Traceback")
    with CaptureQueriesContext(connection) as queries:
        open_page(viewer)
    assert not any("exception_traceback" in sql for sql in statements(queries))


def test_refresh_gets_the_page_alone(viewer: Client) -> None:
    """Its parts have the ids of the page's, and no message is used up."""
    take("billing").release()
    add_run("billing")
    whole = open_page(viewer).content.decode()
    parts = open_page(viewer, headers=REFRESH).content.decode()
    marked = r'id="([\w-]+)" data-shedlock-refresh'
    assert re.findall(marked, parts) == re.findall(marked, whole)
    assert len(re.findall(marked, parts)) == 6
    assert "<html" not in parts
    assert "messagelist" not in parts


@override_settings(USE_TZ=False)
def test_page_without_time_zones(chief: Client) -> None:
    """With USE_TZ = False the instants are shown as they are."""
    take("billing").extend()
    be_overdue("billing")
    add_run("billing", duration=MINUTE)
    add_action("billing")
    assert answers(chief)["heartbeat"].startswith("heartbeat")
