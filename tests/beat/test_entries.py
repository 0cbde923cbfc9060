"""``SHEDLOCK_SCHEDULE``: each entry is a job like any other."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import override_settings

from django_shedlock import Schedule, scheduler_lock
from django_shedlock.beat import entries
from django_shedlock.beat.entries import schedule_jobs
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.processes.child import Child
from django_shedlock.providers import get_provider
from django_shedlock.registry.discovery import named_jobs
from django_shedlock.registry.jobs import Job
from django_shedlock.registry.requests import jobs_by_name
from django_shedlock.schedules.state import Trigger
from django_shedlock.testing import held_elsewhere
from tests.support.clocks import store_clock
from tests.support.commands import run
from tests.support.crontabs import command
from tests.support.entries import TASKS, Tidy, calls
from tests.support.jobs import DAILY, make_late, only_jobs_of
from tests.support.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

HERE = "tests.support.entries"
DAY = {"schedule": DAILY["schedule"]}
"""A schedule without a tick while the tests run."""


@pytest.fixture(autouse=True)
def project() -> Iterator[None]:
    """Let there be no other jobs, a command, and no notes of earlier tests."""
    calls.clear()
    entries._reported.clear()
    with only_jobs_of(HERE), command("tidy", Tidy()):
        yield


@contextmanager
def schedule(**given: Any) -> Iterator[None]:
    with override_settings(SHEDLOCK_SCHEDULE=given):
        yield


def job_of(**given: Any) -> Job:
    """Return the job of the one entry of the setting."""
    with schedule(entry={**DAY, **given}):
        [job] = schedule_jobs()
    return job


def test_call_gets_its_arguments() -> None:
    """An entry calls its function with its arguments, under the lock of its key."""
    job = job_of(call=f"{HERE}.charge", args=["EUR"], kwargs={"limit": 5})
    assert job.start()
    assert calls == [("EUR", 5, "entry")]


def test_coroutine_function_is_run() -> None:
    """A coroutine function is awaited under its lock."""
    assert job_of(call=f"{HERE}.poll").start()
    assert calls == [("polled", "entry")]


def test_method_of_a_class_is_called() -> None:
    """The path may lead into a class or an object, as that of a task's delay()."""
    assert job_of(call=f"{HERE}.Shop.tidy").start()
    assert calls == [("tidied", "Shop")]


def test_command_gets_its_command_line() -> None:
    """args are the command line, and kwargs options as call_command() has them."""
    job = job_of(command="tidy", args=["attic", "--days", 3], kwargs={"verbosity": 0})
    assert job.start()
    assert calls == [("attic", 3, 0, "entry")]


def test_checking_a_command_does_not_run_it() -> None:
    """Checking a command parses its arguments, but does not run its body."""
    job_of(command="tidy", args=["attic"], kwargs={"days": 3})
    assert calls == []


def test_lock_of_another_skips_the_entry() -> None:
    """The key is the lock's name, with the namespace."""
    with override_settings(SHEDLOCK_NAMESPACE="shop"):
        job = job_of(call=f"{HERE}.poll")
        assert job.full_name == "shop.entry"
        with held_elsewhere("entry"):
            assert not job.start()
        assert job.start()


def test_each_option_has_its_place() -> None:
    """Options of the lock and of the job are stored on the job."""
    options = {
        "lock_at_most_for": "10m",
        "lock_at_least_for": "1m",
        "keep_alive": True,
        "wait": "5s",
        "history": False,
        "description": "Polls",
        "runbook": "https://wiki.example.com/poll",
        "on_skip": "fail",
        "rerun": True,
        "time_limit": "30m",
    }
    job = job_of(call=f"{HERE}.poll", **options)
    request = job.request
    assert request.lock_at_most_for == timedelta(minutes=10)
    assert request.lock_at_least_for == timedelta(minutes=1)
    assert (request.keep_alive, request.history) == (True, False)
    assert request.wait == timedelta(seconds=5)
    assert (job.description, job.runbook) == (
        "Polls",
        "https://wiki.example.com/poll",
    )
    assert (job.on_skip, job.rerun) == ("fail", True)
    assert job.time_limit == timedelta(minutes=30)


def test_options_that_are_left_out() -> None:
    """Durations come from the settings, and nothing is repeated or ended."""
    with override_settings(SHEDLOCK_DEFAULT_LOCK_AT_MOST_FOR="7m"):
        job = job_of(call=f"{HERE}.poll")
        configuration = job.request.configuration()
    assert configuration.lock_at_most_for == timedelta(minutes=7)
    assert (job.rerun, job.time_limit, job.on_skip) == (False, None, "skip")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"call": f"{HERE}.charge", "args": ["EUR"]}, "Charge customers."),
        ({"call": f"{HERE}.Shop.tidy"}, ""),
        ({"command": "tidy", "args": ["attic"]}, "Tidies the shop."),
        ({"task": f"{HERE}.send", "args": ["gold"]}, "Send the digest."),
    ],
)
def test_description_is_that_of_the_target(given: Any, text: str) -> None:
    """By default it is the first paragraph of a docstring, or a command's help."""
    assert job_of(**given).description == text


