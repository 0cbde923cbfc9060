"""Runs that an operator asks for: who carries them out, once, and what came of it."""

from __future__ import annotations

import logging
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from multiprocessing.synchronize import Barrier
from typing import Any
from unittest.mock import patch

import pytest
from django.core.management import CommandError
from django.db import DatabaseError, connection
from django.test import modify_settings, override_settings

from django_shedlock import scheduler_lock
from django_shedlock.beat.catch_up import note_catch_up
from django_shedlock.beat.requests import carry_out_requests
from django_shedlock.console.models import ActionKind, ActionResult, LockAction
from django_shedlock.console.monitoring.kinds import Kind
from django_shedlock.console.monitoring.search import Search
from django_shedlock.console.operators import (
    Answer,
    AuditedAction,
    RequestRun,
    WithdrawRequest,
    audit,
    requests,
)
from django_shedlock.console.operators.requests import request_of
from django_shedlock.contrib.crontab.entries import crontab_jobs
from django_shedlock.exceptions import InvalidLockConfiguration, LockProviderError
from django_shedlock.locks.configuration import LockConfiguration
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockState, LockStatus
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider
from django_shedlock.providers.base import LockQuery
from django_shedlock.registry import requests as registry_requests
from django_shedlock.registry.discovery import named_jobs
from django_shedlock.registry.jobs import Job
from django_shedlock.registry.requests import (
    CATCH_UP_LOCK,
    REQUEST_LIFETIME,
    has_request,
    last_catch_up,
)
from django_shedlock.registry.requests import find_requests as find
from django_shedlock.schedules.state import Start, Trigger
from django_shedlock.sql.fields import DatabaseNow
from django_shedlock.testing import held_elsewhere
from tests.models import Body
from tests.support.commands import run
from tests.support.durations import rounded_up
from tests.support.jobs import DAILY, Jobs, make_late, only_jobs_of, ran, scheduled_jobs
from tests.support.lateness import be_overdue
from tests.support.locks import expire, force_release, pause, state, status_of, take
from tests.support.processes import Parent, race

pytestmark = pytest.mark.django_db(transaction=True)

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
MEMORY = {
    "default": {"BACKEND": "django_shedlock.providers.memory.MemoryLockProvider"},
}


@pytest.fixture(autouse=True)
def jobs() -> Iterator[Jobs]:
    with scheduled_jobs() as made:
        yield made


def ask(name: str = "report", **more: Any) -> Answer:
    by = {"operator": "ada", "reason": "the mail was lost"}
    provider = get_provider()
    note_catch_up(provider)  # else nobody would carry it out
    return RequestRun().carry_out(AuditedAction(provider, name, **{**by, **more}))


def carry_out() -> list[tuple[LockStatus, Answer]]:
    return list(carry_out_requests(get_provider()))


def asked_for() -> list[str]:
    """Return the names of the locks with an open request."""
    return [status.name for status in filter(has_request, find(get_provider()))]


def let_it_wait(age: timedelta, name: str = "report") -> None:
    """Let the request have been made so long ago."""
    LockRecord.objects.filter(name=name).update(asked_at=DatabaseNow() - age)


