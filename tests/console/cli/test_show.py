"""``manage.py shedlock show``: all that is known of one lock."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.core.management import CommandError
from django.test import override_settings

from django_shedlock import scheduler_lock
from django_shedlock.cli import base
from django_shedlock.console.models import ActionKind, ActionResult, LockAction
from django_shedlock.locks.pauses import FOREVER, Pause
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.sql.fields import DatabaseNow
from tests.support.commands import call, run
from tests.support.jobs import only_jobs_of, unimported_jobs
from tests.support.lateness import be_overdue
from tests.support.locks import MINUTE, add_run, end_run, expire, pause, take
from tests.support.waiting import NEVER_SECONDS

pytestmark = pytest.mark.django_db

IN_MEMORY = {
    "default": {"BACKEND": "django_shedlock.providers.memory.MemoryLockProvider"}
}


def facts(name: str = "job") -> dict[str, str]:
    """Return the lines of the first part by their titles."""
    lines = run("show", name).partition("\n\n")[0].splitlines()
    return {line[:12].rstrip(): line[12:] for line in lines if line[11:12] == " "}


def test_running_lock() -> None:
    """Who runs the job since when, and until when the lease lasts."""
    lock = take("job", lock_at_most_for=10 * MINUTE)
    shown = facts()
    assert shown["Lock"] == "job"
    assert shown["Provider"] == "default"
    assert shown["State"] == "running"
    assert shown["Locked by"] == lock.locked_by
    assert "ago" in shown["Locked at"]
    assert "in 9m" in shown["Until"] or "in 10m" in shown["Until"]
    assert shown["Token"] == str(lock.fencing_token)
    assert "Schedule" not in shown
    assert "Last run" not in shown


def test_running_run_has_its_duration_so_far() -> None:
    """
    A running run stands above the last runs, with its duration so far.

    The JSON output has that duration in seconds.
    """
    add_run("job")
    take("job")
    LockRecord.objects.update(locked_at=DatabaseNow() - 2 * MINUTE)
    _, running, ended = run("show", "job").partition("\n\n")[2].splitlines()
    assert re.search(r"  running +2m\w* so far ", running)
    assert "succeeded" in ended
    shown = json.loads(run("show", "job", "--json"))
    assert [each["outcome"] for each in shown["runs"]] == ["running", "succeeded"]
    assert 120 <= shown["runs"][0]["duration"] < 120 + NEVER_SECONDS
    assert 120 <= shown["running_for"] < 120 + NEVER_SECONDS
    [listed] = json.loads(run("list", "--json"))
    assert 120 <= listed["running_for"] < 120 + NEVER_SECONDS


def test_run_that_ends_meanwhile_is_shown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record and the history are read one after the other."""
    lock = take("job")
    running = get_provider().status("job")
    lock.release()
    monkeypatch.setattr(DatabaseLockProvider, "status", lambda provider, name: running)
    [shown] = json.loads(run("show", "job", "--json"))["runs"]
    assert (shown["locked_by"], shown["outcome"]) == (lock.locked_by, "succeeded")


def test_lock_that_another_program_holds_has_no_run() -> None:
    """Java's ShedLock opens no run, so there is none with a duration."""
    take("job")
    LockRecord.objects.update(locked_by="java", open_run=None)
    assert run("show", "job").endswith("\n\nThe history has no run of it.\n")
    assert json.loads(run("show", "job", "--json"))["runs"] == []


@pytest.mark.each_store
def test_several_locks_by_names_and_patterns() -> None:
    """
    ``show`` prints several locks below each other.

    The JSON output is a list unless the argument is one exact name.
    """
    for name in ("billing.mail", "billing.charge", "nightly"):
        take(name).release()
    shown = run("show", "billing.*")
    first, second = shown.split("\n\nLock ")
    assert first.startswith("Lock        billing.charge\n")
    assert second.lstrip().startswith("billing.mail\n")

    def names(*words: str) -> list[str]:
        return [each["name"] for each in json.loads(run("show", *words, "--json"))]

    assert names("billing.*") == ["billing.charge", "billing.mail"]
    assert names("night*") == ["nightly"]
    assert names("nightly", "billing.m?il") == ["billing.mail", "nightly"]
    assert json.loads(run("show", "nightly", "--json"))["name"] == "nightly"


