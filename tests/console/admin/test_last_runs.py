"""What the last runs of a lock say together."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.db import connection
from django.test import RequestFactory
from django.test.utils import CaptureQueriesContext
from django.utils.html import strip_tags

from django_shedlock.console.admin.charts import statistics_of
from django_shedlock.console.admin.labels import EXCERPT, excerpt, started_by, took
from django_shedlock.console.admin.runs import COUNTED, last_runs
from django_shedlock.fields import DatabaseNow
from django_shedlock.locks.states import RunOutcome
from tests.support.locks import MINUTE, add_run, take


def run(outcome: str, seconds: float | None = None) -> SimpleNamespace:
    duration = None if seconds is None else timedelta(seconds=seconds)
    return SimpleNamespace(current_outcome=outcome, duration=duration)


def test_success_rate_is_of_the_ended_runs() -> None:
    """A run that goes on counts neither way."""
    outcomes = ["running", "succeeded", "failed", "lost", "abandoned"]
    statistics = statistics_of([run(outcome, 1) for outcome in outcomes])
    assert statistics is not None
    assert (statistics.runs, statistics.rate) == (4, "25 %")


def test_nearly_all_is_not_all() -> None:
    """One failure of a thousand is no success rate of 100 %."""
    statistics = statistics_of([run("failed", 1)] + [run("succeeded", 1)] * 999)
    assert statistics is not None
    assert statistics.rate == "99 %"


def test_durations_are_those_of_the_good_runs() -> None:
    """A run that failed at once says nothing of how long the job takes."""
    runs = [run("succeeded", seconds) for seconds in range(1, 21)]
    statistics = statistics_of([run("failed", 0), run("lost", 900), *runs])
    assert statistics is not None
    assert statistics.median == "10.5s"
    assert statistics.p95 == "19.0s"


def test_one_run_has_statistics() -> None:
    """Its duration is all of them."""
    statistics = statistics_of([run("succeeded", 7)])
    assert statistics is not None
    assert statistics.median == statistics.p95 == "7.0s"


def test_without_a_success_there_is_no_usual_duration() -> None:
    """The rate is told, and no duration."""
    statistics = statistics_of([run("failed", 7), run("abandoned")])
    assert statistics is not None
    assert (statistics.rate, statistics.median, statistics.p95) == ("0 %", None, None)


def test_without_an_end_there_are_no_statistics() -> None:
    """Nothing can be told of a first run that goes on."""
    assert statistics_of([run("running")]) is None
    assert statistics_of([]) is None


@pytest.mark.django_db
def test_only_so_many_runs_are_read() -> None:
    """They come with one statement, the newest first, without their long texts."""
    for number in range(COUNTED + 1):
        add_run("job", exception_message=f"{number} {'x' * EXCERPT}")
    add_run("other")
    with CaptureQueriesContext(connection) as queries:
        runs = last_runs(RequestFactory().get("/"), "job")
        shown = [excerpt(run) for run in runs]
    assert len(queries) == 1
    assert len(runs) == len(shown) == COUNTED
    assert runs[0].excerpt == f"{COUNTED} {'x' * EXCERPT}"[:EXCERPT]
    assert runs[0].get_deferred_fields() == {
        "exception_message",
        "exception_traceback",
    }


@pytest.mark.django_db
def test_run_that_goes_on_tells_its_elapsed_time() -> None:
    """It is by the database's clock; a run that ended tells its duration."""
    lock = take("job")
    begun = {"locked_by": lock.locked_by, "started": DatabaseNow() - 2 * MINUTE}
    add_run("job", duration=MINUTE)
    add_run("job", RunOutcome.RUNNING, **begun)
    running, ended = last_runs(RequestFactory().get("/"), "job")
    assert strip_tags(took(running)) == "2m so far"
    assert took(ended) == "1m"


@pytest.mark.parametrize(
    ("trigger", "operator", "shown"),
    [
        ("", "", '<span class="shedlock-nothing">-</span>'),
        ("scheduler", "", '<span class="shedlock-quiet">scheduler</span>'),
        ("retry", "", "retry <bdi></bdi>"),
        ("catch-up", "bob", "catch-up <bdi>bob</bdi>"),
        ("operator", "<b>", "operator <bdi>&lt;b&gt;</bdi>"),
        ("martian", "", "martian <bdi></bdi>"),
    ],
)
def test_what_started_a_run(trigger: str, operator: str, shown: str) -> None:
    """The cause is told, and the person if one did it; the usual one is quiet."""
    run = SimpleNamespace(trigger=trigger, operator=operator)
    assert started_by(run) == shown
