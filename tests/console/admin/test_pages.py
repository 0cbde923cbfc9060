"""The page of one lock: five answers, findings, what is offered, and its runs."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from django_shedlock import scheduler_lock
from django_shedlock.beat.catch_up import note_catch_up
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
from tests.console.admin.conftest import Stage
from tests.console.admin.reading import (
    answers,
    audit_log,
    bodies,
    briefs,
    buttons,
    cures,
    drawn,
    entries,
    findings,
    first,
    html_of,
    instead,
    lock_row,
    open_page,
    steady,
    table,
    text,
    texts,
    to_refresh,
)
from tests.support.jobs import only_jobs_of
from tests.support.last_runs import end_run
from tests.support.lateness import (
    DAY,
    HOUR,
    HOURLY,
    be_on_time,
    be_overdue,
    give_schedule,
)
from tests.support.locks import MINUTE, add_run, expire, pause, take
from tests.support.operators import ALL, CHANGE, LIST, RUN, operator, statements
from tests.support.pages import add_action
from tests.support.scenes import each_state

pytestmark = pytest.mark.django_db

VIEWER = ("view_lockrecord", "view_lockrun", "view_lockaction")
REFRESH = {"X-Shedlock-Refresh": "yes"}
NO_SCHEDULE = "It has no schedule: whatever calls its job starts it."
NOTHING_RUNS = "No job runs under this lock."


def without_schedule(shown: str) -> str:
    """Return the text without the minute and the hour of a daily schedule."""
    return re.sub(r"\d+ \d+ \* \* \*", "SCHEDULE", shown)


@pytest.fixture(scope="module")
def pages(stage: Stage) -> dict[str, str]:
    """The page of each lock of the scene, as somebody sees it who may do everything."""
    with stage():
        each_state()
        chief = operator(*ALL)
        keys = LockRecord.objects.values_list("name", flat=True)
        return {name: html_of(open_page(chief, name)) for name in keys}


class TestAnswers:
    """The state, the holder, whether it lives, the last run, and the next run."""

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            (
                "a.free",
                [
                    "free",
                    "Nobody; the last one was web-1 (7) 2h ago TIME",
                    NOTHING_RUNS,
                    "succeeded after 3.0s 2h ago TIME",
                    NO_SCHEDULE,
                ],
            ),
            (
                "b.kept",
                [
                    "held at least Its job has ended; lock_at_least_for keeps it "
                    "for 2h.",
                    "Nobody; the last one was web-1 (7) 1h ago TIME",
                    NOTHING_RUNS,
                    "succeeded after 1m 1h ago TIME",
                    NO_SCHEDULE,
                ],
            ),
            (
                "c.paused",
                [
                    "paused until it is resumed Its job does not run meanwhile, and "
                    "is not overdue.",
                    "maria 2d ago DATE until the new template is approved",
                    NOTHING_RUNS,
                    "No run has reported its end yet.",
                    NO_SCHEDULE,
                ],
            ),
            (
                "d.running",
                [
                    "running for 3h usually 4h",
                    "web-2 (4711) 3h ago TIME",
                    "heartbeat 1h ago 30 % 3h of the lease left",
                    "succeeded after 4h 1d19h ago DATE",
                    "in 16h TIME SCHEDULE UTC",
                ],
            ),
            (
                "e.abandoned",
                [
                    "free",
                    "Nobody; the last one was web-1 (7) 5h ago TIME",
                    "Not known: its last run has not reported its end.",
                    "abandoned after 1h 4h ago TIME",
                    NO_SCHEDULE,
                ],
            ),
            (
                "e.unknown",
                [
                    "free",
                    "Nobody; the last one was web-1 (7) 5h ago TIME",
                    "Not known: its last run has not reported its end.",
                    "abandoned 4h ago TIME",
                    NO_SCHEDULE,
                ],
            ),
            (
                "g.long",
                [
                    "running for 2h usually 10m longer than usual",
                    "web-1 (815) 2h ago TIME",
                    "Not known: its lease was not extended since then. 42 % 3h of the "
                    "lease left",
                    "succeeded after 10m 23h ago TIME",
                    NO_SCHEDULE,
                ],
            ),
            (
                "h.expired",
                [
                    "expired Its lease ended 1h ago, and nobody released it.",
                    "web-3 (99) 5h ago TIME",
                    "heartbeat 2h ago",
                    "succeeded after 1m 9h ago TIME",
                    NO_SCHEDULE,
                ],
            ),
            (
                "i.failed",
                [
                    "free",
                    "Nobody; the last one was web-1 (7) 2h ago TIME",
                    NOTHING_RUNS,
                    "failed after 1m 2h ago TIME 2 runs in a row have not succeeded "
                    "NoPaper tray 2 alice asked for it, because: a customer waits",
                    f"maria asked for a run 10m ago, which is still open {NO_SCHEDULE}",
                ],
            ),
            (
                "j.overdue",
                [
                    "free",
                    "Nobody; the last one was web-1 (7) 2d7h ago DATE",
                    NOTHING_RUNS,
                    "succeeded after 1.0s 2d7h ago DATE",
                    "in 16h TIME SCHEDULE UTC overdue since INSTANT",
                ],
            ),
        ],
    )
    def test_answers_are_whole(
        self, pages: dict[str, str], name: str, expected: list[str]
    ) -> None:
        """A page answers the five questions in words, whatever state the lock is in."""
        shown = [
            re.sub(r"\d+ \d+ \* \* \*", "SCHEDULE", s) for s in answers(pages[name])
        ]
        assert shown == expected

    def test_lost_run_that_goes_on_has_no_end(self, odd: dict[str, Any]) -> None:
        """The page says when the run lost its lock."""
        assert answers(odd["lost"])[3] == "lost now TIME"

    def test_pause_with_an_end(self, odd: dict[str, Any]) -> None:
        """Ticks are skipped meanwhile, and so the job is not overdue."""
        shown = answers(odd["paused"])
        assert shown[0] == (
            "paused until INSTANT Its job does not run meanwhile, and is not overdue."
        )
        assert shown[1:3] == ["alice now TIME the mail server moves", NOTHING_RUNS]
        assert shown[4].endswith("Ticks are skipped while it is paused.")
        assert "overdue since" not in shown[4]
        assert findings(odd["paused"]) == []

    def test_long_lease_has_an_end(self, odd: dict[str, Any]) -> None:
        """Only an endless pause lasts until it is resumed; a list says how long."""
        assert answers(odd["long pause"])[0].startswith("paused until INSTANT Its job")
        assert answers(odd["endless"])[0].startswith("paused until it is resumed Its")
        day, names = "[Last 24 hours: no run, paused] -", ("paused", "endless")
        paused, endless = (lock_row(odd["list"], name) for name in names)
        why = "alice the mail server moves"
        assert paused.startswith(f"paused paused {why}, 1h left {day} in ")
        assert endless == f"endless paused {why}, until it is resumed {day} -"
        for name in ("long", "long pause"):
            assert "until it is resumed" not in lock_row(odd["list"], name)

    def test_ended_pause_names_its_operator(self, odd: dict[str, Any]) -> None:
        """The page names who paused it last; the list only shows present holders."""
        assert answers(odd["ended pause"])[1].startswith(
            "Nobody; the last one was alice"
        )
        assert "alice" not in bodies(odd["list"])["ended pause"]

    def test_lock_that_nobody_ever_held(self, odd: dict[str, Any]) -> None:
        """A registered job has no holder and no run, and no instant of a lock."""
        shown, folded = (
            answers(odd["registered"]),
            entries(odd["registered"], "details"),
        )
        assert shown[1] == "Nobody has held it yet."
        assert shown[3] == "No run has reported its end yet."
        folded = entries(odd["registered"], "details")
        empty = ("Acquisition", "Locked at", "Lock until")
        assert [folded[each] for each in empty] == ["-"] * 3
        assert lock_row(odd["list"], "registered").startswith(
            "registered free [Last 24 hours: no run] - in "
        )

    def test_record_has_all_but_what_was_raised(self, odd: dict[str, Any]) -> None:
        """A row of another run does not stand for one that the history lacks."""
        assert answers(odd["without history"])[3] == "succeeded after 1m now TIME"
        assert answers(odd["failures"])[3] == (
            "failed after 0ms now TIME 2 runs in a row have not succeeded"
        )


@pytest.fixture(scope="module")
def odd(stage: Stage) -> dict[str, Any]:
    """The pages of locks with less common stories, and the list of them."""
    with stage():
        lost = take("lost")
        LockRecord.objects.update(lock_until=DatabaseNow() - MINUTE)
        get_provider().account_for_loss(lost, has_ended=False)
        pause("paused", lasting=2 * HOUR)
        be_overdue("paused")
        pause("long pause", lasting=FOREVER / 2)
        pause("endless", lasting=FOREVER)
        take("long", lock_at_most_for=FOREVER)
        pause("ended pause").release()
        get_provider().register("registered", Schedule("@hourly", "UTC"))
        for name in ("without history", "failures"):
            take(name).release()
        end_run("without history", RunOutcome.SUCCEEDED, duration=MINUTE)
        end_run("failures", RunOutcome.FAILED)
        end_run("failures", RunOutcome.FAILED, exception_type="Stale")
        LockRun.objects.filter(name__in=["without history", "failures"]).delete()
        add_run("without history", RunOutcome.LOST, exception_type="Stale")
        take("fine").release()
        be_on_time("fine")
        take("ticks").release()
        tick = datetime(2026, 3, 2, 10, tzinfo=UTC)
        give_schedule("ticks", tick=tick + 2 * HOUR, succeeded=tick, schedule=HOURLY)
        take("never ran").release()
        give_schedule("never ran", tick=None, succeeded=tick, schedule=HOURLY)
        take("open")
        expire("open")
        viewer = operator(*VIEWER)
        keys = LockRecord.objects.values_list("name", flat=True)
        found: dict[str, Any] = {
            name: html_of(open_page(viewer, name)) for name in keys
        }
        found["list"] = html_of(viewer.get(reverse(LIST)))
        return found


class TestDetails:
    """What is folded away."""

    def test_record_is_folded_away(self, pages: dict[str, str]) -> None:
        """The identity, all instants and the token are there for who unfolds them."""
        page = pages["b.kept"]
        assert '<details class="shedlock-details module">' in page
        folded = entries(page, "details")
        token = folded.pop("Fencing token")
        assert int(token) > 10**12
        assert folded == {
            "Acquisition": "web-1:7:TOKEN",
            "Locked at": "INSTANT",
            "Lock until": "INSTANT",
            "Lock at least until": "INSTANT",
            "Extended at": "-",
            "Released at": "INSTANT",
        }

    def test_ticks_are_shown(self, odd: dict[str, Any]) -> None:
        """The page shows the schedule, what was run, what is due, next and late."""
        folded = entries(odd["ticks"], "details")
        assert folded["Schedule"] == "0 * * * * UTC"
        shown = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", odd["ticks"]))
        assert text(shown["Newest tick that was run"]) == "2026-03-02 06:00:00-06:00"
        assert text(shown["Due at"]) == "2026-03-02 05:00:00-06:00"
        never_ran = entries(odd["never ran"], "details")
        assert never_ran["Newest tick that was run"] == "-"
        assert never_ran["Due at"] == "INSTANT"
        assert "overdue since 2026-03-02 05:00:00-06:00" in text(odd["ticks"])
        assert re.fullmatch(
            r"in \w+ TIME 0 \* \* \* \* UTC overdue since INSTANT",
            answers(odd["ticks"])[4],
        )


class TestFindings:
    """What needs somebody, and what is offered."""

    def test_finding_is_told_as_by_the_command(self, pages: dict[str, str]) -> None:
        """A finding stands above the answers, with a command to copy."""
        page = pages["j.overdue"]
        assert [without_schedule(each) for each in findings(page)] == [
            "Late by 1d7h: the tick of INSTANT (SCHEDULE UTC) has not succeeded. No "
            "run has begun since the tick of INSTANT: check whether its scheduler "
            "runs. python manage.py shedlock catch-up j.overdue What to do"
        ]
        assert ">python manage.py shedlock catch-up j.overdue</code>" in page
        assert page.index("shedlock-findings") < page.index("shedlock-answers")

    def test_fine_lock_has_no_finding(
        self, pages: dict[str, str], odd: dict[str, Any]
    ) -> None:
        """The page of a lock without problems shows no finding of other locks."""
        assert [findings(pages[name]) for name in ("a.free", "d.running")] == [[], []]
        assert findings(odd["fine"]) == []
        assert "overdue" not in text(odd["fine"])

    @pytest.mark.parametrize(
        ("name", "offered"),
        [
            ("a.free", ["Pause job…"]),
            ("b.kept", ["Extend…", "Pause job…", "Release…"]),
            ("c.paused", ["Resume job…", "Pause job…", "Acknowledge…"]),
            ("d.running", ["Extend…", "Release…"]),
            ("e.abandoned", ["Pause job…", "Acknowledge…"]),
            ("g.long", ["Extend…", "Acknowledge…", "Release…"]),
            ("h.expired", ["Pause job…", "Acknowledge…", "Release…"]),
            ("i.failed", ["Pause job…", "Acknowledge…", "Withdraw request…"]),
        ],
    )
    def test_only_what_applies_is_offered(
        self, pages: dict[str, str], name: str, offered: list[str]
    ) -> None:
        """A paused job is resumed first, and an expired lock can't be extended."""
        assert buttons(pages[name]) == offered

    def test_run_that_nobody_would_carry_out_is_a_command(
        self, pages: dict[str, str]
    ) -> None:
        """No button promises it while neither a beat nor a catch-up was seen."""
        trigger = "Run job now: python manage.py shedlock trigger"
        assert instead(pages["a.free"]) == [f"{trigger} a.free"]
        assert instead(pages["d.running"]) == instead(pages["c.paused"]) == []

    def test_buttons_name_their_lock(self, pages: dict[str, str]) -> None:
        """The buttons belong to the form that has the lock's name."""
        page = pages["d.running"]
        form = re.search(r'<form [^>]*id="shedlock-act".*?</form>', page, re.S)
        assert form
        assert 'name="_selected_action" value="d.running"' in form[0]
        assert page.count('form="shedlock-act"') == len(buttons(page)) == 2

    def test_viewer_is_offered_nothing(self, odd: dict[str, Any]) -> None:
        """Seeing a lock is not acting on it."""
        assert buttons(odd["open"]) == buttons(odd["long"]) == []


