"""Runs that an operator's action accounts for: the history says what became of them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import override_settings

from django_shedlock import hold
from django_shedlock.clocks import aware
from django_shedlock.console.operators import (
    AuditedAction,
    ExtendLease,
    PauseJob,
    ReleaseLock,
    ResumeJob,
)
from django_shedlock.locks.status import LockState, RunOutcome
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider
from django_shedlock.sql.fields import DatabaseNow
from tests.support.locks import expire, pause, state, status_of, take

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
JAVA = "java-host"


def action() -> AuditedAction:
    return AuditedAction(get_provider(), "job", operator="ada", reason="it is dead")


def release() -> bool:
    return bool(ReleaseLock().carry_out(action()))


def abandoned() -> list[str]:
    """Return who is in the history with an abandoned run, each with its instants."""
    rows = LockRun.objects.filter(outcome=RunOutcome.ABANDONED)
    job = status_of(get_provider(), "job").job
    for row in rows:
        assert (row.locked_by, row.outcome) == (job.last_run, job.outcome)
        assert row.started == job.started_at
        assert job.ended_at is not None
        assert abs(aware(row.ended) - aware(job.ended_at)) < MINUTE
        assert (row.trigger, row.operator, row.reason) == ("", "", "")
    return [row.locked_by for row in rows]


def acquire_by_java() -> None:
    """Let ShedLock have acquired the lock after a run that is still open."""
    held = {"lock_until": DatabaseNow() + HOUR, "locked_by": JAVA}
    LockRecord.objects.update(**held, locked_at=DatabaseNow())


@pytest.mark.parametrize("is_expired", [False, True])
def test_forced_release_writes_the_run(*, is_expired: bool) -> None:
    """Whether its lease went on or was over, with its start and its end."""
    lock = take("job")
    if is_expired:
        expire("job")
    assert release()
    assert abandoned() == [lock.locked_by]
    assert state("job") is LockState.FREE


def test_end_of_an_expired_run_is_that_of_its_lease() -> None:
    """Nobody knows for how long it ran after that."""
    take("job")
    over = {"lock_until": DatabaseNow() - HOUR, "locked_at": DatabaseNow() - 2 * HOUR}
    LockRecord.objects.update(**over)
    assert release()
    row, record = LockRun.objects.get(), LockRecord.objects.get()
    assert row.ended == record.ended_at
    assert abs(row.ended - row.started - HOUR) < timedelta(seconds=1)


def test_body_that_goes_on_has_its_own_word() -> None:
    """When it ends, its row says that it lost its lock, and how it ended."""
    with hold("job", lock_at_most_for="1h") as lock:
        assert release()
        assert abandoned() == [lock.locked_by]
    row = LockRun.objects.get()
    assert (row.locked_by, row.outcome) == (lock.locked_by, RunOutcome.LOST)
    assert row.duration is not None


def test_start_of_a_run_before_another_service_is_not_known() -> None:
    """ShedLock has acquired the lock since, and keeps no account of our runs."""
    lock = take("job")
    acquire_by_java()
    assert release()
    assert abandoned() == [lock.locked_by]
    assert LockRun.objects.get().started is None


def test_lock_that_is_kept_has_no_open_run() -> None:
    """
    A lock that ``lock_at_least_for`` keeps has no open run.

    The run itself has recorded the release of the lock.
    """
    with hold("job", lock_at_least_for="1h"):
        pass
    assert ReleaseLock(spare_running=True).carry_out(action())
    assert LockRun.objects.get().outcome == RunOutcome.SUCCEEDED


@pytest.mark.parametrize("by", ["an acquisition", "a replaced pause"])
def test_pause_writes_the_run_that_had_expired(by: str) -> None:
    """A pause records an expired run as abandoned, and opens no run of its own."""
    lock = take("job")
    expire("job")
    if by == "a replaced pause":
        # A pause of an older version, or by hand, leaves a run open.
        held = {"lock_until": DatabaseNow() + HOUR, "locked_at": DatabaseNow()}
        identity = pause("other").locked_by
        LockRecord.objects.filter(name="job").update(**held, locked_by=identity)
    assert PauseJob(lasting=HOUR).carry_out(action())
    assert abandoned() == [lock.locked_by]
    assert status_of(get_provider(), "job").job.open_run is None
    expire("job")
    assert state("job") is LockState.FREE


def test_pause_and_resume_are_no_runs() -> None:
    """A pause and a resume leave nothing in the history of a job that did not run."""
    take("job").release()
    LockRun.objects.all().delete()
    assert PauseJob().carry_out(action())
    assert ResumeJob().carry_out(action())
    assert not LockRun.objects.exists()
    assert status_of(get_provider(), "job").job.failures == 0


def test_extension_accounts_for_nothing() -> None:
    """The run goes on."""
    lock = take("job")
    assert ExtendLease(lock_at_most_for=HOUR).carry_out(action())
    assert not LockRun.objects.exists()
    assert status_of(get_provider(), "job").job.open_run == lock.locked_by


@pytest.mark.parametrize("by", ["a release", "a pause"])
def test_history_that_is_off_has_no_row(by: str) -> None:
    """The record knows it all the same."""
    take("job")
    expire("job")
    with override_settings(SHEDLOCK_HISTORY=False):
        assert release() if by == "a release" else PauseJob().carry_out(action())
    assert not LockRun.objects.exists()
    job = status_of(get_provider(), "job").job
    assert (job.outcome, job.failures) == (RunOutcome.ABANDONED, 1)