def test_several_expressions_are_a_union() -> None:
    """The ticks are those of all expressions, in the time zone of the entry."""
    given = {"schedule": ["15 6 * * *", "0 10 * * *"], "time_zone": "Europe/Berlin"}
    job = job_of(call=f"{HERE}.poll", **given)
    assert job.schedule == Schedule(["15 6 * * *", "0 10 * * *"], "Europe/Berlin")


@pytest.mark.parametrize("interval", ["every 20s", timedelta(seconds=20)])
def test_interval(interval: Any) -> None:
    """An interval is a text or a timedelta, alone or in a list, as at the decorator."""
    job = job_of(call=f"{HERE}.poll", schedule=interval, time_zone="Asia/Tokyo")
    assert job.schedule == Schedule("every 20s")
    assert job.schedule.interval == timedelta(seconds=20)
    job = job_of(call=f"{HERE}.poll", schedule=[interval, "0 6 * * *"])
    assert job.schedule == Schedule(["0 6 * * *", "every 20s"], settings.TIME_ZONE)


def test_tick_of_an_interval_runs_once() -> None:
    """Only one of several starts within one tick of an interval runs."""
    job = job_of(call=f"{HERE}.poll", schedule=timedelta(hours=20))
    with store_clock(datetime(2026, 6, 1, 6, tzinfo=UTC)):
        assert job.start()
        assert not job.start()
    assert calls == [("polled", "entry")]


def test_schedule_of_the_class() -> None:
    """A Schedule brings its own time zone."""
    daily = Schedule("@daily", "Asia/Tokyo")
    assert job_of(call=f"{HERE}.poll", schedule=daily).schedule == daily


def test_default_time_zone_is_that_of_the_settings() -> None:
    """Without time_zone the ticks count in TIME_ZONE, as those of the decorator."""
    with override_settings(TIME_ZONE="Asia/Tokyo"):
        found = job_of(call=f"{HERE}.poll").schedule
    assert found is not None
    assert found.time_zone == "Asia/Tokyo"


def test_entry_belongs_to_its_provider() -> None:
    """What looks for the jobs of a provider finds the entries that name it."""
    given = {**DAY, "call": f"{HERE}.poll"}
    memory = {"BACKEND": "django_shedlock.providers.memory.MemoryLockProvider"}
    providers = {"default": memory, "other": memory}
    with override_settings(SHEDLOCK_PROVIDERS=providers):
        with schedule(poll=given, fetch={**given, "provider": "other"}):
            assert {*jobs_by_name(get_provider())} & {"poll", "fetch"} == {"poll"}
            assert {*jobs_by_name(get_provider("other"))} == {"fetch"}


def test_operators_know_the_entry() -> None:
    """
    Operators can trigger, show, list, and catch up an entry.

    The history records the runs.
    """
    with schedule(poll={**DAY, "call": f"{HERE}.poll"}):
        run("trigger", "poll", "--reason", "Test")
        assert calls == [("polled", "poll")]
        assert "poll" in run("list")
        assert "succeeded" in run("history", "poll")
        assert "Schedule" in run("show", "poll")
        make_late("poll")
        run("catch-up")
    triggers = LockRun.objects.order_by("id").values_list("trigger", flat=True)
    assert [*triggers] == [Trigger.OPERATOR, Trigger.CATCH_UP]
    assert len(calls) == 2


def test_forked_child_runs_the_entry(tmp_path: Path) -> None:
    """An entry's body may run in a forked process, as it does under the beat."""
    file = tmp_path / "touched"
    job = job_of(call="pathlib.Path.touch", args=[file])
    child = Child.of_body(job.full_name, job.start)
    wait_for(lambda: not child.is_running())
    assert file.exists()
    assert LockRecord.objects.get(name="entry").outcome == "succeeded"


# Targets with locks of their own


def test_decorated_function_of_the_same_name_is_one_lock() -> None:
    """The body goes into the lock of its entry, whose options count."""
    given = {
        "entries.locked": {**DAY, "call": f"{HERE}.locked", "lock_at_most_for": "9m"}
    }
    with schedule(**given):
        [job] = schedule_jobs()
        assert job.start()
    assert calls == [("EUR", "entries.locked")]
    record = LockRecord.objects.get()
    assert record.schedule.startswith(DAILY["schedule"])


