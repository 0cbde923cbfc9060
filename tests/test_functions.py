"""The database's clock as an expression."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import Model

from django_shedlock.functions import DatabaseNow
from django_shedlock.models import LockRecord

pytestmark = pytest.mark.django_db

CENTURY = timedelta(days=36525, microseconds=1)


def write(value: Any) -> datetime:
    """Return what the column has after an UPDATE to this value."""
    LockRecord.objects.update(lock_until=value)
    lock_until: datetime = LockRecord.objects.get().lock_until
    return lock_until


@pytest.fixture
def record() -> LockRecord:
    return LockRecord.objects.create(
        name="job", lock_until=DatabaseNow(), locked_at=DatabaseNow(), locked_by="me"
    )


@pytest.mark.usefixtures("record")
def test_clock_goes_on_inside_a_transaction() -> None:
    """It is the instant of the evaluation, not the start of the transaction."""
    with transaction.atomic():
        first = write(DatabaseNow())
        time.sleep(0.005)
        assert write(DatabaseNow()) > first


@pytest.mark.usefixtures("record")
@pytest.mark.parametrize(
    "duration", [timedelta(0), timedelta(milliseconds=50), CENTURY, -CENTURY]
)
def test_sum_with_a_duration_is_exact(duration: timedelta) -> None:
    """now + duration lies between the clock before it and after it, by that much."""
    before = write(DatabaseNow())
    then = write(DatabaseNow() + duration)
    after = write(DatabaseNow())
    assert before <= then - duration <= after


def now() -> datetime:
    """Return the clock by way of another row."""
    row = {"locked_at": DatabaseNow(), "lock_until": DatabaseNow(), "locked_by": "me"}
    LockRecord.objects.update_or_create(name="clock", defaults=row)
    moment: datetime = LockRecord.objects.get(name="clock").locked_at
    return moment


def create(record: LockRecord) -> None:
    record.save(force_insert=True)


def bulk_create(record: LockRecord) -> None:
    LockRecord.objects.bulk_create([record])


def upsert(record: LockRecord) -> None:
    LockRecord.objects.bulk_create(
        [record],
        update_conflicts=True,
        update_fields=["lock_until"],
        unique_fields=(
            ["name"]
            if connection.features.supports_update_conflicts_with_target
            else None
        ),
    )


@pytest.mark.parametrize("insert", [create, bulk_create, upsert])
def test_clock_in_every_kind_of_insert(insert: Callable[[Model], None]) -> None:
    """An INSERT evaluates it in the database, as an UPDATE does."""
    before = now()
    lock_until = DatabaseNow() + timedelta(minutes=1)
    insert(
        LockRecord(
            name="job", lock_until=lock_until, locked_at=DatabaseNow(), locked_by="me"
        )
    )
    record = LockRecord.objects.get(name="job")
    after = now()
    assert before <= record.locked_at <= after
    assert before <= record.lock_until - timedelta(minutes=1) <= after


@pytest.mark.sqlite_only
@pytest.mark.usefixtures("record")
@pytest.mark.parametrize("duration", [None, timedelta(0), timedelta(microseconds=1)])
def test_text_on_sqlite_is_as_django_writes_it(duration: timedelta | None) -> None:
    """Instants are compared as texts there, so every one has the same 26 letters."""
    value = DatabaseNow() if duration is None else DatabaseNow() + duration
    LockRecord.objects.update(lock_until=value)
    with connection.cursor() as cursor:
        cursor.execute("SELECT lock_until FROM shedlock")
        [text] = cursor.fetchone()
        cursor.execute("SELECT typeof(lock_until) FROM shedlock")
        assert cursor.fetchone() == ("text",)
    assert len(str(text)) == len("2026-01-01 00:00:00.000000")


def test_oracles_clock_is_in_utc() -> None:
    """No Oracle runs here; what it would be sent is a UTC timestamp."""
    compiler = LockRecord.objects.all().query.get_compiler(connection=connection)
    sql, _ = DatabaseNow().as_oracle(compiler, connection)
    assert sql == "SYS_EXTRACT_UTC(SYSTIMESTAMP)"
