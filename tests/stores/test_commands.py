"""``manage.py shedlock`` with each store, and with one that is down."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection

from django_shedlock import execute
from django_shedlock.clocks import local_text
from django_shedlock.console.models import LockAction
from django_shedlock.console.operators import AuditedAction, ExtendLease, ReleaseLock
from django_shedlock.locks.status import LockState, RunOutcome
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider
from tests.support.commands import call
from tests.support.lateness import HOUR
from tests.support.locks import (
    MINUTE,
    Broken,
    add_run,
    let_its_clock_move,
    state,
    status_of,
    take,
)
from tests.support.waiting import wait_for

pytestmark = pytest.mark.django_db
shared_stores = pytest.mark.parametrize(
    "store",
    ["database", "redis", "etcd", "mongo", "dynamo", "zookeeper"],
    indirect=True,
)
"""Those whose locks the command, another process than the job's, can change."""


def listed(*args: str) -> set[str]:
    status, printed, _ = call("list", "--json", *args)
    assert status == 0
    return {lock["name"] for lock in json.loads(printed)}


def test_list(store: str) -> None:
    """All locks are listed, free ones as well."""
    lock = take("job")
    take("unknown")
    take("free").release()
    status, printed, told = call("list", "--wide")
    assert status == 0
    assert re.search(rf"^job +running +{lock.locked_by} ", printed, re.MULTILINE)
    assert listed() == {"free", "job", "unknown"}
    assert told == ""


def test_empty_list(store: str) -> None:
    """The list command says that there are no locks yet."""
    assert call("list") == (0, "There are no locks yet.\n", "")


@pytest.mark.each_store
def test_list_of_names_and_patterns(store: str) -> None:
    """A lock that is named is listed, whether its job is known or not."""
    take("job")
    take("unknown")
    assert listed("unknown") == {"unknown"}
    assert listed("j*") == {"job"}
    assert listed("unknown", "j*") == {"job", "unknown"}
    assert listed("--state", "expired") == set()


def test_list_of_findings_of_free_locks(store: str) -> None:
    """A failure is reported, though nobody holds the lock."""
    take("job").release(Broken())
    _, printed, _ = call("list", "--attention")
    assert "1 lock has findings. `python manage.py shedlock check`" in printed


def test_show(store: str) -> None:
    """A lock that is named is shown with its state, its runs and what was done."""
    take("job")
    asked = AuditedAction(get_provider(), "job", reason="a slow day")
    assert ExtendLease(lock_at_most_for=HOUR).carry_out(asked)
    add_run("job")
    status, printed, _ = call("show", "job")
    assert status == 0
    assert re.search(r"^State +running$", printed, re.MULTILINE)
    assert re.search(r"^Provider +default$", printed, re.MULTILINE)
    assert "succeeded" in printed
    assert "a slow day" in printed
    assert re.search(r"^Token +\d+$", printed, re.MULTILINE)


def test_catch_up(store: str) -> None:
    """Each store keeps ticks, so it knows that no job is overdue."""
    assert call("catch-up", "--dry-run")[:2] == (0, "No job is overdue.\n")


@pytest.mark.parametrize(
    "args", [("show",), ("release",), ("resume",), ("extend", "1m"), ("list",)]
)
def test_lock_without_a_record(store: str, args: tuple[str, ...]) -> None:
    """An unknown name is an error of its own."""
    status, _, told = call(args[0], "jbo", *args[1:])
    if store == "memory" and args[0] not in {"show", "list"}:
        assert status == 2
        return
    assert status == 4
    assert told.startswith("There is no lock 'jbo'.")


@shared_stores
def test_release(store: str, caplog: pytest.LogCaptureFixture) -> None:
    """A running lock needs --force; the audit log and the log have who, and why."""
    lock = take("job")
    assert call("release", "job")[0] == 3
    status, printed, _ = call("release", "job", "--force", "--reason", "pod is gone")
    assert status == 0
    assert printed.startswith(f"Lock 'job' is released. {lock.locked_by} held it.")
    found = get_provider().status("job")
    assert found is not None
    assert found.state is LockState.FREE
    assert not lock.release()
    refused, done = LockAction.objects.order_by("pk")
    assert (refused.result, done.result) == ("refused", "done")
    assert (done.provider, done.reason) == ("default", "pod is gone")
    assert "Lock 'job' was released by" in caplog.text


