"""Statements that wait for, or lose against, a transaction that has the row."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from django.db import connection, transaction

from django_shedlock.locks.lock import Lock
from django_shedlock.models import LockRecord
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.sql.fields import DatabaseNow
from tests.support.locks import MINUTE, configure, status_of, take, try_from
from tests.support.processes import Parent, Worker, worker
from tests.support.sessions import (
    read_clock,
    session_number,
    wait_until_blocked,
)

pytestmark = [pytest.mark.servers_only, pytest.mark.django_db(transaction=True)]

# Of these, each lets PostgreSQL refuse an UPDATE whose row was changed meanwhile.
FAILING_LEVELS = ("repeatable read", "serializable")


@pytest.fixture
def known_lock() -> None:
    provider = DatabaseLockProvider("default")
    assert provider.release(take(configure(), provider))


def take_when_told(parent: Parent, isolation: str | None = None) -> str:
    """Try once to take the lock; return who holds it then."""
    if isolation:
        with connection.cursor() as cursor:
            cursor.execute(f"SET default_transaction_isolation = '{isolation}'")
    number = session_number()
    parent.wait()
    parent.say(number)
    lock = try_from(DatabaseLockProvider("default"), configure())
    return "the worker" if isinstance(lock, Lock) else lock.locked_by


def block(process: Worker) -> None:
    """Let the process try, and wait until it waits for this transaction."""
    process.send()
    wait_until_blocked(process.heard())


def keep_row() -> None:
    """Keep everybody from the row until the transaction ends."""
    assert LockRecord.objects.select_for_update().get().name == "job"


def hold_row() -> None:
    """Do what another worker's acquisition does to the row."""
    row = {"locked_at": DatabaseNow(), "lock_until": DatabaseNow() + MINUTE}
    LockRecord.objects.update_or_create(
        name="job", defaults={**row, "locked_by": "the test", "released_at": None}
    )


@pytest.mark.usefixtures("known_lock")
def test_row_that_was_taken_during_the_wait_is_held() -> None:
    """Who waited for the winner's transaction is told who won."""
    with worker(take_when_told) as late:
        with transaction.atomic():
            keep_row()
            block(late)
            hold_row()
        assert late.result() == "the test"


@pytest.mark.postgres_only  # MariaDB's clock in UTC is the statement's start
@pytest.mark.usefixtures("known_lock")
def test_lock_that_expired_during_the_wait_is_taken() -> None:
    """A statement that waited goes by the time at which it got the row."""
    with worker(take_when_told) as late:
        with transaction.atomic():
            keep_row()
            block(late)
            LockRecord.objects.update(lock_until=read_clock())
        assert late.result() == "the worker"


@pytest.mark.postgres_only  # MariaDB's clock in UTC is the statement's start
@pytest.mark.usefixtures("known_lock")
def test_wait_for_the_row_costs_nothing_of_the_lease() -> None:
    """The lease begins when the statement gets the row, not when it was sent."""
    with worker(take_when_told) as late:
        with transaction.atomic():
            keep_row()
            block(late)
            # PostgreSQL computes the new row again only if the old one was changed.
            LockRecord.objects.update(locked_by="somebody before")
            during_the_wait = read_clock()
        assert late.result() == "the worker"
    record = LockRecord.objects.get()
    assert record.locked_at > during_the_wait
    assert record.lock_until >= during_the_wait + MINUTE


def test_insert_waits_for_the_first_one_and_is_told() -> None:
    """Two who insert one new name: the second learns that the first holds it."""
    with worker(take_when_told) as late:
        with transaction.atomic():
            hold_row()
            block(late)
        assert late.result() == "the test"


def test_insert_goes_on_after_the_first_ones_rollback() -> None:
    """If the first one's INSERT is rolled back, the second one takes the lock."""
    with worker(take_when_told) as late:
        with transaction.atomic():
            hold_row()
            block(late)
            transaction.set_rollback(True)
        assert late.result() == "the worker"
    assert LockRecord.objects.count() == 1


@pytest.mark.postgres_only
@pytest.mark.usefixtures("known_lock")
@pytest.mark.parametrize("isolation", FAILING_LEVELS)
def test_serialization_failure_is_tried_again(isolation: str) -> None:
    """A statement that PostgreSQL refuses for the row's change is sent again."""
    with worker(take_when_told, isolation) as late:
        with transaction.atomic():
            keep_row()
            block(late)
            LockRecord.objects.update(locked_by="somebody before")
        assert late.result() == "the worker"


@pytest.mark.postgres_only
@pytest.mark.usefixtures("known_lock")
@pytest.mark.parametrize("isolation", FAILING_LEVELS)
def test_serialization_failure_ends_in_who_holds(isolation: str) -> None:
    """Sent again, the statement finds the row held, and says by whom."""
    with worker(take_when_told, isolation) as late:
        with transaction.atomic():
            keep_row()
            block(late)
            hold_row()
        assert late.result() == "the test"


def count_the_lease(parent: Parent) -> tuple[timedelta, timedelta]:
    """Take the lock; return what is left of it by the database, and by this process."""
    number = session_number()
    parent.wait()
    parent.say(number)
    provider = DatabaseLockProvider("default")
    lock = take(configure(), provider)
    return status_of(provider, "job").remaining, lock.remaining()


@pytest.mark.usefixtures("known_lock")
def test_lease_outlasts_the_holders_own_count() -> None:
    """The store's lease lasts as long as the holder thinks, even after a row wait."""
    with worker(count_the_lease) as late:
        with transaction.atomic():
            keep_row()
            block(late)
            time.sleep(0.2)
        in_store, own = late.result()
    assert own <= in_store


@pytest.mark.usefixtures("known_lock")
def test_row_that_stays_locked_counts_as_held() -> None:
    """In a transaction, who can't get the row in a second goes on without the lock."""
    with worker(take_inside_transaction) as late:
        with transaction.atomic():
            keep_row()
            late.send()
            assert late.result() == "another worker that came first"


def take_inside_transaction(parent: Parent) -> str:
    parent.wait()
    with transaction.atomic():
        lock = try_from(DatabaseLockProvider("default"), configure())
    return str(lock)