@contextmanager
def without_audit_log() -> Iterator[None]:
    """Take the audit log's table away, as before the ``migrate`` that makes it."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE shedlock_action RENAME TO elsewhere")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE elsewhere RENAME TO shedlock_action")


def only_row() -> LockAction:
    return LockAction.objects.get()


def test_request_waits_for_a_catch_up() -> None:
    """Nothing runs where a request is made: it is on the record, and in the audit."""
    answer = ask()
    assert answer.result is ActionResult.REQUESTED
    assert (
        "The next `python manage.py shedlock catch-up` will run the job"
        in answer.detail
    )
    job = status_of(get_provider(), "report").job
    assert (job.asked_by, job.asked_why) == ("ada", "the mail was lost")
    assert job.asked_at is not None
    row = only_row()
    assert (row.kind, row.result) == (ActionKind.RUN, ActionResult.REQUESTED)
    assert (row.operator, row.reason) == ("ada", "the mail was lost")
    assert ran == []


def test_request_changes_nothing_else(jobs: Jobs) -> None:
    """The lease, the ticks and the last run of the record stay as they were."""
    jobs.report()
    report = LockRecord.objects.filter(name="report").values()
    before = report.get()
    ask()
    after = report.get()
    changed = {column for column in after if after[column] != before[column]}
    assert changed == {"asked_at", "asked_by", "asked_why"}


def test_catch_up_carries_it_out_once(jobs: Jobs) -> None:
    """Though its tick is done, the job runs; the run says who asked for it, and why."""
    jobs.report()
    ran.clear()
    ask()
    told = run("catch-up")
    assert "The job of lock 'report' has run, for " in told
    assert "ada asked for it: the mail was lost" in told
    assert run("catch-up") == ""
    assert ran == ["report"]
    assert asked_for() == []
    last = LockRun.objects.order_by("pk").last()
    assert last is not None
    assert (last.trigger, last.operator, last.reason) == (
        "operator",
        "ada",
        "the mail was lost",
    )


def test_audit_log_is_written_once() -> None:
    """The row of a request stays "requested": the result is the run."""
    ask()
    carry_out()
    assert only_row().result == ActionResult.REQUESTED


def test_job_without_a_schedule_is_run() -> None:
    """A requested job runs even if it has no schedule and no earlier record."""

    @scheduler_lock("by hand")
    def by_hand() -> None:
        ran.append("by hand")

    ask("by hand")
    assert len(carry_out()) == 1
    assert (carry_out(), ran) == ([], ["by hand"])


@pytest.mark.each_store
def test_failure_is_told() -> None:
    """The history has the exception, and the catch-up fails as with an overdue job."""
    ask("failing")
    with pytest.raises(CommandError, match="Jobs that failed: "):
        run("catch-up")
    run_of_job = LockRun.objects.get(trigger="operator")
    assert (run_of_job.exception_type, run_of_job.operator) == (
        "ZeroDivisionError",
        "ada",
    )
    assert asked_for() == []


def test_nothing_starts_after_a_signal() -> None:
    """
    No further request is carried out after SystemExit in a requested job.

    A signal's handler raises SystemExit in the running job.
    """

    @scheduler_lock("ended")
    def end() -> None:
        sys.exit(128 + signal.SIGTERM)

    ask("ended")
    ask("report")
    with pytest.raises(SystemExit):
        carry_out()
    assert ran == []
    assert asked_for() == ["report"]


@pytest.mark.each_store
def test_failure_that_tells_nothing_is_written() -> None:
    """An exception without a text does not stop the other requests."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise SystemExit(3)

    @scheduler_lock("mute")
    def mute() -> None:
        raise Mute

    ask("mute")
    ask("report")
    assert [triggered.has_failed for _, triggered in carry_out()] == [True, False]


def test_oldest_request_comes_first() -> None:
    """Requests are carried out in the order in which they were made."""
    ask("report")
    ask("fetch")
    let_it_wait(MINUTE, "report")
    assert [status.name for status, _ in carry_out()] == ["report", "fetch"]


