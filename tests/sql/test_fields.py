"""Fields whose columns mean the same on every database and in every zone."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import connection, models, transaction
from django.db.models import F, Model
from django.test import override_settings

from django_shedlock.models import LockRecord
from django_shedlock.sql.fields import (
    ClockMilliseconds,
    DatabaseNow,
    LockNameField,
    LockUntilField,
    UTCDateTimeField,
)

pytestmark = pytest.mark.django_db

# In this hour New York's clocks went back: its local time alone names two instants.
MOMENT = datetime(2026, 11, 1, 5, 30, 0, 123456, tzinfo=UTC)
NAIVE_UTC = MOMENT.replace(tzinfo=None)
KOLKATA = ZoneInfo("Asia/Kolkata")


def save(moment: datetime) -> None:
    LockRecord.objects.create(
        name="job", lock_until=moment, locked_at=moment, locked_by="me"
    )


def column() -> datetime:
    """Return what the database has, in UTC, by none of the code under test."""
    expression = {
        "postgresql": "lock_until AT TIME ZONE 'UTC'",
        "mysql": "CAST(lock_until AS CHAR)",
        "sqlite": "CAST(lock_until AS TEXT)",
    }[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {expression} FROM shedlock")
        [value] = cursor.fetchone()
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


@pytest.mark.parametrize("zone", [UTC, KOLKATA, ZoneInfo("America/New_York")])
def test_aware_datetime_is_kept_in_utc(zone: ZoneInfo) -> None:
    """Whatever zone a datetime comes in, the column and its reader have the instant."""
    save(MOMENT.astimezone(zone))
    assert column() == NAIVE_UTC
    assert LockRecord.objects.get().lock_until == MOMENT


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "Pacific/Auckland"])
def test_naive_datetime_is_local_without_use_tz(zone: str) -> None:
    """With USE_TZ off, Python has TIME_ZONE's local time, and the column UTC."""
    connection.close()
    with override_settings(USE_TZ=False, TIME_ZONE=zone):
        local = MOMENT.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        save(local)
        assert column() == NAIVE_UTC
        assert LockRecord.objects.get().lock_until == local
    connection.close()


def test_none_stays_none() -> None:
    """A column without a value is read as None."""
    save(MOMENT)
    LockRecord.objects.update(released_at=None)
    assert LockRecord.objects.get().released_at is None


@pytest.mark.parametrize("by", [timedelta(0), timedelta(microseconds=1)])
def test_comparison_with_a_datetime_is_exact(by: timedelta) -> None:
    """A filter finds the instant that was written, and none beside it."""
    save(MOMENT)
    wanted = (MOMENT + by).astimezone(KOLKATA)
    assert LockRecord.objects.filter(lock_until=wanted).exists() is not bool(by)


def test_sum_of_column_and_duration_is_read_as_utc() -> None:
    """Arithmetic in the database keeps the instant, across a change of clocks."""
    save(MOMENT)
    LockRecord.objects.update(lock_until=F("lock_until") + timedelta(hours=2))
    assert LockRecord.objects.get().lock_until == MOMENT + timedelta(hours=2)


@pytest.mark.parametrize(
    "field", [UTCDateTimeField(), LockUntilField(), LockNameField(max_length=255)]
)
def test_migrations_name_the_field(field: models.Field[object, object]) -> None:
    """A migration imports the field from its module, and so stays stable."""
    _, path, args, _ = field.deconstruct()
    assert (path, args) == (f"django_shedlock.sql.fields.{type(field).__name__}", [])


def test_names_type_is_the_standards_long_one() -> None:
    """The name has ShedLock's type and length on every database."""
    name = LockRecord._meta.get_field("name")
    assert name.db_type(connection) == "character varying(255)"


@pytest.mark.mariadb_only
def test_names_collation_is_binary() -> None:
    """The table compares names byte by byte, as Python does."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT collation_name FROM information_schema.columns WHERE table_schema "
            "= DATABASE() AND table_name = 'shedlock' AND column_name = 'name'"
        )
        assert cursor.fetchone() == ("utf8mb4_bin",)


pytestmark = pytest.mark.django_db

MILLISECOND = timedelta(milliseconds=1)  # SQLite has no shorter one
CENTURY = timedelta(days=36525) + MILLISECOND


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
    """DatabaseNow() is the time of its evaluation, not of the transaction's start."""
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
        # Without the expression, Django would make an instant of it.
        cursor.execute("SELECT lock_until || '', typeof(lock_until) FROM shedlock")
        text, kind = cursor.fetchone()
    assert kind == "text"
    assert len(text) == len("2026-01-01 00:00:00.000000")


def test_oracles_clock_is_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Oracle runs here; what it would be sent is a UTC timestamp."""
    compiler = LockRecord.objects.all().query.get_compiler(connection=connection)
    monkeypatch.setattr(connection, "vendor", "oracle")
    sql, parameters = compiler.compile(DatabaseNow())
    assert sql == "SYS_EXTRACT_UTC(SYSTIMESTAMP)"
    assert not parameters


@pytest.mark.usefixtures("record")
def test_milliseconds_are_those_of_the_clock() -> None:
    """The number that tokens follow is the clock in whole milliseconds."""
    before = now()
    LockRecord.objects.filter(name="job").update(fencing_token=ClockMilliseconds())
    after = now()
    token = LockRecord.objects.get(name="job").fencing_token
    first, last = (moment.timestamp() * 1000 for moment in (before, after))
    assert first - 1 <= token <= last + 1