@pytest.fixture(scope="module")
def history(stage: Stage) -> dict[str, Any]:
    with stage():
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
        take("late").release()
        be_overdue("late")
        add_run("late", started=DatabaseNow() - 3 * DAY)
        take("busy")
        for _ in range(31):
            add_run("busy")
        viewer = operator(*VIEWER)
        found: dict[str, Any] = {
            name: html_of(open_page(viewer, name))
            for name in ("billing", "late", "busy")
        }
        newest = LockRun.objects.filter(name="billing", provider="default")
        keys = newest.order_by("pk").values_list("pk", flat=True)
        found["runs"] = [reverse(RUN, args=[key]) for key in keys]
        assert found["runs"][-1] == reverse(RUN, args=[failed.pk])
        releaser = operator("view_lockrecord", "release_lockrecord", name="other")
        end_run("late", RunOutcome.FAILED, exception_message="secret")
        found["releaser"] = html_of(open_page(releaser, "late"))
        return found


class TestRuns:
    """The table, the chart and the statistics of the last runs."""

    def test_table_has_the_lock_s_own_runs(self, history: dict[str, Any]) -> None:
        """The table has only this lock's runs of this provider, the newest first."""
        assert table(history["billing"]) == [
            "Ended Outcome Duration Started by Host Exception",
            "INSTANT failed 2m operator alice web-1 (7) ValueError no paper",
            "INSTANT succeeded 1m scheduler web-1 (7)",
        ]

    def test_chart_has_them_and_the_open_run(self, history: dict[str, Any]) -> None:
        """Each mark leads to its run, but the run that goes on has no page."""
        page = history["billing"]
        marks = drawn(page)
        assert [(kind, link) for kind, _, link in marks] == [
            ("succeeded", history["runs"][0]),
            ("failed", history["runs"][1]),
            ("running", ""),
        ]
        ended, failed, running = [steady(title) for _, title, _ in marks]
        assert ended == "INSTANT: succeeded after 1m"
        assert failed == "INSTANT: failed after 2m"
        assert re.fullmatch(r"INSTANT: running for \S+ so far", running)
        assert first(r'<p class="shedlock-scale".*?>(.*?)</p>', page) == "2m 1m 0"
        title = "Durations and outcomes of the last runs, the newest on the right"
        assert f'role="group" aria-label="{title}"' in page

    def test_statistics_are_those_of_all_runs(self, history: dict[str, Any]) -> None:
        """The statistics are the success rate, usual durations, and number of runs."""
        pattern = r'<dl class="shedlock-statistics">(.*?)</dl>'
        assert first(pattern, history["billing"]) == (
            "Succeeded 50 % Median 1m 95 % took at most 1m Last runs that ended 2"
        )
        assert first(pattern, history["busy"]).endswith("Last runs that ended 31")

    def test_missed_ticks_are_drawn(self, history: dict[str, Any]) -> None:
        """A gap in the chart shows that the scheduler started nothing."""
        [(_, title, link)] = [m for m in drawn(history["late"]) if m[0] == "missed"]
        assert (steady(title)[2:], link) == ("ticks without a run after INSTANT", "")

    def test_page_has_ten_runs_and_thirty_bars_at_the_most(
        self, history: dict[str, Any]
    ) -> None:
        """The page shows at most ten runs in the table and thirty in the chart."""
        assert len(table(history["busy"])) == 11
        assert len(drawn(history["busy"])) == 30

    def test_lock_without_runs_says_so(self, odd: dict[str, Any]) -> None:
        """An open run is not denied: the page names its holder."""
        page = odd["open"]
        assert "The history has no run of this lock." in page
        assert answers(page)[3] == "No run has reported its end yet."
        assert re.fullmatch(r".+ \(\d+\) now TIME", answers(page)[1])
        assert "The history has no run of this lock." in odd["long"]
        assert "shedlock-chart" not in odd["long"].replace("charts.css", "")

    def test_runs_need_their_permission(self, history: dict[str, Any]) -> None:
        """Who may not see runs sees only what the record says of the last one."""
        page = history["releaser"]
        assert "secret" not in page
        assert "Last runs" not in page
        assert answers(page)[3] == "failed after 0ms now TIME"