@pytest.mark.each_store
@pytest.mark.parametrize("holder", ["a run", "a run whose lease is over", "a pause"])
def test_request_waits_while_the_lock_is_held(
    holder: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A request waits while the lock is held, or while its job may still run."""
    ask()
    if holder == "a run":
        take("report")
        why = "its job is running as"
    elif holder == "a run whose lease is over":
        take("report")
        expire("report")
        why = "its lease is over, but its job may still be running as"
    else:
        pause("report")
        why = "alice paused it, because: the mail server moves"
    with caplog.at_level(logging.INFO, "django_shedlock"):
        assert carry_out() == []
    assert f"Lock 'report': its requested run waits, since {why}" in caplog.text
    assert ran == []
    force_release(get_provider(), "report")
    assert len(carry_out()) == 1
    assert ran == ["report"]


def test_run_is_not_offered_while_a_request_would_wait() -> None:
    """The lock of a run that may still go on is released first, or acquired."""
    take("report")
    expire("report")
    [status] = get_provider().statuses(LockQuery(names=["report"]))
    assert not RequestRun.is_offered(status, [])
    force_release(get_provider(), "report")
    [status] = get_provider().statuses(LockQuery(names=["report"]))
    assert RequestRun.is_offered(status, [])


def test_run_is_no_remedy_beside_a_process_that_may_live() -> None:
    """Whoever acknowledges a finding says nothing of its process, unless asked."""
    lock = take("report")
    force_release(get_provider(), "report")
    be_overdue("report")

    def helps() -> bool:
        [status] = get_provider().statuses(LockQuery(names=["report"]))
        open_findings = Search().of_locks(get_provider(), ["report"])["report"]
        return RequestRun.helps(status, open_findings)

    acknowledge = ("acknowledge", "report", "--fact", f"abandoned {lock.locked_by}")
    assert not helps()
    run(*acknowledge, "--reason", "I look at it")
    assert not helps()
    run(*acknowledge, "--reason", "it is dead", "--process-is-gone")
    assert helps()


def test_run_beside_an_expired_one_whose_process_is_gone() -> None:
    """Another service has used the lock since, so nobody can release that run."""
    take("report")
    expire("report")
    LockRecord.objects.filter(name="report").update(locked_by="java-1")
    refused = ask()
    assert not refused
    assert "its last run may still go on in process" in refused.detail
    run("acknowledge", "report", "--reason", "it is dead", "--process-is-gone")
    assert ask().result is ActionResult.REQUESTED


def test_request_waits_for_no_lock_at_least_for() -> None:
    """An operator may run a job while that keeps its lock."""
    take("report", lock_at_least_for=MINUTE).release()
    assert state("report") is LockState.HELD_AT_LEAST
    ask()
    assert len(carry_out()) == 1
    assert ran == ["report"]


def come_between(monkeypatch: pytest.MonkeyPatch, step: Callable[[], Any]) -> None:
    """Let the step come after a host has read the requests, and before it starts."""

    def after_the_step(provider: str) -> Any:
        monkeypatch.setattr(registry_requests, "named_jobs", named_jobs)
        step()
        return named_jobs(provider)

    monkeypatch.setattr(registry_requests, "named_jobs", after_the_step)


@pytest.mark.parametrize("name", ["report", "tidy"])
def test_faster_host_leaves_nothing_to_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """The acquisition matches only while the request that was read is there."""
    ask(name)
    first: list[tuple[LockStatus, Answer]] = []
    come_between(monkeypatch, lambda: first.extend(carry_out()))
    with caplog.at_level(logging.INFO, "django_shedlock"):
        assert carry_out() == []
    assert [status.name for status, _ in first] == [name]
    assert ran == [name]
    assert "another worker was faster, or somebody withdrew the request" in caplog.text


def test_slower_host_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host never waits for a lock that another host acquired for the request."""

    @scheduler_lock("patient", wait="1h")
    def patient() -> None:
        ran.append("patient")

    ask("patient")
    come_between(monkeypatch, lambda: take_for_request("patient"))
    monkeypatch.setattr(time, "sleep", None)
    assert (carry_out(), ran) == ([], [])


def take_for_request(name: str) -> None:
    """Let another host have acquired the lock for its request."""
    status = status_of(get_provider(), name)
    start = Start(Trigger.OPERATOR, request=requests.asked_at(status))
    take(LockConfiguration(name, MINUTE, start=start))


@pytest.mark.parametrize("name", ["report", "tidy"])
def test_request_that_is_withdrawn_meanwhile_runs_nothing(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A host that has read the request does not start the job any more."""
    ask(name)
    come_between(monkeypatch, lambda: run("withdraw", name))
    assert (carry_out(), ran) == ([], [])


@pytest.mark.parametrize("name", ["report", "tidy"])
def test_request_is_gone_with_its_record(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """If somebody deletes the record, nobody asks for a run any more."""
    ask(name)
    come_between(monkeypatch, LockRecord.objects.all().delete)
    assert (carry_out(), ran) == ([], [])


def test_newer_request_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that has read an older one leaves the newer one for the next look."""
    ask()

    def ask_again() -> None:
        run("withdraw", "report")
        ask(operator="bob")

    come_between(monkeypatch, ask_again)
    assert (carry_out(), ran) == ([], [])
    [(status, _)] = carry_out()
    assert status.job.asked_by == "bob"
    assert ran == ["report"]


@pytest.mark.each_store
def test_only_locks_with_a_request_are_read() -> None:
    """However many locks there are, a look for requests reads those that have one."""
    take("other")
    ask()
    wanted = LockQuery(requested=True)
    read = get_provider().statuses(wanted)
    chosen = wanted.select(get_provider().statuses())
    for statuses in (read, chosen):
        assert [status.name for status in statuses] == ["report"]
    assert get_provider().count(wanted) == 1


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("remind", "its job needs arguments"),
        ("typo", "no such job is known in this process"),
    ],
)
def test_what_cannot_be_started_is_refused(name: str, why: str) -> None:
    """No request waits for what will never be carried out."""
    assert why in ask(name).detail
    assert not LockAction.objects.exists()
    assert asked_for() == []


