"""The list of locks, and the page of one of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from html import unescape
from types import ModuleType
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.core import checks
from django.db import connection
from django.test import Client, modify_settings, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import path, reverse

from django_shedlock import execute
from django_shedlock.console.admin import LockRecordAdmin, LockRunAdmin
from django_shedlock.locks.status import LockState, RunOutcome
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider
from django_shedlock.schedules.cron import Schedule
from django_shedlock.sql.fields import DatabaseNow
from tests.support.last_runs import end_run
from tests.support.lateness import (
    HOUR,
    UNKNOWN,
    be_on_time,
    be_overdue,
    be_overdue_by_unknown_schedule,
)
from tests.support.locks import add_run, expire, pause, state, take
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
)

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


def text(html: str) -> str:
    """Return what a reader sees in one line: a picture is its label, in brackets."""
    html = re.sub(r'<svg [^>]*aria-label="(.*?)".*?</svg>', r" [\1]", html, flags=re.S)
    shown = re.sub(r"<[^>]+>", " ", html.replace("<wbr>", ""))
    return unescape(" ".join(shown.split()))


def cells(page: Any, column: str) -> list[str]:
    """Return the texts of a column of the list."""
    found = re.findall(
        rf'<t[dh] class="field-{column}[^"]*">(.*?)</t[dh]>',
        page.content.decode(),
        flags=re.DOTALL,
    )
    return [text(cell) for cell in found]


def age(name: str, by: timedelta) -> None:
    """Let the lock have been taken that much earlier."""
    LockRecord.objects.filter(name=name).update(locked_at=DatabaseNow() - by)


@dataclass(frozen=True)
class ShownLock:
    """What a reader sees of a lock in the list."""

    name: str
    lines: list[str]
    """The findings in one line each."""
    details: list[str]
    """The findings with all that is folded away."""
    request: str
    buttons: list[str]


@dataclass(frozen=True)
class Scene:
    """What a reader sees of the list: its headline, states, and locks in order."""

    headline: str
    choices: dict[str, str]
    """The linked parts of the headline by their choices of the attention filter."""
    states: dict[str, int]
    locks: list[ShownLock]


def first(pattern: str, html: str) -> str:
    """Return the text of the first group of the first match; empty without one."""
    found = re.search(pattern, html, re.S)
    return text(found[1]) if found else ""


def scene(page: Any) -> Scene:
    """Return what the page shows."""
    html = page.content.decode()
    headline = re.search(r'<h1 id="shedlock-headline".*?>(.*?)</h1>', html, re.S)
    assert headline
    links = re.findall(
        r'href="\?(?:[^"]*[?;])?attention=(\w+)[^"]*">(.*?)</a>', headline[1]
    )
    states = re.findall(
        r'href="\?(?:[^"]*[?;])?state=([\w+]+)[^"]*">[^<]*<strong>(\d+)<', html
    )
    bodies = re.findall(
        r'<tbody data-shedlock-key="lock (.*?)".*?>(.*?)</tbody>', html, re.S
    )
    return Scene(
        text(headline[1]).replace(" ,", ","),
        {choice: text(part) for choice, part in links},
        {state.replace("+", " "): int(locks) for state, locks in states},
        [shown_lock(unescape(name), body) for name, body in bodies],
    )


def shown_lock(name: str, html: str) -> ShownLock:
    """Return the lock that this part of the list is about."""
    item = r'<li data-shedlock-key="(?!request")[^>]*>(.*?)</li>'
    findings = re.findall(item, html, re.S)
    line = r'(?:<summary|<p) class="shedlock-brief">(.*?)</(?:summary|p)>'
    return ShownLock(
        name,
        [first(line, finding) for finding in findings],
        [first(r"</summary>(.*)</details>", finding) for finding in findings],
        first(r'<li data-shedlock-key="request">(.*?)</li>', html),
        [text(each) for each in re.findall(r"<button [^>]*>(.*?)</button>", html)],
    )


def told(page: Any) -> dict[str, list[str]]:
    """Return the findings below each lock of the list, with their whole sentences."""
    return {
        row["name"]: [f"{line.label} {line.finding.sentence}" for line in row["lines"]]
        for row in page.context["shedlock_rows"]
        if row["lines"]
    }


@pytest.fixture
def one_of_each() -> None:
    """A lock in each state, its name in the order of urgency backwards."""
    take("a.free").release()
    take("b.kept", lock_at_least_for=MINUTE).release()
    take("c.running")
    take("d.expired")
    expire("d.expired")


@pytest.mark.usefixtures("one_of_each")
def test_list_shows_the_most_urgent_first(viewer: Client) -> None:
    """The states are told apart, and what needs a look stands on top."""
    page = viewer.get(reverse(LIST))
    assert cells(page, "current_state") == [
        "expired",
        "running",
        "held at least",
        "free",
    ]


@pytest.mark.each_store
@pytest.mark.usefixtures("one_of_each")
def test_list_can_be_ordered_by_name(chief: Client) -> None:
    """A click on a column's head orders by it."""
    page = chief.get(reverse(LIST), {"o": "1"})
    assert cells(page, "shown_name") == ["a.free", "b.kept", "c.running", "d.expired"]