def test_open_request_is_shown_until_it_expires(chief: Client) -> None:
    """The page and the list name who asked, and offer to withdraw the request."""
    take("billing").release()
    get_provider().request_run("billing", "alice", "a customer waits")
    asked = "alice asked for a run now, which is still open"
    page, shown = html_of(open_page(chief)), html_of(chief.get(reverse(LIST)))
    assert answers(page)[4] == f"{asked} {NO_SCHEDULE}"
    assert "Withdraw request…" in buttons(page)
    assert texts(r'<li data-shedlock-key="request">(.*?)</li>', steady(shown)) == [
        asked
    ]
    assert cures(shown) == {"billing": ["Withdraw request…"]}
    LockRecord.objects.update(asked_at=DatabaseNow() - REQUEST_LIFETIME)
    page, shown = html_of(open_page(chief)), html_of(chief.get(reverse(LIST)))
    assert answers(page)[4] == NO_SCHEDULE
    assert "Withdraw request…" in buttons(page)
    assert (briefs(shown), cures(shown)) == ({}, {})
    assert "asked for a run" not in shown


def test_run_can_be_asked_for_while_a_catch_up_is_seen(chief: Client) -> None:
    """The button promises it for as long as a catch-up was seen lately."""
    take("billing").release()
    note_catch_up(get_provider())
    page = html_of(open_page(chief))
    assert (buttons(page), instead(page)) == (["Pause job…", "Run job now…"], [])
    ago = F("locked_at") - REQUEST_LIFETIME
    LockRecord.objects.filter(name="shedlock.catch-up").update(locked_at=ago)
    page = html_of(open_page(chief))
    assert (buttons(page), len(instead(page))) == (["Pause job…"], 1)