def test_lock_with_a_record_may_have_a_job_elsewhere() -> None:
    """A process that has not imported the job can ask another one to run it."""
    take("elsewhere").release()
    assert ask("elsewhere").result is ActionResult.REQUESTED
    assert asked_for() == ["elsewhere"]
    assert (carry_out(), ran) == ([], [])


def test_app_may_give_a_job_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry of CRONJOBS may start a job that needs arguments, so it can be asked."""
    monkeypatch.setattr(requests, "offered_job_sources", lambda: [crontab_jobs])
    assert ask("remind").result is ActionResult.REQUESTED


def test_job_that_cannot_begin_is_tried_once(caplog: pytest.LogCaptureFixture) -> None:
    """
    A requested job that cannot begin is tried once.

    The request is closed, so no beat tries it again every few seconds.
    """
    ask()

    def refuse(*args: Any, **options: Any) -> bool:
        raise InvalidLockConfiguration("the lease is too short")

    with patch.object(Job, "start", refuse):
        [(_, triggered)] = carry_out()
    assert triggered.has_failed
    assert "the lease is too short" in caplog.text
    assert asked_for() == []


def test_store_that_fails_leaves_the_request() -> None:
    """The job has not run, so the next catch-up tries it again."""
    ask()

    def fail(*args: Any, **options: Any) -> bool:
        raise LockProviderError("the store is away")

    with patch.object(Job, "start", fail):
        [(_, triggered)] = carry_out()
    assert triggered.has_failed
    assert asked_for() == ["report"]


def test_locks_in_the_memory_of_a_process_refuse_each_request() -> None:
    """No other process would find a request there."""
    with override_settings(SHEDLOCK_PROVIDERS=MEMORY):
        memory = get_provider()
        names = ["report", "typo"]
        why = "its provider keeps its locks in the memory of each process"
        assert RequestRun.obstacles(memory, names) == dict.fromkeys(names, why)
        assert WithdrawRequest.obstacles(memory, names) == dict.fromkeys(
            names, "nobody asks for a run of its job"
        )
        answer = ask()
    assert answer.result is ActionResult.REFUSED
    assert answer.detail == f"The job of lock 'report' was not started: {why}."
    assert not LockAction.objects.exists()


def test_second_request_is_refused() -> None:
    """As long as the first one is open, nobody else's takes its place."""
    ask()
    let_it_wait(30 * MINUTE)
    answer = ask(operator="bob")
    assert answer.result is ActionResult.REFUSED
    assert "ada asked for a run 30m" in answer.detail
    assert status_of(get_provider(), "report").job.asked_by == "ada"
    assert ask("fetch").result is ActionResult.REQUESTED


def test_expired_request_is_not_carried_out(caplog: pytest.LogCaptureFixture) -> None:
    """
    An expired request is not carried out, but is a finding for a day.

    Then the request is deleted, and one line is logged.
    """
    ask()
    let_it_wait(REQUEST_LIFETIME)
    assert carry_out() == []
    [finding] = Search().of_locks(get_provider(), ["report"])["report"]
    assert finding.kind is Kind.REQUEST
    let_it_wait(DAY)
    assert request_of(status_of(get_provider(), "report")) == ""
    assert "asked for a run" not in run("catch-up", "--dry-run")
    assert status_of(get_provider(), "report").job.asked_at is not None
    caplog.clear()
    assert carry_out() == []
    assert status_of(get_provider(), "report").job.asked_at is None
    assert carry_out() == []
    assert [record.getMessage() for record in caplog.records] == [
        "Lock 'report': ada asked for a run of its job. The request has expired, "
        "because nobody carried it out within 1h."
    ]
    assert ran == []


def test_request_is_open_until_its_last_minute() -> None:
    """A request of 59 minutes ago is carried out."""
    ask()
    let_it_wait(REQUEST_LIFETIME - MINUTE)
    assert len(carry_out()) == 1


def test_next_request_takes_the_place_of_an_expired_one() -> None:
    """An expired request does not keep anybody from asking again."""
    ask()
    let_it_wait(DAY)
    assert ask(operator="bob").result is ActionResult.REQUESTED
    [(status, _)] = carry_out()
    assert status.job.asked_by == "bob"


