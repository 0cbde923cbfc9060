"""The list of runs, and that it stays quick."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from secrets import token_hex
from typing import Any

import pytest
from django.contrib import admin
from django.db import connection
from django.test import Client, RequestFactory, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from django_shedlock.console.admin import LockRunAdmin, filters, past
from django_shedlock.console.admin.base import CappedPaginator
from django_shedlock.console.admin.labels import LISTED_MESSAGE_MAX_LENGTH, excerpt
from django_shedlock.console.admin.past import (
    SEARCHED_RUN_LIMIT,
    STATISTICS_RUN_LIMIT,
    last_runs,
)
from django_shedlock.history.recording import exception_columns
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.sql.fields import DatabaseNow
from tests.console.admin.conftest import Stage
from tests.console.admin.reading import html_of, names, rows, steady, text
from tests.console.admin.test_locks import reads_a_day
from tests.support.last_runs import end_run
from tests.support.locks import add_run, take
from tests.support.operators import (
    CHANGE,
    HOSTILE,
    LIST,
    RUN,
    RUNS,
    operator,
    statements,
    superuser,
)
from tests.support.pages import chained_error

pytestmark = pytest.mark.django_db

VIEWER = ("view_lockrecord", "view_lockrun", "view_lockaction")
MANY = 1200
"""More than any page looks at, with ``small_limits``."""


def add_many(count: int) -> None:
    """Record that many runs of fifty locks on ten hosts in the last thirty days."""
    outcomes = [RunOutcome.SUCCEEDED] * 19 + [RunOutcome.FAILED]
    now = datetime.now(UTC)
    LockRun.objects.bulk_create(
        (
            LockRun(
                name=f"job {number % 50}",
                provider="default",
                locked_by=f"web-{number % 10}:7:{token_hex(8)}",
                host=f"web-{number % 10}",
                pid=7,
                fencing_token=number,
                ended=now - timedelta(days=30) * (1 - number / count),
                duration=timedelta(seconds=number % 600),
                outcome=outcomes[number % 20],
                exception_type="ValueError" if number % 20 == 19 else "",
            )
            for number in range(count)
        ),
        batch_size=5000,
    )


@pytest.fixture(scope="module")
def shown(stage: Stage) -> dict[str, str]:
    """The list of runs, and the page of each of them, by its lock."""
    with stage():
        viewer, runs = operator(*VIEWER), {}
        runs["good"] = add_run(
            "good", duration=timedelta(seconds=90), trigger="scheduler"
        )
        runs["failed"] = add_run(
            "failed",
            RunOutcome.FAILED,
            exception_type="shop.errors.NoPaper",
            exception_message="x" * 200,
        )
        runs["asked"] = add_run(
            "asked", trigger="operator", operator="alice", reason="customers wait"
        )
        runs["chained"] = add_run(
            "chained", RunOutcome.FAILED, **exception_columns(chained_error())
        )
        end = datetime(2026, 3, 2, 12, tzinfo=UTC)
        runs["abandoned"] = add_run(
            "abandoned", RunOutcome.ABANDONED, started=None, ended=end
        )
        found = {
            name: html_of(viewer.get(reverse(RUN, args=[run.pk])))
            for name, run in runs.items()
        }
        found["list"] = html_of(viewer.get(reverse(RUNS)))
        [found["link"]] = re.findall(
            r'field-ended_at[^>]*>\s*<a href="([^"]+)".{0,200}?2026-03-02<',
            found["list"],
            re.S,
        )
        assert found["link"] == reverse(RUN, args=[runs["abandoned"].pk])
        return found


def fields(html: str) -> dict[str, str]:
    """Return what a run's page says, by the field."""
    part = re.findall(
        r'<div class="flex-container[^"]*">\s*<label>(.*?):</label>\s*'
        r'<div class="readonly">(.*?)</div>',
        html,
        re.S,
    )
    return {label: steady(text(value)) for label, value in part}


def test_list_shows_runs_with_the_newest_on_top(shown: dict[str, str]) -> None:
    """A row has the run's end, lock, outcome, duration, cause, host and exception."""
    listed = [steady(row) for row in rows(shown["list"])]
    assert listed[0] == "INSTANT abandoned abandoned - - web-1 (7) -"
    assert listed[1].startswith("INSTANT chained failed - - web-1 (7) RuntimeError the")
    message = "x" * LISTED_MESSAGE_MAX_LENGTH
    assert listed[2:] == [
        "INSTANT asked succeeded - operator alice web-1 (7) -",
        f"INSTANT failed failed - - web-1 (7) NoPaper {message}…",
        "INSTANT good succeeded 1m30s scheduler web-1 (7) -",
    ]
    assert reverse(CHANGE, args=["good"]) in shown["list"]