def test_decorated_function_of_another_name_has_two_locks() -> None:
    """A decorated function runs under its own lock and its entry's lock."""
    assert job_of(call=f"{HERE}.locked").start()
    assert calls == [("EUR", "entries.locked", "entry")]


def test_name_that_the_arguments_make() -> None:
    """An entry may have the name that its arguments make of the decorator's."""
    given = {"call": f"{HERE}.report", "args": ["acme"]}
    with schedule(**{"entries.report:acme": {**DAY, **given}}):
        [job] = schedule_jobs()
        assert job.start()
    assert calls == [("acme", "entries.report:acme")]
    assert LockRecord.objects.count() == 1


@pytest.mark.parametrize("name", ["nightly", "clearsessions"])
def test_command_of_the_setting(name: str) -> None:
    """A command of SHEDLOCK_COMMANDS has one lock, or its own beside the entry's."""
    locked = {"clearsessions": {"lock_at_most_for": "9m"}}
    with override_settings(SHEDLOCK_COMMANDS=locked):
        with schedule(**{name: {**DAY, "command": "clearsessions"}}):
            [job] = schedule_jobs()
            assert job.start()
    names = LockRecord.objects.values_list("name", flat=True)
    assert {*names} == {name, "clearsessions"}


def test_decorated_command_is_skipped_with_its_entry() -> None:
    """The start of an entry answers for the lock of the entry."""
    decorated = scheduler_lock("tidy.decorated")(type("Decorated", (Tidy,), {}))
    with command("decorated", decorated()):
        job = job_of(command="decorated", args=["attic"])
        with held_elsewhere("entry"):
            assert not job.start()
        assert job.start()
    assert calls == [("attic", 1, 1, "tidy.decorated")]


# Tasks of django.tasks


def backend(name: str) -> dict[str, Any]:
    return {"default": {"BACKEND": f"{TASKS}.backends.{name}"}}


@pytest.mark.parametrize("task", ["send", "asend"])
def test_task_is_enqueued_once_a_tick(task: str) -> None:
    """
    Two starts for the same tick enqueue a task once.

    The run ends when the task is enqueued.
    """
    with override_settings(TASKS=backend("dummy.DummyBackend")):
        job = job_of(task=f"{HERE}.{task}", args=["gold"])
        assert job.start()
        assert not job.start()
        waiting = importlib.import_module(TASKS).default_task_backend.results
        assert [(each.args, each.status) for each in waiting] == [(["gold"], "READY")]
    assert calls == []
    assert LockRecord.objects.get().outcome == "succeeded"


@pytest.mark.parametrize(("task", "last"), [("send", 3), ("asend", 1)])
def test_immediate_task_runs_within_the_lock(task: str, last: int) -> None:
    """A backend that runs tasks at once does so before the lock is released."""
    with override_settings(TASKS=backend("immediate.ImmediateBackend")):
        assert job_of(task=f"{HERE}.{task}", args=["gold"]).start()
    assert calls == [("sent", "gold", last)]


# Wrong entries


WRONG: dict[str, Any] = {
    "no dict": ["shop.jobs.tidy"],
    "no schedule": {"call": f"{HERE}.poll"},
    "two targets": {**DAY, "call": f"{HERE}.poll", "command": "tidy"},
    "no target": DAY,
    "no such path": {**DAY, "call": f"{HERE}.pol"},
    "broken module": {**DAY, "call": "tests.apps.broken.jobs.job"},
    "script": {**DAY, "call": "script_of_an_entry.job"},
    "unknown option": {**DAY, "call": f"{HERE}.poll", "shedule": "@daily"},
    "durations": {**DAY, "call": f"{HERE}.poll", "lock_at_least_for": "2h"},
    "no such provider": {**DAY, "call": f"{HERE}.poll", "provider": "no"},
    "arguments": {**DAY, "call": f"{HERE}.charge"},
}


def test_wrong_entries_stop_no_other(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are started, and each wrong one is logged once in a process."""
    (tmp_path / "script_of_an_entry.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(tmp_path)
    sound = {"call": f"{HERE}.poll", **DAY}
    given = {"first": sound, **WRONG, " blank ": sound, 7: sound, "last": sound}
    with override_settings(SHEDLOCK_SCHEDULE=given), caplog.at_level(logging.WARNING):
        assert [job.name for job in schedule_jobs()] == ["first", "last"]
        names = [job.name for job in named_jobs("default")]
    assert {"first", "last"} <= {*names}
    assert len(caplog.records) == len(given) - 2
    for name, record in zip([*WRONG, " blank ", 7], caplog.records, strict=True):
        assert record.levelname == "WARNING"
        assert record.message.startswith(
            f"SHEDLOCK_SCHEDULE[{name!r}] can't run, so it is left out: "
        )
