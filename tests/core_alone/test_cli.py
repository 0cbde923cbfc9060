"""The command ``shedlock`` in a project without the console and the beat."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.apps import apps
from django.core.management import CommandError

from django_shedlock import execute, scheduler_lock
from django_shedlock.cli.command import subcommands
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.sql.fields import DatabaseNow
from django_shedlock.testing import is_held
from tests.support.commands import run
from tests.support.locks import take

pytestmark = pytest.mark.django_db(transaction=True)

OF_CORE = ["extend", "history", "list", "prune", "release", "run", "show", "trigger"]


def test_project_has_one_app_of_ours() -> None:
    """These tests run in a project that has neither the console nor the beat."""
    [ours] = [app for app in apps.get_app_configs() if "shedlock" in app.name]
    assert ours.name == "django_shedlock"
    tables = [model._meta.db_table for model in ours.get_models()]
    assert tables == ["shedlock", "shedlock_run"]


def test_subcommands_are_those_of_the_core() -> None:
    """Findings, pauses and starts come with the other apps."""
    assert sorted(subcommands()) == OF_CORE
    for name in ("check", "pause", "beat"):
        with pytest.raises(CommandError, match="invalid choice"):
            run(name)


def test_list_and_show() -> None:
    """They show the state and the holder, as text and as JSON."""
    lock = take("nightly")
    assert "nightly" in run("list")
    assert lock.locked_by in run("show", "nightly")
    [shown] = json.loads(run("list", "--json"))
    assert (shown["name"], shown["state"]) == ("nightly", "running")
    assert "findings" not in shown
    assert json.loads(run("show", "nightly", "--json"))["runs"] == []
    with pytest.raises(CommandError, match="There is no lock 'nigthly'. Did you mean"):
        run("list", "nigthly")


def test_history() -> None:
    """It shows the last runs."""
    execute(list, "nightly", lock_at_most_for="1m")
    assert "succeeded" in run("history", "nightly")


def test_release_of_a_running_job_needs_force() -> None:
    """Without it the error says what it means, and the status is 3."""
    lock = take("nightly")
    with pytest.raises(CommandError, match="its job is running as") as refused:
        run("release", "nightly")
    assert refused.value.returncode == 3
    assert is_held("nightly")
    told = run("release", "nightly", "--force", "--reason", "its host is gone")
    assert f"is released. {lock.locked_by} held it" in told
    assert "may still run" in told
    assert not is_held("nightly")
    assert LockRun.objects.get().outcome == "abandoned"


def test_release_of_a_kept_lock_needs_no_force() -> None:
    """A lock that lock_at_least_for keeps belongs to nobody."""
    execute(list, "kept", lock_at_most_for="5m", lock_at_least_for="5m")
    assert "is released" in run("release", "kept")
    with pytest.raises(CommandError, match="nobody holds it") as refused:
        run("release", "kept")
    assert refused.value.returncode == 5


def test_extend() -> None:
    """A held lock is extended from now, and a free one is refused."""
    lock = take("nightly")
    assert "is held for 2h more at the most" in run("extend", "nightly", "2h")
    assert "was longer than that already" in run("extend", "nightly", "1m")
    lock.refresh()
    assert lock.remaining() > timedelta(hours=1)
    lock.release()
    with pytest.raises(CommandError, match="nobody holds it") as refused:
        run("extend", "nightly", "2h")
    assert refused.value.returncode == 5


def test_trigger() -> None:
    """A job runs by the name of its lock; a running one is not started."""
    ran = []

    @scheduler_lock("report")
    def report() -> None:
        ran.append(1)

    assert "has run" in run("trigger", "report", "--reason", "the mail was lost")
    assert ran == [1]
    assert LockRun.objects.get().reason == "the mail was lost"
    take("report")
    with pytest.raises(CommandError, match="its job is running as") as refused:
        run("trigger", "report")
    assert refused.value.returncode == 3
    with pytest.raises(CommandError, match="No job with a lock 'nothing' is known"):
        run("trigger", "nothing")


def test_trigger_of_a_job_that_exits() -> None:
    """Its own status is not taken for one of the lock, and 0 is a success."""
    statuses = iter([3, 0])

    @scheduler_lock("report")
    def report() -> None:
        raise SystemExit(next(statuses))

    with pytest.raises(CommandError, match="job of lock 'report' failed") as failed:
        run("trigger", "report")
    assert failed.value.returncode == 1
    assert "has run" in run("trigger", "report")


def test_prune() -> None:
    """Old runs and records of unused locks are deleted."""
    execute(list, "old", lock_at_most_for="1m")
    LockRun.objects.update(ended=DatabaseNow() - timedelta(days=40))
    LockRecord.objects.update(
        lock_until=DatabaseNow() - timedelta(days=40),
        released_at=DatabaseNow() - timedelta(days=40),
    )
    told = run("prune", "--unused-for", "30d")
    assert "Deleted runs: 1." in told
    assert "Deleted records of unused locks: 1." in told
    assert "actions" not in told