def test_request_is_withdrawn(jobs: Jobs) -> None:
    """At the command line, with a row of its own."""
    jobs.report()
    ran.clear()
    ask()
    told = run("withdraw", "report", "--reason", "it ran")
    assert told.strip() == "The request to run the job of lock 'report' is withdrawn."
    assert carry_out() == []
    request, withdrawal = LockAction.objects.order_by("pk")
    assert (request.kind, request.result) == ("run", ActionResult.REQUESTED)
    assert (withdrawal.kind, withdrawal.result) == ("withdraw", ActionResult.DONE)
    assert withdrawal.reason == "it ran"
    with pytest.raises(CommandError, match="nobody asks for a run of its job"):
        run("withdraw", "report")
    assert ran == []


def test_request_that_was_carried_out_is_not_withdrawn(jobs: Jobs) -> None:
    """A worker that was faster has carried it out."""
    jobs.report()
    ask()
    seen = status_of(get_provider(), "report")
    withdrawn = AuditedAction(get_provider(), "report", operator="bob")
    with patch.object(WithdrawRequest, "obstacles", return_value={}):
        assert len(carry_out()) == 1
        answer = WithdrawRequest().carry_out(withdrawn, seen)
    assert answer.result is ActionResult.REFUSED
    assert "No request for lock 'report' is withdrawn" in answer.detail


@pytest.mark.each_store
def test_acquisition_since_is_told(jobs: Jobs) -> None:
    """If the job has run since the operator looked, nothing is requested."""
    jobs.report()
    seen = status_of(get_provider(), "report").locked_by
    run("trigger", "report")
    answer = ask(locked_by=seen)
    assert "does not hold it; " in answer.detail
    assert asked_for() == []


def test_unknown_job_is_left_to_other_hosts() -> None:
    """A request for a job that this host does not know stays open."""
    ask()
    with only_jobs_of():
        assert carry_out() == []
        assert "asked for a run" not in run("catch-up", "--dry-run")
    assert "Lock 'report': ada asked for a run" in run("catch-up", "--dry-run")
    assert asked_for() == ["report"]
    assert len(carry_out()) == 1


@pytest.mark.parametrize("hold", [pause, take])
def test_request_that_waits_is_reported(hold: Callable[[str], Lock]) -> None:
    """A catch-up and its dry run say the same of it: that it waits, and for what."""
    lock = hold("report")
    get_provider().request_run("report", "ada", "at once")
    why = f"its job is running as {lock.locked_by}"
    if hold is pause:
        why = "alice paused it, because: the mail server moves; for 5m more"
    waits = f"Lock 'report': its requested run waits, since {why}.\n"
    assert rounded_up(run("catch-up")) == waits
    told = rounded_up(run("catch-up", "--dry-run"))
    assert told == f"{waits}No job is overdue.\n"
    assert run("catch-up", "--verbosity", "0") == ""
    with only_jobs_of():
        assert run("catch-up") == ""
    assert asked_for() == ["report"]


def test_request_that_waits_for_an_expired_lock_is_reported() -> None:
    """
    A request that waits for an expired lock is reported.

    The last run may still go on, so a dry run does not announce another one.
    """
    lock = take("report")
    expire("report")
    get_provider().request_run("report", "ada", "at once")
    waits = (
        "Lock 'report': its requested run waits, since its lease is over, but its job "
        f"may still be running as {lock.locked_by}.\n"
    )
    assert run("catch-up", "--dry-run").startswith(waits)
    assert run("catch-up").startswith(waits)


def test_request_without_a_reason_is_announced_in_a_sentence() -> None:
    """The plain store keeps whatever a caller gave."""
    get_provider().request_run("report", "", "")
    told = run("catch-up", "--dry-run")
    assert told.startswith("Lock 'report': An operator asked for a run.\n")


def test_trigger_closes_the_request() -> None:
    """What somebody runs by hand need not be run again."""
    ask()
    run("trigger", "report")
    assert carry_out() == []
    assert ran == ["report"]


def test_skipped_trigger_leaves_the_request() -> None:
    """Nothing was run, so what somebody else asked for stays open."""
    ask()
    with held_elsewhere("report"), pytest.raises(CommandError):
        run("trigger", "report")
    assert asked_for() == ["report"]


def test_unprintable_operator_is_written() -> None:
    """What the store can't keep is replaced, on the record and in the audit."""
    ask(operator="ada\0", reason="\udc80" + "y" * 3000)
    job = status_of(get_provider(), "report").job
    assert job.asked_by == only_row().operator == "ada\\0"
    assert job.asked_why == only_row().reason
    assert len(only_row().reason) == 2000