@shared_stores
def test_extend(store: str) -> None:
    """The lease is longer, and never shorter."""
    take("job", lock_at_most_for=MINUTE)
    assert call("extend", "job", "2h")[0] == 0
    assert call("extend", "job", "1h")[0] == 0
    status = status_of(get_provider(), "job")
    assert HOUR < status.remaining <= 2 * HOUR
    assert LockAction.objects.filter(kind="extend", result="done").count() == 2


@shared_stores
def test_pause_and_resume(store: str) -> None:
    """A known job is paused before it ever ran; its skips tell why."""
    assert call("pause", "job", "--reason", "the mail server moves")[0] == 0
    assert state("job") is LockState.PAUSED
    assert not execute(lambda: None, "job").was_executed
    assert re.search(r"^job +paused ", call("list")[1], re.MULTILINE)
    assert call("resume", "job")[0] == 0
    assert execute(lambda: None, "job").was_executed


@pytest.mark.parametrize("store", ["memory"], indirect=True)
@pytest.mark.parametrize(
    "args",
    [
        ("release", "job", "--force", "--reason", "test"),
        ("extend", "job", "2h"),
        ("pause", "job", "--reason", "it moves"),
        ("resume", "job"),
    ],
    ids=lambda args: args[0],
)
def test_memory_of_another_process(store: str, args: tuple[str, ...]) -> None:
    """Nothing is changed, in the audit log neither, and nothing is said to be done."""
    lock = take("job")
    status, printed, told = call(*args)
    assert (status, printed) == (2, "")
    assert told.startswith("The provider 'default' keeps its locks in the memory of ")
    assert state("job") is LockState.RUNNING
    assert lock.release()
    assert not LockAction.objects.exists()


def test_trigger(store: str) -> None:
    """A job is run by its name; the history says that a person did it."""
    status, printed, _ = call("trigger", "job", "--reason", "now")
    assert status == 0
    assert printed.startswith("The job of lock 'job' has run")
    run = LockRun.objects.get()
    assert (run.trigger, run.reason, run.outcome) == ("operator", "now", "succeeded")


def test_history(store: str) -> None:
    """A run is a row of ``history_database``, whatever keeps the lock."""
    execute(lambda: None, "job")
    run = LockRun.objects.get()
    assert (run.name, run.provider, run.outcome) == ("job", "default", "succeeded")
    assert run.fencing_token == status_of(get_provider(), "job").fencing_token
    status, printed, _ = call("history", "job")
    assert status == 0
    assert re.search(r" job +succeeded ", printed)


