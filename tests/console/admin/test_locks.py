"""The list of locks: what it shows of each, how it is chosen, and whose it is."""

from __future__ import annotations

import re
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.core import checks
from django.db import connection
from django.test import Client, modify_settings, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import path, reverse

from django_shedlock import execute
from django_shedlock.console.admin import LockRecordAdmin, LockRunAdmin
from django_shedlock.console.monitoring.search import Search
from django_shedlock.locks.status import LockState, RunOutcome
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider
from django_shedlock.schedules.cron import Schedule
from django_shedlock.sql.fields import DatabaseNow
from tests.console.admin.conftest import Stage
from tests.console.admin.reading import (
    bodies,
    briefs,
    cells,
    choices,
    cures,
    details,
    headline,
    html_of,
    lock_rows,
    names,
    states,
    steady,
    text,
)
from tests.support.last_runs import end_run
from tests.support.lateness import (
    UNKNOWN,
    be_overdue,
    be_overdue_by_unknown_schedule,
)
from tests.support.locks import add_run, expire, state, take
from tests.support.operators import (
    ALL,
    CHANGE,
    DELETE,
    HOSTILE,
    LIST,
    RUN,
    RUNS,
    ask,
    confirm,
    operator,
    statements,
    superuser,
)
from tests.support.scenes import each_state

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)
VIEWER = ("view_lockrecord", "view_lockrun", "view_lockaction")


def open_list(client: Client, query: str = "") -> str:
    return html_of(client.get(reverse(LIST) + query))


def register_a_job() -> None:
    """Register a job that has never run, and whose first tick is 16 hours away."""
    moment = LockRecord.objects.clock() - timedelta(hours=7.5)
    daily = Schedule(f"{moment:%M %H} * * *", "UTC")
    get_provider().register("a.registered", daily)


@pytest.fixture(scope="module")
def pages(stage: Stage) -> dict[str, Any]:
    with stage():
        each_state()
        register_a_job()
        chief = operator(*ALL)
        found: dict[str, Any] = {
            "chief": open_list(chief),
            "held": open_list(chief, "?state=held+at+least&q=b"),
            "viewer": open_list(operator(*VIEWER, name="viewer")),
            "without runs": open_list(operator("view_lockrecord", name="other")),
            "runs": {run.pk: run.name for run in LockRun.objects.exclude(outcome="")},
            "said": Search(timedelta(minutes=5)).attention(get_provider()).findings,
        }
        with override_settings(SHEDLOCK_GRACE="30d"):
            found["patient"] = open_list(chief)
    return found