def test_page_of_a_run_has_its_facts(shown: dict[str, str]) -> None:
    """The page of a run has no empty line for a missing exception or reason."""
    facts = fields(shown["good"])
    assert list(facts) == [
        *("Lock", "Outcome", "Duration", "Started", "Lost at", "Ended", "Host"),
        *("Started by", "Process", "Locked by", "Provider", "Fencing token"),
    ]
    assert facts["Started by"] == "scheduler"
    assert "Traceback" not in shown["good"]
    asked = fields(shown["asked"])
    assert asked["Started by"] == "operator alice"
    assert asked["Reason"] == "customers wait"


def test_page_of_a_failed_run_has_its_exception(shown: dict[str, str]) -> None:
    """The whole message is there, and the traceback comes with its cause."""
    assert "x" * 200 in shown["failed"]
    page = unescape(shown["chained"])
    cause, _, end = page.partition("was the direct cause of the following exception")
    assert "FileNotFoundError: [Errno 2]" in cause
    assert "RuntimeError: the export is incomplete" in end


def test_run_whose_start_is_not_known(shown: dict[str, str]) -> None:
    """The page of an abandoned run has its end, which is that of its lease."""
    page = shown["abandoned"]
    [instants] = re.findall(r"field-started_at.*?field-worker", page, re.S)
    assert re.findall(r'<time datetime="(\S+)"', instants) == [
        "2026-03-02T06:00:00-06:00"
    ]


def test_list_can_be_filtered_by_outcome(viewer: Client) -> None:
    """The filter leaves the runs with that outcome; an unknown one leaves none."""
    for each in RunOutcome:
        add_run(each.value, each)
    found = {each.value: [each] for each in RunOutcome} | {"asleep": []}
    for outcome, expected in found.items():
        page = viewer.get(reverse(RUNS), {"outcome": outcome})
        assert (outcome, names(page)) == (outcome, expected)


def test_filter_by_host(viewer: Client) -> None:
    """The filter offers the hosts of the newest runs, and leaves those of one."""
    add_run("a", locked_by="web-2:1:a")
    add_run("b", locked_by="web-1:1:a")
    page = viewer.get(reverse(RUNS), {"host": "web-1"})
    assert names(page) == ["b"]
    [spec] = [s for s in page.context["cl"].filter_specs if s.title == "host"]
    assert [value for value, _ in spec.lookup_choices] == ["web-1", "web-2"]