def names(page: Any) -> list[str]:
    """Return the locks of the list, in its order."""
    return [record.name for record in page.context["cl"].result_list]


@pytest.mark.each_store
@pytest.mark.usefixtures("one_of_each")
def test_list_counts_the_states(viewer: Client) -> None:
    """Above the list are the numbers of locks in each state; the links filter."""
    take("e.running")
    page = viewer.get(reverse(LIST))
    shown = scene(page)
    assert shown.headline == "1 lock expired · 4 well"
    assert shown.choices == {"expired": "1 lock expired"}
    assert shown.states == {"running": 2, "held at least": 1, "free": 1}
    assert 'href="?state=held+at+least"' in page.content.decode()
    chosen = viewer.get(reverse(LIST), {"state": "held at least", "q": "b"})
    assert 'href="?q=b"' in chosen.content.decode()


def test_empty_list_explains_itself(viewer: Client) -> None:
    """Before the first run the list says how a lock comes into it."""
    page = viewer.get(reverse(LIST)).content.decode()
    assert "There are no locks yet" in page
    for step in ("@scheduler_lock", "manage.py shedlock run", "shedlock catch-up"):
        assert step in page


def test_empty_list_names_no_catch_up_without_the_beat(viewer: Client) -> None:
    """A project that lacks the app has no such subcommand."""
    with modify_settings(INSTALLED_APPS={"remove": "django_shedlock.beat"}):
        page = viewer.get(reverse(LIST)).content.decode()
    assert "There are no locks yet" in page
    assert "catch-up" not in page


def test_list_shows_holder_age_and_lease(viewer: Client) -> None:
    """The list tells who holds a lock, for how long, and how long at the most."""
    lock = take("billing", lock_at_most_for=4 * HOUR)
    age("billing", 12 * HOUR)
    page = viewer.get(reverse(LIST))
    host, pid, _ = lock.locked_by.split(":")
    [shown] = cells(page, "last_day")
    expected = (
        rf"{re.escape(host)} \({pid}\) for 12h , 7[45] % (4h|3h59m) left "
        r"\[Last 24 hours: no run, running\]"
    )
    assert re.fullmatch(expected, shown)
    assert lock.locked_by in page.content.decode()
    assert re.search(r'<meter [^>]*value="7[45]"', page.content.decode())


def test_free_lock_has_no_lease(viewer: Client) -> None:
    """Nobody is shown as the holder of a lock that nobody holds."""
    take("billing").release()
    shown = cells(viewer.get(reverse(LIST)), "last_day")
    assert shown == ["[Last 24 hours: 1 succeeded]"]


def test_list_shows_the_last_run(chief: Client) -> None:
    """How the last run ended, and how long it took, by the record."""
    take("billing").release()
    end_run("billing", RunOutcome.FAILED, duration=timedelta(milliseconds=1234))
    LockRun.objects.all().delete()
    take("abandoned").release()
    end_run("abandoned", RunOutcome.ABANDONED, started=None)
    take("new")
    page = chief.get(reverse(LIST), {"o": "1"})
    assert cells(page, "shown_last_run") == ["abandoned", "failed 1.2s", "-"]


@pytest.mark.each_store
def test_list_can_be_ordered_by_the_last_run(chief: Client) -> None:
    """A click on its head orders by when it ended."""
    for minutes, name in enumerate(["b", "a", "c"]):
        take(name).release()
        end_run(name, ago=minutes * MINUTE, duration=(9 - 3 * minutes) * MINUTE)
    assert names(chief.get(reverse(LIST), {"o": "4"})) == ["c", "a", "b"]
    assert names(chief.get(reverse(LIST), {"o": "-4"})) == ["b", "a", "c"]


