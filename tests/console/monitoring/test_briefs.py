"""Findings in one line each, and the headline that counts them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest
from django.db import OperationalError
from django.db.models import F
from django.test import override_settings
from django.utils.timezone import is_aware, make_naive

from django_shedlock import execute
from django_shedlock.clocks import aware
from django_shedlock.console.monitoring.briefs import Brief, brief_of, counted
from django_shedlock.console.monitoring.findings import Finding
from django_shedlock.console.monitoring.kinds import Kind
from django_shedlock.console.monitoring.search import (
    Search,
    outgrown_history,
    unreachable,
)
from django_shedlock.locks.lock import own_host, process_of
from django_shedlock.locks.pauses import FOREVER
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord
from django_shedlock.providers import get_provider
from django_shedlock.schedules.cron import Schedule
from django_shedlock.sql.fields import DatabaseNow
from tests.support.lateness import be_overdue
from tests.support.locks import MINUTE, add_run, end_run, expire, pause, take
from tests.support.records import make_record_unreadable

DAY = timedelta(days=1)
SEARCH = Search(MINUTE)
EVERY = Schedule("every 5m", "UTC")

BEGAN = datetime(2026, 5, 1, 8, tzinfo=UTC)
ENDED = datetime(2026, 5, 1, 9, tzinfo=UTC)
LOST = datetime(2026, 5, 1, 10, tzinfo=UTC)
RUN, PROCESS = "web-2:4711:0a1b2c3d", "web-2:4711"
OTHER = "vm:9748:4e5f6a7b"
NAMES = ["shop.a", "shop.b", "shop.c"]

BAD_END: dict[str, Any] = {
    "run": RUN,
    "is_last": True,
    "may_still_run": False,
    "failures": 1,
    "exception": "shop.errors.CardDeclined",
    "started_at": BEGAN,
    "ended_at": ENDED,
    "lost_at": None,
    "other_run": None,
    "other_ended": None,
}
PARAMS: dict[Kind, dict[str, Any]] = {
    Kind.UNREACHABLE: {"error": "connection refused"},
    Kind.SILENT: {"since": BEGAN, "last": "web-2", "locks": NAMES},
    Kind.OVERDUE: {"since": BEGAN, "why": "not begun", "suspect": ""},
    Kind.FAILED: BAD_END,
    Kind.TIMED_OUT: BAD_END,
    Kind.EXPIRED: {"run": RUN, "lease_end": ENDED, "is_taken": False},
    Kind.LONG: {"run": RUN, "started_at": BEGAN, "usual": None, "tick": None},
    Kind.LOST: BAD_END | {"lost_at": LOST},
    Kind.ABANDONED: BAD_END,
    Kind.REQUEST: {
        "who": "ada",
        "asked_at": BEGAN,
        "is_held": False,
        "is_expired": False,
        "suspect": "",
    },
    Kind.PASSED_OVER: {"count": "12", "first": BEGAN},
    Kind.PAUSED: {"since": BEGAN, "who": "ada", "reason": "the mail server moves"},
    Kind.UNREADABLE: {"why": "date value out of range", "record": "redis"},
    Kind.HISTORY: {"why": "run missing", "at": BEGAN},
    Kind.CLOCK: {
        "difference": timedelta(seconds=120.4),
        "is_ahead": False,
        "host": "web-2",
    },
    Kind.MORE: {"count": 10_000},
}
"""What the findings of each kind know; a new kind has to be added."""

HOSTILE = "50% of %(count)s %s jobs.\r\nNone\u2028is done. "
ON_ONE_LINE = "50% of %(count)s %s jobs. None is done"
DECIDING = {"why", "count"}
"""What no person writes: it decides what the finding says."""


def hostile(key: str, value: object) -> object:
    """Return the value as the worst that people may have written there."""
    if isinstance(value, list):
        return [HOSTILE for _ in value]
    is_free = isinstance(value, str) and key not in DECIDING
    return HOSTILE if is_free else value


@pytest.mark.parametrize("kind", Kind)
def test_each_kind_has_a_brief_on_one_line(kind: Kind) -> None:
    """
    Each kind has a complete brief on one line, without a full stop.

    The brief's instant has a time zone.
    """
    brief = brief_of(kind, PARAMS[kind])
    assert brief.meaning
    assert brief.meaning.splitlines() == [brief.meaning]
    assert len(brief.meaning) <= 80
    assert "%" not in brief.meaning
    assert not brief.meaning.endswith(".")
    assert brief.since is None or is_aware(brief.since)


@pytest.mark.parametrize("kind", Kind)
def test_no_value_breaks_a_brief(kind: Kind) -> None:
    """Names, reasons and errors may contain percent signs, full stops and line ends."""
    params = {key: hostile(key, value) for key, value in PARAMS[kind].items()}
    brief = brief_of(kind, params)
    assert brief.meaning.splitlines() == [brief.meaning]
    assert brief.who.splitlines() == ([brief.who] if brief.who else [])
    assert not brief.meaning.endswith((".", " "))


@pytest.mark.parametrize(
    ("kind", "values", "meaning"),
    [
        (
            Kind.SILENT,
            {"locks": [HOSTILE, "shop.b"]},
            f"no host has started 2 due jobs: {ON_ONE_LINE}. , shop.b",
        ),
        (Kind.UNREACHABLE, {"error": HOSTILE}, f"no job can run: {ON_ONE_LINE}"),
        (Kind.PAUSED, {"reason": HOSTILE}, f"no end: {ON_ONE_LINE}"),
        (
            Kind.FAILED,
            {"exception": f"shop.{HOSTILE}", "failures": 2},
            "None is done, 2 runs in a row",
        ),
        (
            Kind.LOST,
            {"other_run": f"{HOSTILE}:7:token"},
            f"may have run at the same time as {ON_ONE_LINE}. :7",
        ),
    ],
)
def test_values_are_shown_as_they_are(
    kind: Kind, values: Mapping[str, Any], meaning: str
) -> None:
    """A percent sign is one, and only line ends become spaces."""
    assert brief_of(kind, PARAMS[kind] | values).meaning == meaning


@pytest.mark.parametrize("kind", Kind)
def test_instants_of_stores_without_zones_become_aware(kind: Kind) -> None:
    """A brief's instant has a time zone even if the store's instants have none."""
    naive = {
        key: make_naive(value) if isinstance(value, datetime) else value
        for key, value in PARAMS[kind].items()
    }
    assert brief_of(kind, naive).since == brief_of(kind, PARAMS[kind]).since


@pytest.mark.parametrize(
    ("kind", "changes", "since", "who", "meaning"),
    [
        (Kind.UNREACHABLE, {}, None, "", "no job can run: connection refused"),
        (
            Kind.SILENT,
            {},
            BEGAN,
            "web-2",
            "no host has started 3 due jobs: shop.a, shop.b, shop.c",
        ),
        (
            Kind.SILENT,
            {"since": None, "last": "", "locks": [*NAMES, "shop.d"]},
            None,
            "",
            (
                "no host has ever started a job, 4 are due: shop.a, shop.b, shop.c and "
                "1 more"
            ),
        ),
        (Kind.OVERDUE, {}, BEGAN, "", "no run has begun"),
        (Kind.OVERDUE, {"why": "never begun"}, BEGAN, "", "no run has ever begun"),
        (Kind.OVERDUE, {"why": "failed"}, BEGAN, "", "its run did not succeed"),
        (
            Kind.OVERDUE,
            {"why": "later tick failed"},
            BEGAN,
            "",
            "a later run did not succeed either",
        ),
        (
            Kind.OVERDUE,
            {"suspect": RUN},
            BEGAN,
            PROCESS,
            "no run has begun, the last run may still go on",
        ),
        (Kind.FAILED, {}, ENDED, PROCESS, "CardDeclined"),
        (Kind.FAILED, {"failures": 3}, ENDED, PROCESS, "CardDeclined, 3 runs in a row"),
        (
            Kind.FAILED,
            {"is_last": False, "failures": 3},
            ENDED,
            PROCESS,
            "an earlier run, CardDeclined",
        ),
        (
            Kind.FAILED,
            {"exception": "", "ended_at": None},
            None,
            PROCESS,
            "its exception is not known",
        ),
        (Kind.TIMED_OUT, {}, ENDED, PROCESS, "over its time limit"),
        (
            Kind.TIMED_OUT,
            {"failures": 2},
            ENDED,
            PROCESS,
            "over its time limit, 2 runs in a row",
        ),
        (
            Kind.EXPIRED,
            {},
            ENDED,
            PROCESS,
            "never released its lock: dead, or still running?",
        ),
        (
            Kind.EXPIRED,
            {"is_taken": True},
            None,
            PROCESS,
            "never released its lock, and another service acquired it",
        ),
        (Kind.LONG, {}, BEGAN, PROCESS, "still running"),
        (
            Kind.LONG,
            {"usual": timedelta(minutes=25)},
            BEGAN,
            PROCESS,
            "usually takes 25m",
        ),
        (Kind.LONG, {"tick": BEGAN}, BEGAN, PROCESS, "later ticks are skipped"),
        (
            Kind.LONG,
            {"tick": BEGAN, "usual": timedelta(seconds=1.5)},
            BEGAN,
            PROCESS,
            "usually takes 1.5s, later ticks are skipped",
        ),
        (Kind.LOST, {}, LOST, PROCESS, "may have run twice"),
        (Kind.LOST, {"lost_at": None}, ENDED, PROCESS, "may have run twice"),
        (
            Kind.LOST,
            {"may_still_run": True, "ended_at": None},
            LOST,
            PROCESS,
            "may still run",
        ),
        (
            Kind.LOST,
            {"other_run": OTHER, "other_ended": LOST, "is_last": False, "failures": 2},
            LOST,
            PROCESS,
            "an earlier run, ran at the same time as vm:9748",
        ),
        (
            Kind.LOST,
            {"other_run": OTHER, "may_still_run": True},
            LOST,
            PROCESS,
            "may have run at the same time as vm:9748, may still run",
        ),
        (Kind.ABANDONED, {}, BEGAN, PROCESS, "never reported its end"),
        (
            Kind.ABANDONED,
            {"may_still_run": True, "started_at": None},
            None,
            PROCESS,
            "never reported its end, may still run",
        ),
        (Kind.REQUEST, {}, BEGAN, "ada", "no host has started the run"),
        (
            Kind.REQUEST,
            {"is_held": True, "who": "", "suspect": RUN},
            BEGAN,
            "",
            "waits until the lock is released, the last run may still go on",
        ),
        (
            Kind.REQUEST,
            {"is_expired": True},
            BEGAN,
            "ada",
            "expired: no host started the run",
        ),
        (Kind.PASSED_OVER, {}, BEGAN, "", "12 ticks never began"),
        (Kind.PASSED_OVER, {"count": "1"}, BEGAN, "", "1 tick never began"),
        (Kind.PASSED_OVER, {"count": "100+"}, BEGAN, "", "100+ ticks never began"),
        (Kind.PAUSED, {}, BEGAN, "ada", "no end: the mail server moves"),
        (Kind.UNREADABLE, {}, None, "", "its record can't be read"),
        (Kind.HISTORY, {}, BEGAN, "", "the history lacks its last run"),
        (Kind.CLOCK, {}, None, "web-2", "the store's clock is 2m behind"),
        (
            Kind.CLOCK,
            {"is_ahead": True},
            None,
            "web-2",
            "the store's clock is 2m ahead",
        ),
        (Kind.MORE, {}, None, "", "more than 10000 locks may need attention"),
    ],
)
def test_brief_says_since_when_who_and_what_it_means(
    kind: Kind,
    changes: Mapping[str, Any],
    since: datetime | None,
    who: str,
    meaning: str,
) -> None:
    """Each case of a kind has its own words."""
    assert brief_of(kind, PARAMS[kind] | changes) == Brief(since, who, meaning)


@pytest.mark.parametrize(
    ("kind", "key"), [(Kind.PAUSED, "reason"), (Kind.UNREACHABLE, "error")]
)
def test_brief_quotes_only_the_beginning_of_a_long_text(kind: Kind, key: str) -> None:
    """The whole text stands in the sentence."""
    brief = brief_of(kind, PARAMS[kind] | {key: "word " * 100})
    assert brief.meaning.endswith("word…")
    assert len(brief.meaning) < 80


HEADLINES: dict[Kind, tuple[str, str]] = {
    Kind.UNREACHABLE: ("1 store does not answer", "2 stores do not answer"),
    Kind.SILENT: ("1 scheduler silent", "2 schedulers silent"),
    Kind.OVERDUE: ("1 job overdue", "2 jobs overdue"),
    Kind.FAILED: ("1 job failed", "2 jobs failed"),
    Kind.TIMED_OUT: ("1 job timed out", "2 jobs timed out"),
    Kind.EXPIRED: ("1 lock expired", "2 locks expired"),
    Kind.LONG: ("1 job runs too long", "2 jobs run too long"),
    Kind.LOST: ("1 lock was lost", "2 locks were lost"),
    Kind.ABANDONED: (
        "1 run never reported its end",
        "2 runs never reported their end",
    ),
    Kind.REQUEST: ("1 request not carried out", "2 requests not carried out"),
    Kind.PASSED_OVER: ("1 job passed over ticks", "2 jobs passed over ticks"),
    Kind.PAUSED: ("1 pause has no end", "2 pauses have no end"),
    Kind.UNREADABLE: ("1 record can't be read", "2 records can't be read"),
    Kind.HISTORY: ("1 problem with the history", "2 problems with the history"),
    Kind.CLOCK: ("1 clock is wrong", "2 clocks are wrong"),
    Kind.MORE: ("", ""),
}


@pytest.mark.parametrize("kind", Kind)
def test_headline_counts_the_findings_of_each_kind(kind: Kind) -> None:
    """
    One finding and several findings of a kind have their own headlines.

    The note that there are more findings has none.
    """
    assert (counted(kind, 1), counted(kind, 2)) == HEADLINES[kind]


def found_in(name: str = "job") -> Finding:
    """Return the only finding of the lock."""
    [finding] = SEARCH.of_locks(get_provider(), [name])[name]
    return finding


@pytest.mark.django_db
@pytest.mark.parametrize("outcome", [RunOutcome.FAILED, RunOutcome.TIMED_OUT])
def test_brief_of_a_run_that_failed(outcome: RunOutcome) -> None:
    """A failed run's brief says when it ended, in which process, and why."""
    run = end_run("job", outcome, exception_type="shop.errors.CardDeclined")
    ended_at = LockRecord.objects.get().ended_at
    assert ended_at is not None
    meaning = "over its time limit"
    if outcome is RunOutcome.FAILED:
        meaning = "CardDeclined"
    expected = Brief(aware(ended_at), process_of(run.locked_by), meaning)
    assert found_in().brief == expected