class TestEachState:
    """A lock in each state, and for each common finding, as three people see them."""

    def test_each_lock_has_a_row(self, pages: dict[str, Any]) -> None:
        """A row has the lock's state, holder, last 24 hours, last run and next run."""
        assert lock_rows(pages["chief"]) == [
            "j.overdue free [Last 24 hours: no run, 1 gap without a run] "
            "succeeded 1.0s in 16h",
            "i.failed free [Last 24 hours: 1 failed, 1 timed out] failed 1m -",
            "h.expired expired [Last 24 hours: 1 succeeded, expired] succeeded 1m -",
            "g.long running 42 % 3h left [Last 24 hours: 1 succeeded, running] "
            "succeeded 10m -",
            "f.lost free [Last 24 hours: 1 lost] lost 2h -",
            "e.abandoned free [Last 24 hours: 1 abandoned] abandoned 1h -",
            "e.unknown free [Last 24 hours: 1 abandoned] abandoned -",
            "c.paused paused [Last 24 hours: no run, paused] - -",
            "d.running running web-2 (4711) for 3h, 30 % 3h left "
            "[Last 24 hours: no run, running] succeeded 4h in 16h",
            "b.kept held at least kept for 2h by lock_at_least_for "
            "[Last 24 hours: 1 succeeded] succeeded 1m -",
            "a.free free [Last 24 hours: 1 succeeded] succeeded 3.0s -",
            "a.registered free [Last 24 hours: no run] - in 16h",
        ]

    def test_tooltips_have_what_the_row_leaves_out(self, pages: dict[str, Any]) -> None:
        """Tooltips show a holder's whole identity and the instant of the next tick."""
        body = bodies(pages["chief"])["d.running"]
        assert 'title="web-2:4711:9f86d081884c7d65"' in body
        assert re.findall(r'<meter [^>]*value="(\d+)"', body) == ["30"]
        [tick] = re.findall(r'"field-next_expected.*?title="(.*?)"', body, re.S)
        assert re.fullmatch(r"[\d-]+ \d\d:\d\d:00-0[56]:00", tick)

    def test_each_finding_has_a_line(self, pages: dict[str, Any]) -> None:
        """Only what goes on has lasted "for" some time; an event is some time "ago"."""
        assert briefs(pages["chief"]) == {
            "j.overdue": ["Overdue for 1d7h · no run has begun"],
            "i.failed": [
                "Failed 2h ago · web-1:7 · NoPaper, 2 runs in a row",
                "Request not carried out 10m ago · maria · no host has started the run",
            ],
            "h.expired": [
                "Expired 1h ago · web-3:99 · never released its lock: dead, or still "
                "running?"
            ],
            "g.long": ["Runs too long for 2h · web-1:815 · usually takes 10m"],
            "f.lost": ["Lost 3h ago · web-1:7 · may have run twice"],
            "e.abandoned": [
                "Abandoned 5h ago · web-1:7 · never reported its end, may still run"
            ],
            "e.unknown": ["Abandoned web-1:7 · never reported its end, may still run"],
            "c.paused": [
                "Paused for 2d · maria · no end: until the new template is approved"
            ],
        }

    def test_details_are_those_of_check(self, pages: dict[str, Any]) -> None:
        """Below its line, a finding has the words of ``shedlock check``."""
        shown = details(pages["chief"])
        assert list(shown) == list(pages["said"])
        for name, findings in pages["said"].items():
            for line, finding in zip(shown[name], findings, strict=True):
                assert steady(line).startswith(steady(finding.sentence))
                assert line.endswith(f"{finding.command} What to do")
        [details_of_h] = shown["h.expired"]
        assert "python manage.py shedlock show h.expired What to do" in details_of_h

    def test_headline_counts_each_kind(self, pages: dict[str, Any]) -> None:
        """Each part leads to its filter, and the rest is well."""
        parts = {
            "overdue": "1 job overdue",
            "failed": "1 job failed",
            "expired": "1 lock expired",
            "long": "1 job runs too long",
            "lost": "1 lock was lost",
            "abandoned": "2 runs never reported their end",
            "request": "1 request not carried out",
            "paused": "1 pause has no end",
        }
        assert choices(pages["chief"]) == parts
        assert headline(pages["chief"]) == f"{', '.join(parts.values())} · 4 well"

    def test_states_are_counted(self, pages: dict[str, Any]) -> None:
        """The headline has the expired lock already; a link chooses, or takes back."""
        counts = {"running": 2, "paused": 1, "held at least": 1, "free": 7}
        assert states(pages["chief"]) == counts
        assert 'href="?state=held+at+least"' in pages["chief"]
        assert 'href="?q=b" aria-current="true">held at least' in pages["held"]
        assert list(bodies(pages["held"])) == ["b.kept"]

    def test_finding_offers_what_helps(self, pages: dict[str, Any]) -> None:
        """A dangerous action is last; nobody offers a run that no host would start."""
        assert cures(pages["chief"]) == {
            "j.overdue": ["Acknowledge…"],
            "i.failed": ["Acknowledge…", "Withdraw request…", "The run"],
            "h.expired": ["Release…"],
            "g.long": ["Extend…", "Release…"],
            "f.lost": ["Acknowledge…", "The run"],
            "e.abandoned": ["Acknowledge…", "The run"],
            "e.unknown": ["Acknowledge…", "The run"],
            "c.paused": ["Resume job…"],
        }

    def test_viewer_is_offered_nothing(self, pages: dict[str, Any]) -> None:
        """A viewer reads what is found; only runs are a click away."""
        assert briefs(pages["viewer"]) == briefs(pages["chief"])
        bad = ["i.failed", "f.lost", "e.abandoned", "e.unknown"]
        assert cures(pages["viewer"]) == {name: ["The run"] for name in bad}

    def test_bad_end_links_to_its_run(self, pages: dict[str, Any]) -> None:
        """The link leads to the last bad run, for whoever may see runs."""
        link = r'<a class="button" href="[^"]*/lockrun/(\d+)/change/"'
        for name in ("i.failed", "f.lost", "e.abandoned"):
            [key] = re.findall(link, bodies(pages["viewer"])[name])
            last = max(pk for pk, of in pages["runs"].items() if of == name)
            assert int(key) == last
        assert cures(pages["without runs"]) == {}
        assert "/lockrun/" not in pages["without runs"]

    def test_runs_need_their_permission(self, pages: dict[str, Any]) -> None:
        """Without it the list shows what the records say, and no strip."""
        assert lock_rows(pages["without runs"])[1] == "i.failed free - failed 1m -"
        assert "tray 2" in pages["viewer"]
        assert "tray 2" not in pages["without runs"]

    def test_patient_project_finds_less(self, pages: dict[str, Any]) -> None:
        """With a long SHEDLOCK_GRACE nothing is overdue, and no request is late."""
        assert set(briefs(pages["chief"])) - set(briefs(pages["patient"])) == {
            "j.overdue"
        }