def test_chosen_host_is_offered_though_it_ran_nothing_lately(
    viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filter that is on can be seen, and taken off."""
    monkeypatch.setattr(filters.RecentFilter, "row_limit", 1)
    add_run("a", locked_by="old:1:a")
    add_run("b", locked_by="new:1:a")
    page = viewer.get(reverse(RUNS), {"host": "old"})
    assert names(page) == ["a"]
    assert "?host=new" in page.content.decode()
    assert '<li class="selected">' in page.content.decode()


def days(page: Any) -> dict[str, str]:
    """Return the addresses of the days that the list offers."""
    links = re.findall(r'href="(\?day=([\d-]+)[^"]*)"', page.content.decode())
    return {day: link.replace("&amp;", "&") for link, day in links}


def test_filter_by_day(viewer: Client) -> None:
    """The list offers the last days, and sorts the runs of a day by their ends."""
    add_run("old", ended=DatabaseNow() - timedelta(days=20))
    now = DatabaseNow()
    add_run("new", ended=now)
    add_run("late", RunOutcome.ABANDONED, ended=now - timedelta(seconds=1))
    page = viewer.get(reverse(RUNS))
    assert names(page) == ["late", "new", "old"]
    offered = days(page)
    assert len(offered) == 14
    assert list(offered) == sorted(offered, reverse=True)
    ended = timezone.localtime(LockRun.objects.get(name="new").ended)
    found = names(viewer.get(reverse(RUNS) + offered[str(ended.date())]))
    assert [name for name in found if name != "late"] == ["new"]  # or it was yesterday
    assert found[:1] == ["new"]


def test_day_is_one_of_the_readers_zone(viewer: Client) -> None:
    """An address can name any day; what is none finds nothing."""
    add_run("older", ended=datetime(2023, 11, 30, 3, tzinfo=UTC))  # Chicago: 29th
    add_run("late", ended=datetime(2023, 12, 1, 5, 59, 59, tzinfo=UTC))
    add_run("old", ended=datetime(2023, 11, 30, 6, tzinfo=UTC))
    found = {"2023-11-29": ["older"], "2023-11-30": ["late", "old"]}
    none = ("2023-12-01", "0001-01-01", "9999-12-31", "2023-02-30", "yesterday")
    for day in (*found, *none, "20231129"):
        page = viewer.get(reverse(RUNS), {"day": day})
        assert (day, names(page)) == (day, found.get(day, []))
        assert day not in found or day in days(page)


@override_settings(USE_TZ=False)
def test_day_without_time_zones(viewer: Client) -> None:
    """A project with naive datetimes can filter by day as well."""
    add_run("older", ended=datetime(2023, 11, 29, 23, 59))
    add_run("old", ended=datetime(2023, 11, 30, 0, 0))
    assert names(viewer.get(reverse(RUNS), {"day": "2023-11-30"})) == ["old"]


def test_day_and_another_filter(viewer: Client) -> None:
    """A day can be combined with the other filters."""
    noon = datetime(2023, 11, 30, 12, tzinfo=UTC)
    for outcome, host, kind in [
        (RunOutcome.FAILED, "web-2", "NoPaper"),
        (RunOutcome.SUCCEEDED, "web-1", ""),
    ]:
        for days_later in range(2):
            ended = noon + timedelta(days=days_later)
            identity = f"{host}:1:{token_hex(8)}"
            more: Any = {"locked_by": identity, "exception_type": kind}
            add_run(f"{host}-{ended.day}", outcome, ended=ended, **more)
    for query in (
        {"outcome": "failed"},
        {"host": "web-2"},
        {"q": "Paper"},
        {"outcome": "failed", "host": "web-2", "q": "30"},
    ):
        page = viewer.get(reverse(RUNS), {"day": "2023-11-30", **query})
        assert (query, names(page)) == (query, ["web-2-30"])


@pytest.fixture
def short_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the search for a part of a text look at the three newest runs."""
    monkeypatch.setattr(past, "SEARCHED_RUN_LIMIT", 3)


@pytest.mark.usefixtures("short_search")
def test_search(viewer: Client) -> None:
    """A whole name or holder is found in all runs, a part of a text in the newest."""
    add_run("nightly billing", exception_type="NoPaper")
    add_run("cleanup", locked_by="web-9:1:a")
    add_run("free")
    add_run("paper", exception_type="NoPaper")
    add_run("mail", locked_by="web-8:1:a")
    found = {
        "nightly billing": ["nightly billing"],
        " web-9:1:a ": ["cleanup"],
        "billing": [],
        "Paper": ["paper"],
        "web-8": ["mail"],
        "mai": ["mail"],
        "nothing": [],
        " ": ["mail", "paper", "free", "cleanup", "nightly billing"],
    }
    for wanted, expected in found.items():
        page = viewer.get(reverse(RUNS), {"q": wanted})
        assert (wanted, names(page)) == (wanted, expected)


@pytest.mark.usefixtures("short_search")
def test_search_looks_at_the_newest_of_the_list(viewer: Client) -> None:
    """Runs that a filter leaves out do not count; a lock's name has its provider."""
    add_run("paper", RunOutcome.FAILED, exception_type="NoPaper")
    for _ in range(3):
        add_run("free")
    assert names(viewer.get(reverse(RUNS), {"q": "Pap"})) == []
    page = viewer.get(reverse(RUNS), {"q": "Pap", "outcome": "failed"})
    assert names(page) == ["paper"]
    page = viewer.get(reverse(RUNS), {"q": "paper", "outcome": "succeeded"})
    assert names(page) == []


def test_list_says_how_far_the_search_goes(viewer: Client) -> None:
    """Nobody takes an empty list for an answer about all runs."""
    said = f"only in the newest {SEARCHED_RUN_LIMIT} runs of this list"
    assert said not in viewer.get(reverse(RUNS)).content.decode()
    assert said in viewer.get(reverse(RUNS), {"q": "no"}).content.decode()


def test_runs_of_one_lock(viewer: Client) -> None:
    """The link on a lock's page leads to the runs of that very lock."""
    take("billing")
    add_run("billing")
    add_run("billing.other")
    page = viewer.get(reverse(CHANGE, args=["billing"])).content.decode()
    links = set(re.findall(r'href="([^"]+lockrun/[^"]+name__exact=[^"]+)"', page))
    [link] = links
    add_run("billing", RunOutcome.FAILED, provider="gone")  # was another lock's
    assert names(viewer.get(link)) == ["billing"]


def test_list_answers_only_what_it_offers(viewer: Client) -> None:
    """Any other column, typed into an address, might read all runs."""
    for lookup in ("ended__year", "ended__gte", "trigger", "name__contains"):
        assert viewer.get(reverse(RUNS), {lookup: "2023"}).status_code == 400
    for lookup in ("name__exact", "outcome"):
        assert viewer.get(reverse(RUNS), {lookup: "2023"}).status_code == 200


@pytest.mark.parametrize(
    "own", [{"list_filter": ["ended"]}, {"date_hierarchy": "ended"}]
)
def test_list_of_a_project_may_offer_more(own: dict[str, Any]) -> None:
    """A subclass with a filter by a field, or a hierarchy, answers it."""
    pages = type("Own", (LockRunAdmin,), own)(LockRun, admin.site)
    assert pages.lookup_allowed("ended__gte", "2023-01-01")
    assert not pages.lookup_allowed("trigger", "retry")


def test_run_that_a_later_version_wrote(viewer: Client) -> None:
    """An outcome that is not known here is shown as it is."""
    take("billing")
    run = end_run("billing")
    LockRun.objects.update(outcome="timed out")
    LockRecord.objects.update(outcome="timed out")
    lock = reverse(CHANGE, args=["billing"])
    for address in (reverse(LIST), lock, reverse(RUNS), reverse(RUN, args=[run.pk])):
        assert ">timed out</span>" in viewer.get(address).content.decode()


def test_list_loads_no_traceback(viewer: Client) -> None:
    """The list loads the beginning of a message, and no traceback."""
    add_run("billing", RunOutcome.FAILED, exception_type="E", exception_message="why")
    with CaptureQueriesContext(connection) as queries:
        page = viewer.get(reverse(RUNS))
    assert "why" in page.content.decode()
    assert "exception_traceback" not in str(statements(queries))


def test_history_cannot_be_rewritten() -> None:
    """Even a superuser can't add, change or delete a run."""
    client = superuser()
    run = add_run("billing", RunOutcome.FAILED)
    before = LockRun.objects.values().get()
    base = "admin:django_shedlock_lockrun"
    assert client.get(reverse(f"{base}_add")).status_code == 403
    changed = client.post(reverse(RUN, args=[run.pk]), {"outcome": "succeeded"})
    assert changed.status_code == 403
    deleting = client.post(reverse(f"{base}_delete", args=[run.pk]), {"post": "yes"})
    assert deleting.status_code == 403
    client.post(
        reverse(RUNS),
        {"action": "delete_selected", "_selected_action": [run.pk], "post": "yes"},
    )
    assert LockRun.objects.values().get() == before


def test_runs_need_their_permission() -> None:
    """Who may see locks only does not see the runs."""
    run = add_run("billing")
    client = operator("view_lockrecord")
    assert client.get(reverse(RUNS)).status_code == 403
    assert client.get(reverse(RUN, args=[run.pk])).status_code == 403


def test_hostile_texts_are_escaped(viewer: Client) -> None:
    """Markup in names, hosts and messages is shown as text."""
    run = add_run(
        HOSTILE,
        RunOutcome.FAILED,
        locked_by=f"{HOSTILE}:1:a",
        exception_type=HOSTILE,
        exception_message=HOSTILE,
    )
    hostile = add_run(
        "billing", RunOutcome.FAILED, exception_type="E", exception_traceback=HOSTILE
    )
    pages = [reverse(RUN, args=[each.pk]) for each in (run, hostile)]
    for address in (reverse(RUNS), *pages):
        page = viewer.get(address).content.decode()
        assert HOSTILE not in page
        assert "&lt;script&gt;" in page


def test_counting_ends_where_nobody_pages(
    viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A longer list says so, and its last page can be reached."""
    monkeypatch.setattr(CappedPaginator, "most", 60)
    LockRun.objects.bulk_create(
        LockRun(
            name="billing",
            provider="default",
            locked_by=f"web-1:7:{number}",
            outcome="succeeded",
            ended=datetime.now(UTC),
        )
        for number in range(61)
    )
    page = viewer.get(reverse(RUNS), {"p": "2"})
    assert len(names(page)) == 10
    assert "this list ends after 60 rows" in page.content.decode()
    LockRun.objects.first().delete()
    assert "this list ends" not in viewer.get(reverse(RUNS)).content.decode()


@pytest.mark.parametrize("page", [LIST, RUNS])
def test_no_query_looks_at_all_runs(viewer: Client, page: str) -> None:
    """
    Each statement on runs ends after a number of them.

    An exception is the one for the strips: it reads the page's locks of a day by index.
    """
    take("billing")
    for _ in range(51):  # else the list has one page, which needs no limit
        add_run("billing")
    with CaptureQueriesContext(connection) as queries:
        viewer.get(reverse(page))
    of_runs = [q["sql"] for q in queries if re.search(r"FROM .shedlock_run", q["sql"])]
    unlimited = [sql for sql in of_runs if "LIMIT" not in sql]
    assert all(reads_a_day(sql) for sql in unlimited)
    assert len(unlimited) == (page == LIST)
    assert len(of_runs) > (page == RUNS)  # the list of locks reads a few
    counts = [q["sql"] for q in queries if q["sql"].startswith("SELECT COUNT(*)")]
    assert len(counts) == (page == RUNS)


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few runs be more than the filters and the counts look at."""
    monkeypatch.setattr(CappedPaginator, "most", 100)
    monkeypatch.setattr(filters.RecentFilter, "row_limit", 100)
    monkeypatch.setattr(past, "STATISTICS_RUN_LIMIT", 20)
    monkeypatch.setattr(past, "SEARCHED_RUN_LIMIT", 100)


def addresses() -> list[str]:
    return [
        reverse(RUNS),
        reverse(RUNS) + "?host=web-1",
        reverse(RUNS) + "?q=job",
        reverse(RUNS) + "?q=none",
        reverse(RUNS) + "?q=none&host=web-1",
        reverse(LIST),
        reverse(CHANGE, args=["job 1"]),
    ]


@pytest.mark.usefixtures("small_limits")
def test_pages_have_no_more_queries_with_many_runs(viewer: Client) -> None:
    """No page has more queries with many runs than with one."""

    def count(address: str) -> int:
        with CaptureQueriesContext(connection) as queries:
            assert viewer.get(address).status_code == 200
        return len(statements(queries))

    take("job 1")
    add_run("job 1")
    take("job 2").release()
    add_run("job 2", RunOutcome.FAILED)
    pages = [*addresses(), reverse(RUNS) + "?outcome=failed&host=web-1"]
    viewer.get(reverse(RUNS))
    with_one = [count(address) for address in pages]
    add_many(MANY)
    with_many = [count(address) for address in pages]
    assert all(many <= one for many, one in zip(with_many, with_one, strict=True))
    assert max(with_many) == 13  # that of the list of locks


@pytest.mark.sqlite_only  # its machine can be watched
@pytest.mark.usefixtures("small_limits")
def test_pages_are_no_more_work_with_many_runs(viewer: Client) -> None:
    """With more runs than a page looks at, further ones cost the database nothing."""
    steps = 0

    def count_ten() -> int:
        nonlocal steps
        steps += 10
        return 0

    def work(address: str) -> int:
        nonlocal steps
        steps = 0
        connection.connection.set_progress_handler(count_ten, 10)
        try:
            assert viewer.get(address).status_code == 200
        finally:
            connection.connection.set_progress_handler(None, 10)
        return steps

    take("job 1")
    add_many(MANY)
    viewer.get(reverse(RUNS))
    before = [work(address) for address in addresses()]
    add_many(MANY)
    after = [work(address) for address in addresses()]
    assert min(before) > 100
    for address, few, more in zip(addresses(), before, after, strict=True):
        # To look at a row is more than one step.
        assert more - few < MANY, address


def test_only_so_many_runs_are_read() -> None:
    """One statement reads the last runs, the newest first, without their long texts."""
    length = LISTED_MESSAGE_MAX_LENGTH
    for _ in range(STATISTICS_RUN_LIMIT - 1):
        add_run("job", exception_message=f"older {'x' * length}")
    for message in ("x" * length, "y" * (length + 1)):
        add_run("job", exception_type="ValueError", exception_message=message)
    add_run("other")
    with CaptureQueriesContext(connection) as queries:
        runs = last_runs(RequestFactory().get("/"), "job")
        shown = [excerpt(run) for run in runs]
    assert len(queries) == 1
    assert len(runs) == len(shown) == STATISTICS_RUN_LIMIT
    assert f"<bdi>{'y' * length}…</bdi>" in shown[0]
    assert f"<bdi>{'x' * length}</bdi>" in shown[1]
    assert runs[0].get_deferred_fields() == {
        "exception_message",
        "exception_traceback",
    }