@pytest.mark.django_db
def test_brief_of_an_expired_lock() -> None:
    """An expired lock's brief says when the lease ended, and whose it was."""
    lock = take("job")
    expire("job")
    brief = found_in().brief
    assert brief.since == aware(LockRecord.objects.get().lock_until)
    assert brief.who == process_of(lock.locked_by)


@pytest.mark.django_db
def test_brief_of_a_lock_that_another_service_acquired() -> None:
    """The end of the other service's lease is not that of the run."""
    take("job")
    LockRecord.objects.update(locked_by="java")
    assert found_in().brief.since is None


@pytest.mark.django_db
def test_brief_of_a_long_run() -> None:
    """A long run's brief says when it began, and how long the job usually takes."""
    end_run("job", duration=timedelta(seconds=1))
    lock = take("job")
    LockRecord.objects.update(locked_at=DatabaseNow() - 2 * MINUTE)
    since = aware(LockRecord.objects.get().locked_at)
    finding = found_in()
    expected = Brief(since, process_of(lock.locked_by), "usually takes 1.0s")
    assert finding.brief == expected
    params: Any = finding.as_dict()["params"]
    assert params["started_at"] == since.isoformat()


@pytest.mark.django_db
def test_brief_of_a_pause_without_an_end() -> None:
    """An endless pause's brief says since when the job is paused, by whom, and why."""
    pause("job", lasting=FOREVER)
    moved = {each: F(each) - 2 * DAY for each in ("locked_at", "lock_until")}
    LockRecord.objects.update(**moved)
    since = aware(LockRecord.objects.get().locked_at)
    finding = found_in()
    assert finding.brief == Brief(since, "alice", "no end: the mail server moves")
    params: Any = finding.as_dict()["params"]
    assert params["since"] == since.isoformat()