@pytest.mark.each_store
def test_nothing_is_carried_out_without_locks() -> None:
    """A request waits while SHEDLOCK_ENABLED is False."""
    ask()
    with override_settings(SHEDLOCK_ENABLED=False):
        assert carry_out() == []
        run("catch-up")
        told = "With SHEDLOCK_ENABLED = False nothing is caught up.\n"
        assert run("catch-up", "--dry-run") == told
    assert asked_for() == ["report"]


def test_request_that_nobody_would_carry_out_is_refused(jobs: Jobs) -> None:
    """Where neither a beat nor a catch-up came lately, the command is named instead."""
    jobs.report()
    command = "python manage.py shedlock trigger report"
    why = f"no beat and no catch-up was seen within 1h, but `{command}` runs it."
    asked = AuditedAction(get_provider(), "report", operator="ada", reason="at once")
    assert RequestRun().carry_out(asked).detail.endswith(why)
    assert asked_for() == []
    assert ask().result is ActionResult.REQUESTED
    run("withdraw", "report")
    moved = DatabaseNow() - REQUEST_LIFETIME
    catch_up = LockRecord.objects.filter(name=CATCH_UP_LOCK)
    catch_up.update(locked_at=moved)
    assert RequestRun().carry_out(asked).detail.endswith(why)
    catch_up.update(locked_at=DatabaseNow(), locked_by="paused by ada: no reason (1)")
    assert RequestRun().carry_out(asked).detail.endswith(why)


def test_catch_up_is_seen() -> None:
    """A record of its own says when it came last, and is no run."""
    assert last_catch_up(get_provider()) is None
    run("catch-up", "--dry-run")
    assert last_catch_up(get_provider()) is None
    run("catch-up")
    LockRecord.objects.update(locked_at=DatabaseNow() - DAY)
    before = last_catch_up(get_provider())
    run("catch-up")
    after = last_catch_up(get_provider())
    assert before is not None
    assert after is not None
    assert after - before > DAY - MINUTE
    assert state(CATCH_UP_LOCK) is LockState.FREE
    assert status_of(get_provider(), CATCH_UP_LOCK).job.last_run is None
    assert not LockRun.objects.exists()


def test_catch_up_of_named_jobs_is_called_by_a_person() -> None:
    """A catch-up of named jobs does not show that anything carries out requests."""
    run("catch-up", "report")
    assert last_catch_up(get_provider()) is None
    asked = AuditedAction(get_provider(), "report", operator="ada")
    assert not RequestRun().carry_out(asked)
    run("catch-up")
    assert RequestRun().carry_out(asked).result is ActionResult.REQUESTED


def test_page_says_when_a_catch_up_was_seen() -> None:
    """
    The page says when a catch-up was last seen, or that none ever was.

    Otherwise an operator could wait for a catch-up in vain.
    """
    assert "No catch-up was ever seen." in RequestRun.notes(get_provider())
    run("catch-up")
    ago = DatabaseNow() - 3 * MINUTE - timedelta(seconds=30)
    LockRecord.objects.update(locked_at=ago)
    told = rounded_up(RequestRun.notes(get_provider())[1])
    assert told == "A catch-up was last seen 4m ago."


def test_request_needs_no_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    """An operator's request is made and carried out without the audit log's table."""
    run("catch-up")
    make_late("fetch")
    with without_audit_log():
        assert ask().result is ActionResult.REQUESTED
        told = run("catch-up")
    assert "Lock 'fetch', overdue since" in told
    assert "ada asked for it: the mail was lost" in told
    assert sorted(ran) == ["fetch", "report"]
    assert "The audit log lacks an action on lock 'report'" in caplog.text