@pytest.mark.parametrize(
    ("runs_for", "warned"), [(9 * MINUTE, True), (5 * MINUTE, False)]
)
def test_job_that_takes_longer_than_usual_stands_out(
    viewer: Client, runs_for: timedelta, *, warned: bool
) -> None:
    """A job that runs three times as long as usual may be stuck."""
    take("billing")
    age("billing", runs_for)
    end_run("billing", duration=2 * MINUTE)
    end_run("billing", RunOutcome.FAILED, duration=SECOND)
    shown = told(viewer.get(reverse(LIST)))["billing"]
    assert [line.startswith("Failed") for line in shown] == [True] + [False] * warned
    start = "Runs too long Its job has run for 9m"
    assert any(line.startswith(start) for line in shown) is warned


def test_short_job_is_not_suspected_at_once(viewer: Client) -> None:
    """A job that took a second the last time may well take ten."""
    take("billing")
    age("billing", timedelta(seconds=10))
    end_run("billing", duration=SECOND)
    assert told(viewer.get(reverse(LIST))) == {}


def test_only_running_jobs_take_long(viewer: Client) -> None:
    """A lock whose lease is over is not said to run longer than usual."""
    take("billing")
    age("billing", timedelta(hours=9))
    expire("billing")
    end_run("billing", duration=2 * MINUTE)
    [[shown]] = told(viewer.get(reverse(LIST))).values()
    assert shown.startswith("Expired Its lease ended at")


@pytest.mark.parametrize("wanted", list(LockState))
def test_filter_by_state(viewer: Client, wanted: LockState) -> None:
    """The filter leaves only the locks in that state."""
    take("running")
    take("held at least", lock_at_least_for=MINUTE).release()
    pause("paused")
    take("expired")
    expire("expired")
    take("free").release()
    response = viewer.get(reverse(LIST), {"state": wanted.value})
    assert [r.name for r in response.context["cl"].queryset] == [wanted.value]


def reads_a_day(sql: str) -> bool:
    """Return whether the statement reads only the last runs of the page's locks."""
    _, _, where = sql.partition("WHERE")
    limits = (r"\bended. >= ", r"\bid. >= ", r"\bname. IN \(")
    return all(re.search(limit, where) for limit in limits)


@pytest.mark.each_store
@pytest.mark.parametrize("outcome", list(RunOutcome))
def test_filter_by_last_outcome(viewer: Client, outcome: RunOutcome) -> None:
    """The filter leaves only the locks whose last run ended so, by their records."""
    for each in RunOutcome:
        take(each).release()
        end_run(each, RunOutcome.FAILED)
        end_run(each, each)
        add_run(each, RunOutcome.LOST)  # the history is not searched
    get_provider().register("never ran", Schedule("@hourly", "UTC"))
    with CaptureQueriesContext(connection) as captured:
        response: Any = viewer.get(reverse(LIST), {"last": outcome.value})
    assert names(response) == [outcome]
    of_runs = [q["sql"] for q in captured if "shedlock_run" in q["sql"]]
    unlimited = [sql for sql in of_runs if "LIMIT" not in sql]
    # The oldest run, one beside a loss, and the first one of the last 24 hours.
    assert len(unlimited) >= len(of_runs) - 3
    [of_day] = [sql for sql in unlimited if reads_a_day(sql)]
    by_key = [sql for sql in unlimited if sql != of_day]
    assert all("WHERE" in s and "locked_by" in s.partition("WHERE")[2] for s in by_key)


@pytest.mark.parametrize("parameter", ["state", "last", "attention"])
def test_unknown_filter_leaves_nothing(viewer: Client, parameter: str) -> None:
    """A state or outcome that there is not is no error."""
    take("billing").release()
    be_overdue("billing")
    response = viewer.get(reverse(LIST), {parameter: "asleep"})
    assert (response.status_code, list(response.context["cl"].queryset)) == (200, [])