@pytest.mark.django_db
def test_brief_of_an_overdue_job() -> None:
    """An overdue job's brief says since which tick the job is overdue."""
    take("job").release()
    since = be_overdue("job")
    assert found_in().brief == Brief(since, "", "no run has begun")


@pytest.mark.django_db
def test_brief_of_a_run_that_lost_its_lock() -> None:
    """
    The brief of a run that lost its lock names the overlapping run.

    Before the history has that run, the brief says that the job may have run twice.
    """
    lost = end_run("job", RunOutcome.LOST, started=DatabaseNow() - 2 * MINUTE)
    lost_at = LockRecord.objects.get().lost_at
    assert lost_at is not None
    since, who = aware(lost_at), process_of(lost.locked_by)
    assert found_in().brief == Brief(since, who, "may have run twice")
    add_run("job", locked_by=OTHER, started=DatabaseNow() - MINUTE)
    assert found_in().brief == Brief(since, who, "ran at the same time as vm:9748")


@pytest.mark.django_db
def test_brief_of_ticks_that_were_passed_over() -> None:
    """The brief of passed-over ticks says since when, and how many."""
    take("job").release()
    newest = next(EVERY.ticks_until(datetime.now(UTC)))
    *_, first, former = islice(EVERY.ticks_until(newest), 5)
    LockRecord.objects.update(
        schedule=str(EVERY),
        tick=newest,
        former_tick=former,
        due_at=next(EVERY.ticks_after(newest)),
    )
    assert found_in().brief == Brief(first, "", "3 ticks never began")