def test_paused_job_that_had_failed_is_resumed_first(chief: Client) -> None:
    """The list offers to resume it and to acknowledge the failure, but runs nothing."""
    pause("billing", lasting=FOREVER)
    LockRecord.objects.update(locked_at=DatabaseNow() - 2 * DAY)
    end_run("billing", RunOutcome.FAILED)
    offered = buttons(html_of(open_page(chief)))
    assert offered == ["Resume job…", "Pause job…", "Acknowledge…"]
    page = html_of(chief.get(reverse(LIST)))
    assert cures(page) == {"billing": ["Resume job…", "Acknowledge…", "The run"]}


def test_page_says_what_the_job_is_for(viewer: Client) -> None:
    """The page says what the job is for, and links to its runbook; markup is text."""
    take("billing")
    wiki = "https://wiki.example.com/?a=1&b=2"
    with only_jobs_of():
        job = scheduler_lock("billing", description="<b>Bill</b>", runbook=wiki)(open)
        page = html_of(open_page(viewer))
    assert callable(job)
    assert "&lt;b&gt;Bill&lt;/b&gt;" in page
    assert 'href="https://wiki.example.com/?a=1&amp;b=2"' in page
    assert "What to do if it fails" not in html_of(open_page(viewer))


@pytest.mark.parametrize(
    ("of", "name"), [(Search, "of_locks"), (RequestRun, "command_instead")]
)
def test_store_that_fails_is_reported(
    chief: Client, monkeypatch: pytest.MonkeyPatch, of: type, name: str
) -> None:
    """The rest of the page is there; nothing is offered while the state is unknown."""

    def fail(*arguments: Any) -> None:
        raise LockProviderError("Could not read the runs: <no table>")

    take("billing").release()
    monkeypatch.setattr(of, name, fail)
    page = html_of(open_page(chief))
    assert "Could not read the runs: &lt;no table&gt;" in page
    assert answers(page)[0] == "free"
    assert (buttons(page), instead(page)) == ([], [])


