"""``manage.py shedlock trigger``: a job runs now."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.management import CommandError
from django.test import override_settings

from django_shedlock import scheduler_lock
from django_shedlock.locks.states import LockState
from django_shedlock.models import LockRecord
from django_shedlock.providers import get_provider
from django_shedlock.test import held_elsewhere
from django_shedlock.test.contract.harness import status_of
from tests.support.commands import run
from tests.support.jobs import DAILY, Jobs, ran, scheduled_jobs

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def jobs() -> Iterator[Jobs]:
    with scheduled_jobs() as made:
        yield made


def test_job_runs_though_its_tick_is_done(jobs: Jobs) -> None:
    """An operator need not wait for the next tick."""
    jobs.report()
    jobs.report()
    assert ran == ["report"]
    assert "The job of lock 'report' has run, for " in run("trigger", "report")
    assert ran == ["report", "report"]


def test_job_runs_though_its_lock_is_kept(jobs: Jobs) -> None:
    """``lock_at_least_for`` is not in the way when a job must run now."""
    jobs.tidy()
    jobs.tidy()
    assert ran == ["tidy"]
    run("trigger", "tidy")
    assert ran == ["tidy", "tidy"]


def test_next_tick_is_still_run() -> None:
    """A run by hand is not that of the tick to come."""
    run("trigger", "report")
    tick = LockRecord.objects.get().tick
    run("trigger", "report")
    assert LockRecord.objects.get().tick == tick


def test_tick_that_follows_is_not_kept_away() -> None:
    """``lock_at_least_for`` does not outlive a run by hand of a job with a schedule."""
    job = scheduler_lock("kept", lock_at_least_for="1m", **DAILY)(lambda: None)
    run("trigger", "kept")
    assert status_of(get_provider(), "kept").state is LockState.FREE
    assert job is not None


@pytest.mark.parametrize("name", ["digest now", "fetch"])
def test_command_and_coroutine(name: str) -> None:
    """Management commands and coroutine functions are started, too."""
    run("trigger", name)
    assert ran == [name]


def test_running_job_is_not_started_again() -> None:
    """A job never runs twice at a time: exit status 3."""
    with held_elsewhere("report"):
        with pytest.raises(CommandError, match="its job is running as") as refusal:
            run("trigger", "report")
    assert refusal.value.returncode == 3
    assert ran == []


def test_force_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The log says who ran a job out of turn, and why."""
    run("trigger", "report", "--reason", "the mail of 8:00 was lost")
    assert (
        "wants its job to run now, because: 'the mail of 8:00 was lost'." in caplog.text
    )
    assert "by force, whatever its tick and lock_at_least_for" in caplog.text
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_force_without_a_reason_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The log says that none was given."""
    run("trigger", "report")
    assert "wants its job to run now, without a reason." in caplog.text


def test_failure_is_raised() -> None:
    """What the job raises is what the operator sees."""
    with pytest.raises(ZeroDivisionError):
        run("trigger", "failing")


def test_unknown_job() -> None:
    """A name that no job has is refused, and those that there are are told."""
    with pytest.raises(CommandError, match="No job with a lock 'typo'") as refusal:
        run("trigger", "typo")
    with pytest.raises(CommandError, match="Did you mean 'report'?"):
        run("trigger", "reprot")
    assert refusal.value.returncode == 4
    assert "There are 'digest now', 'failing', 'fetch', 'remind', " in str(
        refusal.value
    )


def test_job_that_needs_arguments() -> None:
    """A job can't be started without the arguments that it needs."""
    with pytest.raises(CommandError, match="needs arguments") as refusal:
        run("trigger", "remind")
    assert refusal.value.returncode == 4
    assert ran == []


@override_settings(SHEDLOCK_NAMESPACE="shop")
def test_name_with_and_without_namespace() -> None:
    """A job is found by the name in its code, and by that in the table."""
    run("trigger", "report")
    run("trigger", "shop.report")
    assert ran == ["report", "report"]
    assert LockRecord.objects.get().name == "shop.report"