def test_list_shows_the_next_tick(viewer: Client) -> None:
    """The list shows in how long a job runs; a tooltip has the instant."""
    for name in ("a.late", "b.quick", "c.unplanned"):
        take(name).release()
    be_overdue("a.late")
    be_on_time("b.quick")
    page = viewer.get(reverse(LIST))
    late, quick, unplanned = cells(page, "next_expected")
    assert re.fullmatch(r"in \d+h\w*", late)
    assert re.fullmatch(r"in \d+h\w*", quick)
    assert unplanned == "-"
    ticks = re.findall(
        r'<td class="field-next_expected.*?title="(.*?)"', page.content.decode()
    )
    assert len(ticks) == 2
    for tick in ticks:
        assert re.fullmatch(r"[\d-]+ \d\d:\d\d:\d\d-0[56]:00", tick)
    assert list(told(viewer.get(reverse(LIST)))) == ["a.late"]
    with override_settings(SHEDLOCK_GRACE="30d"):
        assert told(viewer.get(reverse(LIST))) == {}


def test_running_job_is_not_shown_as_overdue(viewer: Client) -> None:
    """It may succeed yet."""
    take("billing")
    be_overdue("billing")
    shown = told(viewer.get(reverse(LIST)))
    assert not any(line.startswith("Overdue") for line in shown.get("billing", []))


@pytest.mark.each_store
def test_filter_by_overdue(viewer: Client) -> None:
    """The filter leaves only the locks whose job is overdue."""
    for name in ("late", "later", "quick", "unplanned"):
        take(name).release()
    be_overdue("late")
    be_overdue("later")
    be_on_time("quick")
    take("runs")
    be_overdue("runs")
    response = viewer.get(reverse(LIST), {"attention": "overdue"})
    assert names(response) == ["late", "later"]
    both = viewer.get(reverse(LIST), {"attention": "overdue", "q": "later"})
    assert [r.name for r in both.context["cl"].queryset] == ["later"]


def test_filter_by_overdue_costs_no_statement(viewer: Client) -> None:
    """It is a condition in those that are sent anyway."""
    for number in range(3):
        take(f"job {number}").release()
        be_overdue(f"job {number}")
    counts = []
    for query in ({}, {"attention": "overdue"}):
        viewer.get(reverse(LIST), query)
        with CaptureQueriesContext(connection) as queries:
            viewer.get(reverse(LIST), query)
        counts.append(len(statements(queries)))
    assert counts[1] == counts[0]


def test_lock_that_nobody_ever_held(viewer: Client) -> None:
    """A job that is only registered has no holder and no run."""
    get_provider().register("billing", Schedule("@hourly", "UTC"))
    response = viewer.get(reverse(LIST))
    assert cells(response, "last_day") == ["[Last 24 hours: no run]"]
    assert cells(response, "shown_last_run") == ["-"]


def test_pages_of_a_schedule_that_nobody_reads(viewer: Client) -> None:
    """The schedule is shown as another version wrote it, and what is overdue."""
    take("billing").release()
    be_overdue_by_unknown_schedule("billing")
    assert cells(viewer.get(reverse(LIST)), "next_expected") == ["-"]
    page = text(viewer.get(reverse(CHANGE, args=["billing"])).content.decode())
    assert f"The next tick is not known here. {UNKNOWN} overdue since" in page
    response = viewer.get(reverse(LIST), {"attention": "overdue"})
    assert [record.name for record in response.context["cl"].queryset] == ["billing"]


@pytest.mark.each_store
def test_search_by_name_and_holder(viewer: Client) -> None:
    """The search finds locks by a part of their name or holder."""
    take("billing.digest")
    other = take("cleanup")
    by_name = viewer.get(reverse(LIST), {"q": "digest"}).context["cl"].queryset
    by_holder = viewer.get(reverse(LIST), {"q": other.locked_by}).context["cl"].queryset
    assert [r.name for r in by_name] == ["billing.digest"]
    assert [r.name for r in by_holder] == ["cleanup"]


@pytest.mark.parametrize(("page", "number"), [(LIST, 13), (CHANGE, 8)])
def test_queries_do_not_grow_with_the_rows(
    viewer: Client, page: str, number: int
) -> None:
    """A page has as many queries with many locks and runs as with few."""
    address = reverse(page, args=[] if page == LIST else ["first"])
    take("first")
    take("failing").release()
    end_run("failing", RunOutcome.FAILED)
    viewer.get(address)
    counts = []
    for name in ("second", "third", "fourth"):
        take(name)
        be_overdue(name)
        for _ in range(20):
            add_run("first")
        with CaptureQueriesContext(connection) as queries:
            assert viewer.get(address).status_code == 200
        counts.append(len(statements(queries)))
    assert counts == [number] * 3


