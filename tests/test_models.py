"""The table, its migration, and its columns on each database."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.db.models import Value

from django_shedlock import models
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.sql.fields import DatabaseNow, UTCDateTimeField
from tests.support.locks import MINUTE, add_run

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("app", ["django_shedlock", "shedlock_console"])
def test_migration_is_complete(app: str) -> None:
    """The models have no change that the migration does not have."""
    out = io.StringIO()
    call_command("makemigrations", app, "--check", "--dry-run", stdout=out)
    assert "No changes" in out.getvalue()


@pytest.mark.django_db(transaction=True)
def test_migrate_to_zero_and_back() -> None:
    """The table can be removed and made again."""
    call_command("migrate", "django_shedlock", "zero", verbosity=0)
    assert "shedlock" not in connection.introspection.table_names()
    call_command("migrate", "django_shedlock", verbosity=0)
    assert LockRecord.objects.count() == 0


def test_only_the_name_has_an_index() -> None:
    """Updates touch no index, since only the name has one."""
    with connection.cursor() as cursor:
        constraints = connection.introspection.get_constraints(cursor, "shedlock")
    keys = [c["columns"] for c in constraints.values() if c["primary_key"]]
    others = [c for c in constraints.values() if c["index"] and not c["primary_key"]]
    assert (keys, others) == ([["name"]], [])


def test_record_is_shown_by_its_name() -> None:
    """The admin and the shell show a record's name."""
    assert str(LockRecord(name="billing")) == "billing"


@pytest.mark.parametrize(
    ("by", "acquirable"),
    [(timedelta(microseconds=-1), 0), (timedelta(0), 1), (timedelta(seconds=1), 1)],
)
def test_lock_is_free_from_the_instant_its_lease_ends(
    monkeypatch: pytest.MonkeyPatch, by: timedelta, acquirable: int
) -> None:
    """At lock_until itself the lock can be taken, and it is not held any more."""
    end = datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC)
    LockRecord.objects.create(
        name="job", lock_until=end, locked_at=end - MINUTE, locked_by="somebody"
    )
    now = Value(end + by, output_field=UTCDateTimeField())
    monkeypatch.setattr(models.records.fields, "DatabaseNow", lambda: now)
    records = LockRecord.objects
    assert (records.acquirable().count(), records.held().count()) == (
        acquirable,
        1 - acquirable,
    )


@pytest.mark.parametrize("name", ["name", "locked_by"])
def test_columns_are_as_long_as_shedlocks(name: str) -> None:
    """A name and a holder of 255 characters fit, and are not cut."""
    now = DatabaseNow()
    columns = {"name": "job", "locked_by": "host", name: "ö" * 255}
    LockRecord.objects.create(**columns, lock_until=now, locked_at=now)
    assert getattr(LockRecord.objects.get(), name) == "ö" * 255


def test_run_is_shown_by_name_and_outcome() -> None:
    """The admin and the shell show which lock's run it is."""
    assert str(LockRun(name="billing", outcome="lost")) == "billing (lost)"


def test_acquisition_of_a_job_is_one_row_of_the_history() -> None:
    """A second row of the same acquisition is refused by the database."""
    add_run("job", locked_by="web-1:7:a")
    with pytest.raises(IntegrityError), transaction.atomic():
        add_run("other", locked_by="web-1:7:a")


def test_run_has_an_end() -> None:
    """Old rows are found by it, so there is none without."""
    with pytest.raises(IntegrityError), transaction.atomic():
        add_run("job", ended=None)
