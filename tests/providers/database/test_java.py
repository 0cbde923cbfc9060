"""A table that is shared with ShedLock, which knows four of its columns."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import IntegrityError, connection, transaction

from django_shedlock.console.monitoring.search import Search
from django_shedlock.locks.configuration import LockConfiguration
from django_shedlock.locks.status import LockHolder, LockState
from django_shedlock.models import LockRecord
from django_shedlock.models.records import has_open_run, held, not_in_use
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import Start, Trigger
from django_shedlock.sql.fields import DatabaseNow
from tests.support.locks import (
    MINUTE,
    configure,
    expire,
    force_release,
    pause,
    status_of,
    take,
    try_from,
)
from tests.support.waiting import wait_for

pytestmark = pytest.mark.django_db

LEAP_DAYS = Schedule("0 0 29 2 *", "UTC")


@pytest.fixture
def provider() -> DatabaseLockProvider:
    return DatabaseLockProvider("default")


def java(statement: str) -> int:
    """Execute a statement of ShedLock's, by the database's clock."""
    now = {
        "sqlite": "STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW') || '000'",
        "postgresql": "CLOCK_TIMESTAMP()",
        "mysql": "UTC_TIMESTAMP(6)",
    }[connection.vendor]
    later = {
        "sqlite": "STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW', '+1 minute') || '000'",
        "postgresql": "CLOCK_TIMESTAMP() + INTERVAL '1 minute'",
        "mysql": "UTC_TIMESTAMP(6) + INTERVAL 1 MINUTE",
    }[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(statement.format(now=now, later=later))
        return int(cursor.rowcount)


def java_acquires() -> None:
    """Do what ShedLock does: update the record, or else insert it."""
    columns = "lock_until = {later}, locked_at = {now}, locked_by = 'java'"
    condition = "name = 'job' AND lock_until <= {now}"
    assert java(f"UPDATE shedlock SET {columns} WHERE {condition}") or java(
        "INSERT INTO shedlock (name, lock_until, locked_at, locked_by) "
        "VALUES ('job', {later}, {now}, 'java')"
    )


def java_releases() -> None:
    assert java("UPDATE shedlock SET lock_until = {now} WHERE name = 'job'")


def state(provider: DatabaseLockProvider) -> LockState:
    status = status_of(provider, "job")
    return status.state


@pytest.mark.parametrize("before", ["nothing", "released", "expired", "registered"])
class TestRecordOfShedLock:
    """What Java acquires and releases, whatever was done to the record before."""

    @pytest.fixture(autouse=True)
    def begin(self, provider: DatabaseLockProvider, before: str) -> None:
        """Let Java acquire the lock."""
        if before == "registered":
            provider.register("job", LEAP_DAYS)
        elif before != "nothing":
            lock = take(configure(), provider)
            expire("job") if before == "expired" else lock.release()
        # SQLite's clock has milliseconds: Java comes later.
        LockRecord.objects.exclude(released_at=None).update(
            locked_at=DatabaseNow() - 2 * MINUTE, released_at=DatabaseNow() - MINUTE
        )
        java_acquires()

    def test_it_is_running_while_java_holds_it(
        self, provider: DatabaseLockProvider
    ) -> None:
        """A lock that Java holds is running, and refuses even an operator's start."""
        forced = LockConfiguration(
            "job", MINUTE, schedule=LEAP_DAYS, start=Start(Trigger.OPERATOR)
        )
        for configuration in (LockConfiguration("job", MINUTE), forced):
            holder = try_from(provider, configuration)
            assert isinstance(holder, LockHolder)
            assert holder.locked_by == "java"
            assert timedelta(0) < holder.remaining <= MINUTE
        assert state(provider) is LockState.RUNNING
        assert not LockRecord.objects.filter(not_in_use()).exists()

    def test_it_is_as_before_when_java_has_released_it(
        self, provider: DatabaseLockProvider, before: str
    ) -> None:
        """After Java's release, only an open run of our own is still a finding."""
        was_expired = before == "expired"
        java_releases()
        assert state(provider) is (LockState.EXPIRED if was_expired else LockState.FREE)
        kinds = [found.kind.value for found in Search(MINUTE).findings(provider)]
        assert kinds == ["expired"] * was_expired
        unfree = LockRecord.objects.filter(held() | has_open_run())
        assert unfree.exists() is was_expired
        assert force_release(provider, "job") is was_expired
        assert state(provider) is LockState.FREE
        assert LockRecord.objects.get().failures == was_expired

    def test_its_run_is_not_accounted_for(
        self, provider: DatabaseLockProvider, before: str
    ) -> None:
        """Our next acquisition counts our own dead run once, and no run of Java."""
        former = LockRecord.objects.get()
        java_releases()
        for turn in range(2):
            lock = take(configure(), provider)
            record = LockRecord.objects.get()
            assert record.open_run == lock.locked_by
            is_first = turn == 0
            assert (lock.abandoned is not None) is (before == "expired" and is_first)
            if before == "expired" and is_first:
                assert record.last_run == former.open_run
                assert (record.outcome, record.failures) == ("abandoned", 1)
                assert record.started_at is None  # Java has overwritten it
                assert lock.abandoned is not None
                assert lock.abandoned.started_at is None
            assert lock.release()
        assert LockRecord.objects.get().failures == 0

    def test_loss_to_java_is_a_loss(self, provider: DatabaseLockProvider) -> None:
        """A job that runs on while Java has its lock is lost; Java keeps the lock."""
        java_releases()
        lock = take(configure(), provider)
        expire("job")
        java_acquires()
        assert not lock.release()
        record = LockRecord.objects.get()
        assert (record.locked_by, record.open_run) == ("java", None)
        assert (record.last_run, record.outcome) == (lock.locked_by, "lost")
        assert (record.lost_run, record.started_at) == (lock.locked_by, None)
        assert record.ended_at is not None
        assert state(provider) is LockState.RUNNING

    def test_what_comes_next_is_told_by_its_own_state(
        self, provider: DatabaseLockProvider, before: str
    ) -> None:
        """A catch-up may follow Java, and nothing but a release frees its lock."""
        java_releases()
        if before == "expired":  # our own run may still go on
            assert force_release(provider, "job")
        long_ago = DatabaseNow() - timedelta(days=4000)
        LockRecord.objects.update(due_at=long_ago, tick=None)
        start = Start(Trigger.CATCH_UP)
        caught_up = LockConfiguration("job", MINUTE, schedule=LEAP_DAYS, start=start)
        lock = take(caught_up, provider)
        assert state(provider) is LockState.RUNNING
        expire("job")
        assert state(provider) is LockState.EXPIRED
        assert provider.release(lock)
        assert state(provider) is LockState.FREE

    def test_operator_releases_a_lock_of_java(
        self, provider: DatabaseLockProvider
    ) -> None:
        """With force, as any running lock."""
        assert force_release(provider, "job")
        assert state(provider) is LockState.FREE


def test_host_of_java_that_looks_like_one_of_ours(
    provider: DatabaseLockProvider,
) -> None:
    """What opens a run is a column of ours, and not what locked_by looks like."""
    java_acquires()
    LockRecord.objects.update(locked_by="web-1:7:ours", lock_until=DatabaseNow())
    assert state(provider) is LockState.FREE
    lock = take(configure(), provider)
    assert lock.abandoned is None
    record = LockRecord.objects.get()
    assert (record.outcome, record.failures) == (None, 0)


def test_java_does_not_acquire_a_paused_lock(provider: DatabaseLockProvider) -> None:
    """
    Java does not acquire a paused lock.

    Its UPDATE matches no expired lease, and its INSERT finds the record.
    """
    pause("job", provider)
    with pytest.raises(IntegrityError), transaction.atomic():
        java_acquires()
    assert state(provider) is LockState.PAUSED
    assert force_release(provider, "job")
    released = LockRecord.objects.get().released_at
    assert wait_for(lambda: provider.now() > released)  # SQLite has milliseconds
    java_acquires()
    assert state(provider) is LockState.RUNNING