@pytest.mark.each_store
def test_list_can_be_filtered_and_searched(viewer: Client) -> None:
    """The filters choose by state, last outcome and finding, also together."""
    each_state()
    register_a_job()
    take("same.as.f").release()
    end_run("same.as.f")
    add_run("same.as.f", RunOutcome.LOST)  # the history is not searched
    found = {
        "state=running": ["g.long", "d.running"],
        "state=held+at+least": ["b.kept"],
        "state=paused": ["c.paused"],
        "state=expired": ["h.expired"],
        "state=free&q=a.": ["a.free", "a.registered"],
        "last=succeeded&state=free": ["j.overdue", "a.free", "same.as.f"],
        "last=failed": ["i.failed"],
        "last=timed+out": [],
        "last=lost": ["f.lost"],
        "last=abandoned": ["e.abandoned", "e.unknown"],
        "attention=overdue": ["j.overdue"],
        "attention=overdue&q=j.o": ["j.overdue"],
        "attention=overdue&q=a.": [],
        "attention=lost": ["f.lost"],
        "attention=request": ["i.failed"],
        "attention=clock": [],  # concerns no lock
        "attention=any&q=.": list("jihgfeec"),
        "state=asleep": [],
        "last=asleep": [],
        "attention=asleep": [],
        "q=expir": ["h.expired"],
        "q=web-3:99": ["h.expired"],
    }
    shown = {query: names(viewer.get(f"{reverse(LIST)}?{query}")) for query in found}
    shown["attention=any&q=."] = [name[0] for name in shown["attention=any&q=."]]
    assert shown == found


@pytest.mark.each_store
def test_list_can_be_ordered(chief: Client) -> None:
    """A click on a column's head orders by it: by name, or by the last run's end."""
    each_state()
    ended = ["j", "d", "g", "h", "e", "f", "a", "i", "b"]
    orders = {"1": sorted("abcdefghij"), "4": ended, "-4": ended[::-1]}
    for order, expected in orders.items():
        page = chief.get(reverse(LIST), {"o": order})
        shown = dict.fromkeys(name[0] for name in names(page))
        assert [name for name in shown if name in expected] == expected


def reads_a_day(sql: str) -> bool:
    """Return whether the statement reads only the last runs of the page's locks."""
    _, _, where = sql.partition("WHERE")
    limits = (r"\bended. >= ", r"\bid. >= ", r"\bname. IN \(")
    return all(re.search(limit, where) for limit in limits)


@pytest.mark.each_store
def test_filter_by_last_outcome_reads_no_history(viewer: Client) -> None:
    """The records have the outcomes; of the runs, only a few are looked up by index."""
    each_state()
    with CaptureQueriesContext(connection) as captured:
        viewer.get(reverse(LIST), {"last": "failed"})
    of_runs = [q["sql"] for q in captured if "shedlock_run" in q["sql"]]
    unlimited = [sql for sql in of_runs if "LIMIT" not in sql]
    # The oldest run, one beside a loss, and the first one of the last 24 hours.
    assert len(unlimited) >= len(of_runs) - 3
    [of_day] = [sql for sql in unlimited if reads_a_day(sql)]
    by_key = [sql for sql in unlimited if sql != of_day]
    assert all("WHERE" in s and "locked_by" in s.partition("WHERE")[2] for s in by_key)


