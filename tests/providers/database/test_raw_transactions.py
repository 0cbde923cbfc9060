"""A transaction that the caller began without Django, by a raw BEGIN."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, OperationalError, connection

from django_shedlock import assert_locked, execute, hold
from django_shedlock.history import retention
from django_shedlock.history.retention import prune_some
from django_shedlock.locks.status import LockHolder
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.sql.connections import (
    has_own_transaction,
    in_callers_transaction,
)
from django_shedlock.testing import is_held
from tests.support.locks import configure, name_holder, take, try_from
from tests.support.processes import worker
from tests.support.statements import says

pytestmark = pytest.mark.django_db(transaction=True)


def send(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


@pytest.fixture(autouse=True)
def transaction_by_hand() -> Iterator[None]:
    """A transaction that is open when a test begins, and is none of Django's."""
    connection.ensure_connection()
    send("BEGIN")
    Group.objects.create(name="mine")
    yield
    with suppress(OperationalError):  # SQLite, if the test has ended it
        send("ROLLBACK")


def groups() -> list[str]:
    return list(Group.objects.values_list("name", flat=True))


def use_locks() -> None:
    """Do all that a lock does: acquire, skip, extend, release, and tell of the run."""
    assert execute(lambda: "ran", "job", lock_at_most_for="1m").value == "ran"
    with hold("job", lock_at_most_for="1m") as lock:
        assert not execute(lambda: None, "job2", lock_at_most_for="1m").value
        lock.extend("2m")
        assert lock.fencing_token
    with pytest.raises(ZeroDivisionError):
        execute(lambda: 1 / 0, "job", lock_at_most_for="1m", schedule="@hourly")


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_transaction_is_the_callers_to_end(end: str) -> None:
    """What the caller wrote is kept by its COMMIT, and gone by its ROLLBACK."""
    use_locks()
    assert groups() == ["mine"]
    send(end)
    assert groups() == (["mine"] if end == "COMMIT" else [])


@pytest.mark.postgres_only
def test_lock_is_not_part_of_it() -> None:
    """The driver tells of the transaction, so the lock gets a connection of its own."""
    assert in_callers_transaction(connection)
    lock = take(configure(), DatabaseLockProvider("default"))
    with worker(name_holder) as other:
        assert other.result() == lock.locked_by
    send("ROLLBACK")
    assert lock.is_active
    assert is_held("job")
    with worker(name_holder) as other:
        assert other.result() == lock.locked_by


@pytest.mark.postgres_only
def test_broken_transaction_breaks_no_lock() -> None:
    """After an error the caller's transaction takes no statement, but the lock does."""
    with pytest.raises(Exception, match="zero"):
        send("SELECT 1 / 0")
    with hold("job", lock_at_most_for="1m"):
        assert_locked()
    assert has_own_transaction(connection)


@pytest.mark.sqlite_only
def test_lock_is_part_of_it() -> None:
    """SQLite has one writer, so a rollback takes the lock back with all the rest."""
    lock = take(configure(), DatabaseLockProvider("default"))
    assert LockRecord.objects.get().locked_by == lock.locked_by
    send("ROLLBACK")
    assert not LockRecord.objects.exists()


@pytest.mark.sqlite_only
def test_statement_that_fails_leaves_the_rest_alone() -> None:
    """A savepoint takes back the statement, and nothing that the caller wrote."""
    with refusing("INSERT", "shedlock_run"):
        assert execute(lambda: "ran", "job", lock_at_most_for="1m").value == "ran"
    assert not LockRun.objects.exists()
    send("COMMIT")
    assert groups() == ["mine"]
    assert LockRecord.objects.get().outcome == "succeeded"


@contextmanager
def refusing(verb: str, table: str) -> Iterator[None]:
    """Let the database refuse such statements about the table."""

    def refuse(execute: Any, sql: str, *arguments: Any) -> Any:
        if says(sql, verb, table):
            raise IntegrityError("no such statement today")
        return execute(sql, *arguments)

    with connection.execute_wrapper(refuse):
        yield


def test_pruning_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old runs are deleted at another time, or as a part of it on MySQL and MariaDB."""
    run = {"provider": "default", "host": "", "outcome": "succeeded"}
    old = "2000-01-01 00:00:00+00:00"
    LockRun.objects.create(name="job", locked_by="a", ended=old, **run)
    monkeypatch.setattr(retention, "PRUNING_SHARE", 1)
    execute(lambda: None, "job", lock_at_most_for="1m")
    prune_some(LockRun.objects.using("default"))
    send("ROLLBACK")
    assert groups() == []
    LockRun.objects.create(name="job", locked_by="a", ended=old, **run)
    prune_some(LockRun.objects.using("default"))
    assert not LockRun.objects.filter(locked_by="a").exists()


def test_refusal_is_a_refusal() -> None:
    """A lock that another acquisition holds is skipped inside of it, too."""
    provider = DatabaseLockProvider("default")
    take(configure(), provider)
    assert isinstance(try_from(provider, configure()), LockHolder)
    assert groups() == ["mine"]
