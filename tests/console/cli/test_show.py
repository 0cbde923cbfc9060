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
from django_shedlock.sql.fields import DatabaseNow
from tests.support.commands import run
from tests.support.jobs import only_jobs_of, unimported_jobs
from tests.support.lateness import be_overdue
from tests.support.locks import MINUTE, add_run, end_run, expire, take

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
    """And where it is written what to do if it fails."""
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
    """It describes a job only if its module is imported already."""
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
    """The finding is on top, with the command that helps."""
    take("job")
    expire("job")
    shown = run("show", "job")
    assert shown.startswith("WARNING Lock 'job': Its lease ended at ")
    assert shown.splitlines()[0].endswith(
        "Next: python manage.py shedlock release job --force"
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
    """It is said that there are none."""
    take("job")
    assert run("show", "job").endswith("\n\nNo runs yet.\n")


@override_settings(SHEDLOCK_PROVIDERS=IN_MEMORY)
def test_provider_without_history() -> None:
    """Of a lock in memory there are no runs to tell of."""
    take("job")
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