def test_unknown_lock_leads_back(viewer: Client) -> None:
    """The page of a lock that is gone leads to the admin's start, with a message."""
    response = viewer.get(reverse(CHANGE, args=["gone"]), follow=True)
    assert "gone" in text(response.content.decode())
    assert response.redirect_chain


def test_page_has_as_many_queries_whatever_it_shows(chief: Client) -> None:
    """The page sends as many statements whatever the number of runs and actions."""
    take("billing").release()
    end_run("billing", RunOutcome.FAILED, exception_traceback="Traceback")
    counts = []
    open_page(chief)
    for number in range(3):
        for _ in range(5 * number):
            end_run("billing", RunOutcome.FAILED, ago=3 * DAY)
            add_action("billing")
        be_overdue("billing")
        with CaptureQueriesContext(connection) as queries:
            open_page(chief)
        counts.append(len(statements(queries)))
        # It may be long, and only a run's own page shows it.
        assert not any("exception_traceback" in sql for sql in statements(queries))
    assert counts == [11] * 3


def test_refresh_gets_the_page_alone(viewer: Client) -> None:
    """The parts of a refresh have the page's ids, and no message is used up."""
    take("billing").release()
    add_run("billing")
    whole = html_of(open_page(viewer))
    parts = html_of(open_page(viewer, headers=REFRESH))
    assert to_refresh(parts) == to_refresh(whole)
    assert len(to_refresh(parts)) == 6
    assert "<html" not in parts
    assert "messagelist" not in parts


@override_settings(USE_TZ=False)
def test_page_without_time_zones(chief: Client) -> None:
    """The page of a lock shows its instants with USE_TZ = False."""
    take("billing").extend()
    be_overdue("billing")
    add_run("billing", duration=MINUTE)
    add_action("billing")
    page = html_of(open_page(chief))
    assert answers(page)[2].startswith("heartbeat now")
    assert audit_log(page) == ["INSTANT done Release alice"]