def test_nobody_can_add_or_change_a_lock() -> None:
    """Even a superuser only views a lock."""
    User.objects.create_superuser("root", password="x")
    client = Client()
    client.login(username="root", password="x")
    take("billing")
    page = client.get(reverse(CHANGE, args=["billing"]))
    assert page.status_code == 200
    assert 'name="_save"' not in page.content.decode()
    assert client.post(reverse(CHANGE, args=["billing"]), {}).status_code == 403
    add = reverse("admin:django_shedlock_lockrecord_add")
    assert client.get(add).status_code == 403


def test_nobody_can_delete_a_lock() -> None:
    """Not even a superuser: ``shedlock prune`` deletes what nobody needs any more."""
    User.objects.create_superuser("root", password="x")
    client = Client()
    client.login(username="root", password="x")
    take("old").release()
    page = client.post(reverse(DELETE, args=["old"]), {"post": "yes"})
    assert page.status_code == 403
    ask(client, "old", action="delete_selected")
    assert state("old") is LockState.FREE
    assert 'value="delete_selected"' not in client.get(reverse(LIST)).content.decode()


def test_names_are_escaped(chief: Client) -> None:
    """Names, holders and exceptions with markup are shown as text."""
    LockRecord.objects.create(
        name=HOSTILE,
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
    change = reverse(CHANGE, args=[admin.utils.quote(HOSTILE)])
    for address in (reverse(LIST), change):
        page = chief.get(address).content.decode()
        assert HOSTILE not in page
        assert "&lt;script&gt;" in page


@override_settings(USE_TZ=False)
def test_list_without_time_zones(viewer: Client) -> None:
    """With USE_TZ = False the instants are shown as they are."""
    take("billing").release()
    be_overdue("billing")
    add_run("billing")
    [shown] = told(viewer.get(reverse(LIST)))["billing"]
    assert re.match("Overdue Late by .*: the tick of", shown)
    assert viewer.get(reverse(CHANGE, args=["billing"])).status_code == 200


@override_settings(SHEDLOCK_PROVIDERS={"default": {"BACKEND": "tests.nothing"}})
def test_admin_has_no_errors_of_its_own() -> None:
    """Django's checks of the admin pass, and need no provider."""
    assert checks.run_checks(tags=["admin"]) == []


@pytest.mark.parametrize(
    ("model", "model_admin", "page"),
    [
        (LockRecord, LockRecordAdmin, "lockrecord/billing/change/"),
        (LockRun, LockRunAdmin, "lockrun/"),
    ],
)
def test_another_site_needs_only_one_of_both(
    model: Any, model_admin: Any, page: str
) -> None:
    """A site of the project's own can have the locks without the runs, or these."""
    site = admin.AdminSite(name="operations")
    site.register(model, model_admin)
    urls: Any = ModuleType("urls")
    urls.urlpatterns = [path("operations/", site.urls)]
    client = operator(*ALL)
    take("billing")
    add_run("billing")
    with override_settings(ROOT_URLCONF=urls):
        response = client.get(f"/operations/django_shedlock/{page}")
    assert response.status_code == 200
    assert "billing" in text(response.content.decode())


def test_page_of_another_site_leads_to_its_own_runs() -> None:
    """Those of the first site may be closed to its readers, or not there at all."""
    site = admin.AdminSite(name="operations")
    site.register(LockRecord, LockRecordAdmin)
    site.register(LockRun, LockRunAdmin)
    urls: Any = ModuleType("urls")
    urls.urlpatterns = [
        path("operations/", site.urls),
        path("admin/", admin.AdminSite().urls),
    ]
    client = operator(*ALL)
    take("billing")
    run = end_run("billing", RunOutcome.FAILED)
    with override_settings(ROOT_URLCONF=urls):
        page = "/operations/django_shedlock/lockrecord/billing/change/"
        response: Any = client.get(page)
    assert response.status_code == 200
    page = f"/operations/django_shedlock/lockrun/{run.pk}/change/"
    assert response.content.decode().count(f'<a href="{page}"') == 3


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
    for address in (
        reverse(LIST),
        reverse(CHANGE, args=["billing"]),
        reverse(RUNS),
        reverse(RUN, args=[run.pk]),
    ):
        with CaptureQueriesContext(connection) as queries:
            page = text(chief.get(address).content.decode())
        assert "billing" in page or "cleanup" in page
        assert not re.search(r"FROM .shedlock", str(queries.captured_queries))
    confirm(chief, "billing", lock.locked_by)
    assert state("billing") is LockState.FREE
