"""The table, its migration, and its columns on each database."""

from __future__ import annotations

import io

import pytest
from django.core.management import call_command
from django.db import connection

from django_shedlock.models import LockRecord

pytestmark = pytest.mark.django_db(transaction=True)


def test_migration_is_complete() -> None:
    """The models have no change that the migration does not have."""
    out = io.StringIO()
    call_command(
        "makemigrations", "django_shedlock", "--check", "--dry-run", stdout=out
    )
    assert "No changes" in out.getvalue()


def test_migrate_to_zero_and_back() -> None:
    """The table can be removed and made again."""
    call_command("migrate", "django_shedlock", "zero", verbosity=0)
    assert "shedlock" not in connection.introspection.table_names()
    call_command("migrate", "django_shedlock", verbosity=0)
    assert LockRecord.objects.count() == 0


def test_only_the_name_has_an_index() -> None:
    """Updates touch no index: neither on lock_until, nor a second one for LIKE."""
    with connection.cursor() as cursor:
        constraints = connection.introspection.get_constraints(cursor, "shedlock")
    keys = [c["columns"] for c in constraints.values() if c["primary_key"]]
    others = [c for c in constraints.values() if c["index"] and not c["primary_key"]]
    assert (keys, others) == ([["name"]], [])


def test_record_is_shown_by_its_name() -> None:
    """The admin and the shell show a record's name."""
    assert str(LockRecord(name="billing")) == "billing"