def test_name_that_looks_like_a_pattern() -> None:
    """A lock of exactly this name is meant first."""
    for name in ("import[1]", "import1"):
        take(name).release()
    assert json.loads(run("show", "import[1]", "--json"))["name"] == "import[1]"


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["mail*"], "No lock matches the pattern 'mail*'. "),
        (["nightly", "mail*"], "No lock matches the pattern 'mail*'. "),
        (["nightly", "mal"], "There is no lock 'mal'. "),
    ],
)
def test_pattern_without_a_lock(words: list[str], wrong: str) -> None:
    """
    ``show`` refuses a pattern without a lock, just like an unknown name.

    A known name beside the pattern does not change that.
    """
    take("nightly").release()
    status, printed, complaint = call("show", *words)
    assert (status, printed) == (4, "")
    assert complaint.startswith(wrong)


def test_runs_are_told_by_the_record() -> None:
    """How long the job runs and usually takes, and how the last run ended."""
    end_run("job", duration=2 * MINUTE)
    succeeded = facts()
    assert succeeded["Last run"].startswith("succeeded, after 2m, at 2")
    assert not {"Running for", "Failures", "Succeeded", "Requested"} & set(succeeded)
    for _ in range(2):
        end_run("job", RunOutcome.FAILED)
    take("job", lock_at_most_for=10 * MINUTE)
    LockRecord.objects.update(locked_at=DatabaseNow() - 5 * MINUTE)
    LockRun.objects.all().delete()
    get_provider().request_run("job", "ada", "a customer waits")
    shown = facts()
    assert shown["Running for"].startswith("5m")
    assert shown["Usually"] == "2m"
    assert shown["Last run"].startswith("failed, after ")
    assert shown["Failures"] == "2 in a row"
    assert shown["Succeeded"].startswith("2")
    assert shown["Requested"].endswith(" by ada, because: a customer waits")
    told = json.loads(run("show", "job", "--json"))
    assert (told["last_outcome"], told["failures"]) == ("failed", 2)
    assert told["usual_duration"] == 120
    assert (told["requested_by"], told["request_reason"]) == ("ada", "a customer waits")


def test_run_whose_begin_is_not_known() -> None:
    """An abandoned run is shown with what is known of it."""
    end_run("job", RunOutcome.ABANDONED, started=None)
    LockRecord.objects.update(started_at=None)
    assert facts()["Last run"].startswith("abandoned, at 2")
    _, row = run("show", "job").split("\n\n")[1].splitlines()
    assert row.split() == ["-", "abandoned", "-", "-"]


def test_job_tells_what_it_is_for() -> None:
    """``show`` prints the description and the runbook of a job."""
    take("job")
    take("unknown")
    wiki = "https://wiki.example.com/job"
    with only_jobs_of():
        job = scheduler_lock("job", description="Ship it", runbook=wiki)(lambda: None)
        shown, other = facts(), facts("unknown")
        told = json.loads(run("show", "job", "--json"))
    assert callable(job)
    assert (shown["About"], shown["Runbook"]) == ("Ship it", wiki)
    assert not {"About", "Runbook"} & set(other)
    assert (told["description"], told["runbook"]) == ("Ship it", wiki)


def test_show_imports_no_job() -> None:
    """``show`` describes a job only if the job's module is imported already."""
    take("packages.nightly")
    with unimported_jobs() as imported:
        assert "About" not in facts("packages.nightly")
        assert imported() == []


def test_heartbeat() -> None:
    """A job that keeps its lock alive shows when it did so last."""
    lock = take("job", lock_at_most_for=10 * MINUTE)
    assert "Heartbeat" not in facts()
    lock.extend()
    LockRecord.objects.update(extended_at=DatabaseNow() - MINUTE)
    LockRecord.objects.update(locked_at=DatabaseNow() - 5 * MINUTE)
    assert re.search(r", 1m(\d+s)? ago$", facts()["Heartbeat"])
    assert json.loads(run("show", "job", "--json"))["heartbeat_at"]
    lock.release()
    assert "Heartbeat" not in facts()


def test_free_lock() -> None:
    """A lock that nobody holds has no end to wait for."""
    take("job").release()
    shown = facts()
    assert shown["State"] == "free"
    assert not {"Until", "Expired at"} & set(shown)


def test_expired_lock_says_what_to_do_first() -> None:
    """What to look at, and the command for after it, which is for this holder only."""
    lock = take("job")
    expire("job")
    shown = run("show", "job")
    assert shown.startswith("WARNING Lock 'job': Its lease ended at ")
    host, pid, _ = lock.locked_by.rsplit(":", 2)
    assert shown.splitlines()[0].endswith(
        f"(fact: abandoned {lock.locked_by}) Look at host {host}: does process {pid} "
        f"still run (ps -p {pid})? If it is gone: python manage.py shedlock release "
        f"job --held-by {lock.locked_by}"
    )
    assert "Expired at" in facts()