@pytest.mark.django_db
def test_brief_of_a_request() -> None:
    """A request's brief says who asked for the run, and when."""
    take("job").release()
    get_provider().request_run("job", "ada", "a customer waits")
    moved = ("asked_at", "locked_at", "lock_until", "released_at")
    LockRecord.objects.update(**{each: F(each) - 10 * MINUTE for each in moved})
    asked_at = LockRecord.objects.get().asked_at
    assert asked_at is not None
    expected = Brief(aware(asked_at), "ada", "no host has started the run")
    assert found_in().brief == expected


@pytest.mark.django_db
def test_brief_of_a_record_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The brief of an unreadable record has no details.

    The finding's sentence says why the record can't be read.
    """
    take("job")
    make_record_unreadable(monkeypatch, "job")
    assert found_in().brief == Brief(None, "", "its record can't be read")


@pytest.mark.django_db
def test_brief_of_a_run_that_the_history_lacks() -> None:
    """The brief of an unrecorded run says when the history could not be written."""
    execute(lambda: None, "job")
    get_provider().note_unrecorded("job")
    since = LockRecord.objects.get().unrecorded_at
    assert since is not None
    assert found_in().brief == Brief(aware(since), "", "the history lacks its last run")


@pytest.mark.django_db
@override_settings(SHEDLOCK_HISTORY_RETENTION="1d")
def test_briefs_of_a_store() -> None:
    """A store's briefs have no process, and most of them have no instant."""
    error = OperationalError("connection to server at\n\t10.0.0.1 failed.")
    meaning = "no job can run: connection to server at 10.0.0.1 failed"
    assert unreachable("default", error).brief == Brief(None, "", meaning)
    grown = Brief(None, "", "the history grows for ever")
    assert outgrown_history("default").brief == grown
    [clock] = Search(clock_tolerance=-DAY).findings(get_provider())
    assert (clock.kind, clock.brief.who) == (Kind.CLOCK, own_host())