def test_empty_list_explains_itself(viewer: Client) -> None:
    """
    An empty list explains how a lock gets into it.

    The list suggests a catch-up only if the app of the beat is installed.
    """
    appears = (
        "There are no locks yet. A lock appears here when its job runs for the first "
        "time: decorate a function with @scheduler_lock and call it, or run a command "
        "with “python manage.py shedlock run”."
    )
    catch_up = (
        " For jobs with a schedule, run “python manage.py shedlock catch-up” once."
    )
    assert appears + catch_up in text(open_list(viewer))
    with modify_settings(INSTALLED_APPS={"remove": "django_shedlock.beat"}):
        page = text(open_list(viewer))
    assert appears in page
    assert "catch-up" not in page


@pytest.mark.parametrize(
    ("runs_for", "usually", "lines"),
    [
        (9 * MINUTE, 2 * MINUTE, ["Runs too long for 9m"]),
        (5 * MINUTE, 2 * MINUTE, []),
        (10 * MINUTE / 60, MINUTE / 60, []),
    ],
)
def test_job_that_takes_longer_than_usual_stands_out(
    viewer: Client, runs_for: timedelta, usually: timedelta, lines: list[str]
) -> None:
    """A job is suspected at three times the usual duration, and a short one later."""
    take("billing")
    LockRecord.objects.update(locked_at=DatabaseNow() - runs_for)
    end_run("billing", duration=usually)
    shown = briefs(open_list(viewer)).get("billing", [])
    assert [line.partition(" · ")[0] for line in shown] == lines


def test_schedule_that_nobody_reads_is_shown(viewer: Client) -> None:
    """
    A schedule that this version can't read is shown as it was written.

    The job still counts as overdue.
    """
    take("billing").release()
    be_overdue_by_unknown_schedule("billing")
    assert cells(viewer.get(reverse(LIST)), "next_expected") == ["-"]
    page = text(html_of(viewer.get(reverse(CHANGE, args=["billing"]))))
    assert f"The next tick is not known here. {UNKNOWN} overdue since" in page
    assert names(viewer.get(reverse(LIST), {"attention": "overdue"})) == ["billing"]


def test_statements_do_not_grow_with_the_rows(viewer: Client) -> None:
    """A page sends as many statements with many locks and runs as with few."""
    take("first")
    take("failing").release()
    end_run("failing", RunOutcome.FAILED)
    page, overdue = reverse(CHANGE, args=["first"]), "?attention=overdue"
    expected = {reverse(LIST): 15, reverse(LIST) + overdue: 15, page: 8}
    for address in expected:
        viewer.get(address)
    for number in range(2):
        for each in range(4):  # else a silent scheduler is not suspected
            take(f"late-{number}-{each}").release()
            be_overdue(f"late-{number}-{each}")
            add_run("first")
        counts = {}
        for address in expected:
            with CaptureQueriesContext(connection) as queries:
                assert viewer.get(address).status_code == 200
            counts[address] = len(statements(queries))
        assert counts == expected


def test_nobody_can_add_change_or_delete_a_lock() -> None:
    """A superuser only views locks: ``shedlock prune`` deletes what nobody needs."""
    take("old").release()
    client = superuser()
    page = html_of(client.get(reverse(CHANGE, args=["old"])))
    assert 'name="_save"' not in page
    add = reverse("admin:django_shedlock_lockrecord_add")
    assert client.get(add).status_code == 403
    for address in (CHANGE, DELETE):
        answer = client.post(reverse(address, args=["old"]), {"post": "yes"})
        assert answer.status_code == 403
    ask(client, "old", action="delete_selected")
    assert state("old") is LockState.FREE
    assert 'value="delete_selected"' not in open_list(client)