def test_paused_lock() -> None:
    """An operator's pause tells who, why and until when."""
    take("job")
    pause = Pause("ada", "the disk is full").identity()
    LockRecord.objects.update(locked_by=pause)
    shown = facts()
    assert (shown["Paused by"], shown["Reason"]) == ("ada", "the disk is full")
    assert "unless it is extended" in shown["Until"]
    LockRecord.objects.update(lock_until=DatabaseNow() + FOREVER)
    assert facts()["Until"] == "it is resumed"


def test_schedule_and_its_ticks() -> None:
    """What the schedule is, which tick began last, and since when the job is late."""
    take("job").release()
    be_overdue("job")
    shown = facts()
    assert {"Schedule", "Last tick", "Next tick"} <= set(shown)
    assert shown["Overdue"].startswith("since 2")


def test_last_runs_are_shown_without_the_name() -> None:
    """The newest five, as in the history."""
    for _ in range(7):
        end_run("job")
    end_run("job", RunOutcome.FAILED, exception_type="a.ValueError")
    add_run("other")
    header, first, *others = run("show", "job").split("\n\n")[1].splitlines()
    assert "NAME" not in header
    assert "failed" in first
    assert len(others) == 4


def test_lock_without_runs() -> None:
    """``show`` says that the history has no run of a lock."""
    pause("job")
    assert run("show", "job").endswith("\n\nThe history has no run of it.\n")


def test_open_run_is_not_denied() -> None:
    """``show`` lists no running run of an expired lock, but names its holder."""
    lock = take("job")
    expire("job")
    shown = run("show", "job")
    assert shown.endswith("\n\nThe history has no run of it.\n")
    assert f"Locked by   {lock.locked_by}\n" in shown


def test_open_run_that_no_other_line_names() -> None:
    """Java's ShedLock has acquired the lock since, so the run holds it no longer."""
    lock = take("job")
    LockRecord.objects.update(locked_by="java")
    assert run("show", "job").endswith(
        "\n\nThe history has no run of it. "
        f"Its run as {lock.locked_by} has not reported its end.\n"
    )


@override_settings(SHEDLOCK_PROVIDERS=IN_MEMORY)
def test_provider_without_history() -> None:
    """``show`` does not mention runs if the provider has no history."""
    pause("job")
    assert "runs" not in run("show", "job")


def act(**columns: Any) -> None:
    defaults = {
        "name": "job",
        "provider": "default",
        "kind": ActionKind.RELEASE,
        "operator": "ada",
        "reason": "the pod is gone",
        "began": DatabaseNow(),
        "ended": DatabaseNow(),
        "result": ActionResult.DONE,
    }
    LockAction.objects.create(**{**defaults, **columns})


def test_what_operators_did() -> None:
    """The newest of their actions on this lock, with reason and result."""
    take("job").release()
    act(reason="an older one")
    act()
    act(name="other", operator="eve")
    header, newest, older = run("show", "job").split("\n\n")[2].splitlines()
    assert header.split() == ["WHEN", "OPERATOR", "ACTION", "RESULT", "REASON"]
    cells = re.split(" {2,}", newest)
    assert cells[1:] == ["ada", "release", "done", "the pod is gone"]
    assert "an older one" in older


def test_show_as_json() -> None:
    """Programs get the lock, its findings with texts, its runs, and the actions."""
    take("job").release()
    raised = {"exception_type": "ValueError", "exception_traceback": "Traceback: here"}
    end_run("job", RunOutcome.FAILED, **raised)
    act()
    shown = json.loads(run("show", "job", "--json"))
    assert (shown["name"], shown["state"]) == ("job", "free")
    [found] = shown["findings"]
    assert (found["kind"], found["lock"]) == ("failed", "job")
    assert found["sentence"].startswith("Its last run failed")
    assert found["command"] == "python manage.py shedlock history job"
    assert shown["runs"][0]["exception_traceback"] == "Traceback: here"
    assert shown["actions"][0]["reason"] == "the pod is gone"


def test_unknown_lock() -> None:
    """A misspelt name is an error with a suggestion."""
    take("billing.send_digest")
    with pytest.raises(CommandError, match="mean 'billing.send_digest'?"):
        run("show", "biling.send_digest")


def test_nearest_is_found_among_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are more locks than one reads, the beginning of the name helps."""
    monkeypatch.setattr(base, "COMPARED_NAMES_LIMIT", 2)
    for number in range(5):
        take(f"a{number}")
    take("nightly")
    with pytest.raises(CommandError, match="mean 'nightly'?"):
        run("show", "nigthly")
    with pytest.raises(CommandError, match="no lock 'xightly'. `python manage.py sh"):
        run("show", "xightly")  # not every name is read for it