class TestTrigger:
    """``shedlock trigger`` runs here and now, with the audit."""

    def test_run_is_written(self) -> None:
        """The audit log records a triggered run with its reason and its result."""
        run("trigger", "report", "--reason", "the mail was lost")
        row = only_row()
        assert (row.kind, row.result) == (ActionKind.RUN, ActionResult.DONE)
        assert row.reason == "the mail was lost"
        assert row.began < row.ended

    def test_refusal_is_written(self) -> None:
        """The audit log records a refused trigger and says who holds the lock."""
        with held_elsewhere("report"), pytest.raises(CommandError):
            run("trigger", "report")
        row = only_row()
        assert row.result == ActionResult.REFUSED
        assert "was not started: its job is running as" in row.detail

    def test_paused_job_is_refused(self) -> None:
        """Nothing runs that somebody has paused: exit status 7."""
        pause("report")
        with pytest.raises(CommandError, match="alice paused it") as refusal:
            run("trigger", "report")
        assert refusal.value.returncode == 7
        assert ran == []

    @pytest.mark.parametrize("name", ["report", "failing"])
    def test_database_that_fails_meanwhile_changes_no_result(
        self,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        name: str,
    ) -> None:
        """The job has run, or raised its own exception, without its audit row."""

        def fail(*args: Any, **values: Any) -> Any:
            raise DatabaseError("the database is away")

        monkeypatch.setattr(audit, "insert_action", fail)
        failure = pytest.raises(ZeroDivisionError)
        with nullcontext() if name == "report" else failure:
            assert "has run, for" in run("trigger", name)
        assert ran == [name]
        assert "The audit log lacks an action" in caplog.text

    def test_failure_is_written_and_raised(self) -> None:
        """The operator sees the exception, and the audit log has it."""
        with pytest.raises(ZeroDivisionError):
            run("trigger", "failing")
        assert only_row().result == ActionResult.FAILED
        assert "ZeroDivisionError: by nobody" in only_row().detail

    @pytest.mark.each_store
    @pytest.mark.django_db(transaction=True)
    def test_run_without_an_audit_log_is_told_as_it_was(self) -> None:
        """What can't be written neither fails a run nor hides what its job raised."""
        with without_audit_log():
            assert "The job of lock 'report' has run" in run("trigger", "report")
            with pytest.raises(ZeroDivisionError):
                run("trigger", "failing")
        assert ran == ["report", "failing"]

    def test_store_that_failed_closes_no_request(self) -> None:
        """The job has not run, so what somebody else asked for stays open."""
        ask()

        def fail(*args: Any) -> bool:
            raise LockProviderError("the store is away")

        with (
            patch.object(Job, "start", fail),
            pytest.raises(CommandError, match="store is away"),
        ):
            run("trigger", "report")
        action = LockAction.objects.latest("pk")
        assert action.result == ActionResult.FAILED
        assert len(carry_out()) == 1
        assert ran == ["report"]

    def test_exit_with_0_is_no_failure(self) -> None:
        """A triggered job that exits with status 0 counts as done."""

        def succeed(*args: Any, **by: Any) -> bool:
            raise SystemExit(0)

        with patch.object(Job, "start", succeed):
            assert "The job of lock 'report' has run" in run("trigger", "report")
        assert only_row().result == ActionResult.DONE


RACERS = 4
REQUESTS = 15


def carry_out_at_once(parent: Parent, barrier: Barrier) -> int:
    """Carry out what this host can get; return the number of requests."""
    with only_jobs_of():
        made = [note_body(f"job {number}", number) for number in range(REQUESTS)]
        barrier.wait()
        assert len(made) == REQUESTS
        return len(carry_out())


def note_body(name: str, number: int) -> Any:
    """Make a job, of which every other one has a schedule."""

    @scheduler_lock(name, **DAILY if number % 2 else {})
    def job() -> None:
        Body.objects.create(name=name, token=0, worker="", begun_at=DatabaseNow())

    return job


def test_each_request_is_carried_out_once() -> None:
    """Of several hosts that catch up at once, one carries out each request."""
    with only_jobs_of():
        made = [note_body(f"job {number}", number) for number in range(REQUESTS)]
        for number in range(len(made)):
            assert ask(f"job {number}").result is ActionResult.REQUESTED
    assert sum(race(RACERS, carry_out_at_once)) == REQUESTS
    assert Body.objects.count() == REQUESTS
    assert asked_for() == []


def test_request_needs_the_beat() -> None:
    """Without its app nobody would run the job, so nothing is promised."""
    run("catch-up")  # so there is a record
    be_overdue("fetch")
    with modify_settings(INSTALLED_APPS={"remove": "django_shedlock.beat"}):
        assert "INSTALLED_APPS lacks django_shedlock.beat" in ask().detail
        [found] = Search().of_locks(get_provider(), ["fetch"])["fetch"]
        assert found.kind is Kind.OVERDUE
        assert found.advice.command_after_look.endswith("shedlock trigger fetch")
    assert asked_for() == []