@pytest.mark.parametrize("store", ["memory", "redis"], indirect=True)
def test_no_history_without_a_database(
    store: str, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A provider without ``history_database`` writes no history, but logs actions."""
    entry = settings.SHEDLOCK_PROVIDERS["default"]
    options = {k: v for k, v in entry["OPTIONS"].items() if k != "history_database"}
    settings.SHEDLOCK_PROVIDERS = {"default": {**entry, "OPTIONS": options}}
    execute(lambda: None, "job")
    take("job")
    asked = AuditedAction(get_provider(), "job", reason="pod is gone")
    assert ReleaseLock().carry_out(asked)
    assert LockRun.objects.count() == LockAction.objects.count() == 0
    assert "because: 'pod is gone'" in caplog.text
    told = (2, "", "The provider 'default' keeps no history.")
    assert call("history", "job") == told
    take("job")
    # Nor does it say that the job never ran.
    assert "The history has no run" not in call("show", "job")[1]


def test_running_job_is_not_abandoned(store: str) -> None:
    """A record of its name that another store left behind is another lock's."""
    LockRecord.objects.create(
        name="job",
        locked_by="web-1:1:old",
        locked_at="2026-01-01T00:00Z",
        lock_until="2026-01-01T00:00Z",
        released_at="2026-01-01T00:00Z",
    )

    def body() -> tuple[int, str, str]:
        assert not LockRun.objects.exists()
        return call("check")

    found = execute(body, "job").value
    assert found is not None
    assert found[:2] == (0, "No findings.\n")


def test_next_run_tells_that_the_last_one_was_abandoned(store: str) -> None:
    """A worker died without a word, and the next acquisition accounts for its run."""
    lease = max(get_provider().shortest_lease, timedelta(milliseconds=1))
    killed = take("job", lock_at_most_for=lease)
    wait_for(lambda: state("job") is LockState.EXPIRED)
    assert not LockRun.objects.exists()
    execute(lambda: None, "job")
    died, followed = LockRun.objects.order_by("pk")
    assert (died.locked_by, died.outcome) == (killed.locked_by, RunOutcome.ABANDONED)
    assert followed.outcome == RunOutcome.SUCCEEDED


def test_prune(store: str) -> None:
    """Old runs are deleted; records only of a provider that has them in a database."""
    LockRecord.objects.create(
        name="of another provider",
        locked_at="2026-01-01T00:00Z",
        lock_until="2026-01-01T00:00Z",
        released_at="2026-01-01T00:00Z",
    )
    add_run("old", started="2026-01-01T00:00Z", ended="2026-01-01T00:00Z")
    status, _, told = call("prune", "--unused-for", "0s")
    assert (status == 2) == (store != "database")
    if store != "database":
        assert told.startswith("The provider 'default' has no records of locks in a")
        assert LockRecord.objects.exists()
        assert call("prune")[1] == "Deleted runs: 1.\n"
    assert not LockRun.objects.exists()


def test_check(store: str) -> None:
    """A job that runs for too long is found."""
    take("job")
    let_its_clock_move(get_provider())
    assert call("check") == (0, "No findings.\n", "")
    status, printed, _ = call("check", "--held-for", "0s")
    assert status == 1
    assert printed.startswith("WARNING Lock 'job': Its job has run for ")
    assert call("check", "--verbosity", "0")[2] == ""


def test_check_tells_of_a_bad_run(store: str) -> None:
    """The record and the history tell of failures, whatever keeps the locks."""

    def fail() -> None:
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        execute(fail, "job")
    status, printed, _ = call("check")
    assert status == 1
    at = local_text(status_of(get_provider(), "job").job.ended_at)
    assert f"Lock 'job': Its last run failed at {at} with ValueError" in printed


@pytest.mark.parametrize("store", ["database", "memory", "redis"], indirect=True)
def test_expired_lock(store: str) -> None:
    """A worker died. The store tells of it."""
    take("job", lock_at_most_for=timedelta(milliseconds=1))
    wait_for(lambda: state("job") is LockState.EXPIRED)
    status, printed, _ = call("check")
    assert status == 1
    assert "Lock 'job': Its lease ended at" in printed
    assert listed("--state", "expired") == {"job"}


def test_store_that_is_down_hides_no_other(away: str) -> None:
    """``check`` is critical, names the provider, and tells of the others' locks."""
    take("job")
    status, printed, _ = call("check", "--held-for", "0s")
    assert status == 2
    critical, warning = printed.splitlines()
    assert critical.startswith("CRITICAL ")
    assert "'gone'" in critical if away == "database" else "'away'" in critical
    assert warning.startswith("WARNING Lock 'job': Its job has run for ")
    assert listed() == {"job"}


@pytest.mark.parametrize(
    "args", [("list",), ("show", "job"), ("release", "job"), ("extend", "job", "1m")]
)
def test_command_on_a_store_that_is_down(away: str, args: tuple[str, ...]) -> None:
    """An error says so, with a status of its own; nothing looks like an empty list."""
    status, printed, told = call("--provider", "away", *args)
    assert status == (2 if away == "database" else 125)
    assert printed == ""
    assert "'gone'" in told if away == "database" else "'away'" in told


def refuse(execute: Any, sql: str, *arguments: Any) -> Any:
    raise OperationalError("no answer today")


@pytest.mark.parametrize("store", ["memory", "redis"], indirect=True)
def test_history_that_fails_hides_no_lock(store: str) -> None:
    """Locks in other stores are shown while the database fails."""
    take("job")
    with connection.execute_wrapper(refuse):
        assert listed() == {"job"}
        status, printed, told = call("show", "job")
        assert status == 0
        assert re.search(r"^State +running$", printed, re.MULTILINE)
        assert "The history has no run" not in printed
        assert told.startswith("The history in database 'default' can't be read: ")