def test_texts_with_markup_are_escaped(chief: Client) -> None:
    """Names, holders and exceptions with markup are text, also in commands."""
    names_of_locks = (HOSTILE, f"{HOSTILE}`<b>")
    for name in names_of_locks:
        LockRecord.objects.create(
            name=name,
            locked_by=HOSTILE,
            locked_at=DatabaseNow(),
            lock_until=DatabaseNow() + MINUTE,
        )
    end_run(
        HOSTILE,
        RunOutcome.FAILED,
        locked_by=HOSTILE,
        exception_type=HOSTILE,
        exception_message=HOSTILE,
    )
    expire(names_of_locks[1])
    change = reverse(CHANGE, args=[quote(HOSTILE)])
    for address in (reverse(LIST), change):
        page = html_of(chief.get(address))
        assert HOSTILE not in page
        assert "<b>" not in page
        assert "&lt;script&gt;" in page


@override_settings(USE_TZ=False)
def test_list_without_time_zones(viewer: Client) -> None:
    """The list and the page of a lock work with USE_TZ = False."""
    take("billing").release()
    be_overdue("billing")
    add_run("billing")
    page = open_list(viewer)
    [line] = briefs(page)["billing"]
    assert re.fullmatch(r"Overdue for \dd(\d+h)? · no run has begun", line)
    assert viewer.get(reverse(CHANGE, args=["billing"])).status_code == 200


@override_settings(SHEDLOCK_PROVIDERS={"default": {"BACKEND": "tests.nothing"}})
def test_admin_has_no_errors_of_its_own() -> None:
    """Django's checks of the admin pass, and need no provider."""
    assert checks.run_checks(tags=["admin"]) == []


def urls_of(*sites: tuple[str, admin.AdminSite]) -> Any:
    """Return the addresses of a project with these admin sites."""
    urls: Any = ModuleType("urls")
    urls.urlpatterns = [path(f"{place}/", site.urls) for place, site in sites]
    return urls


@pytest.mark.parametrize(
    ("model", "model_admin", "page"),
    [
        (LockRecord, LockRecordAdmin, "lockrecord/billing/change/"),
        (LockRun, LockRunAdmin, "lockrun/"),
    ],
)
def test_another_site_needs_only_one_of_both(
    chief: Client, model: Any, model_admin: Any, page: str
) -> None:
    """A site of the project's own can have the locks without the runs, or these."""
    site = admin.AdminSite(name="operations")
    site.register(model, model_admin)
    take("billing")
    add_run("billing")
    with override_settings(ROOT_URLCONF=urls_of(("operations", site))):
        shown = html_of(chief.get(f"/operations/django_shedlock/{page}"))
    assert "billing" in text(shown)


def test_page_of_another_site_leads_to_its_own_runs(chief: Client) -> None:
    """The runs of the first site may be closed to its readers, or not there at all."""
    site = admin.AdminSite(name="operations")
    site.register(LockRecord, LockRecordAdmin)
    site.register(LockRun, LockRunAdmin)
    urls = urls_of(("operations", site), ("admin", admin.AdminSite()))
    take("billing")
    run = end_run("billing", RunOutcome.FAILED)
    with override_settings(ROOT_URLCONF=urls):
        page = html_of(
            chief.get("/operations/django_shedlock/lockrecord/billing/change/")
        )
    address = f"/operations/django_shedlock/lockrun/{run.pk}/change/"
    assert page.count(f'<a href="{address}"') == 3


@pytest.mark.django_db(databases=["default", "other"], transaction=True)
@override_settings(
    SHEDLOCK_PROVIDERS={
        "memory": {"BACKEND": "django_shedlock.providers.memory.MemoryLockProvider"},
        "default": {
            "BACKEND": "django_shedlock.providers.database.DatabaseLockProvider",
            "OPTIONS": {"using": "other"},
        },
    }
)
def test_locks_of_another_database(chief: Client) -> None:
    """All pages show, and all actions change, the provider's own database."""
    lock = take("billing")
    execute(lambda: None, "cleanup")
    run = LockRun.objects.using("other").get()
    shown = {
        reverse(LIST): "billing",
        reverse(CHANGE, args=["billing"]): "billing",
        reverse(RUNS): "cleanup",
        reverse(RUN, args=[run.pk]): "cleanup",
    }
    for address, name in shown.items():
        with CaptureQueriesContext(connection) as queries:
            assert name in text(html_of(chief.get(address)))
        assert not re.search(r"FROM .shedlock", str(queries.captured_queries))
    confirm(chief, "billing", lock.locked_by)
    assert state("billing") is LockState.FREE
