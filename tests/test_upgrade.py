"""
The tables of the first release: this code works on them, and upgrades them.

As long as there is one migration, an upgrade changes nothing. These tests are for those
that follow, and see to it that the first one stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from django_shedlock import execute
from django_shedlock.console.models import LockAction
from django_shedlock.locks.status import LockState
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider
from django_shedlock.testing import force_release

pytestmark = [pytest.mark.each_store, pytest.mark.django_db(transaction=True)]

KEPT = Path(__file__).parent / "support" / "first_release"
APPS = ("shedlock_console", "django_shedlock")
TABLES = ("shedlock", "shedlock_action", "shedlock_notice", "shedlock_run")
HOLDER = "web-1:4711:9f86d081884c7d65"
FORMER = "web-1:4711:1f2e3d4c5b6a7988"
NOW = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
ROWS: dict[str, dict[str, Any]] = {
    "shedlock": {
        "name": "held",
        "lock_until": NOW + timedelta(days=1),
        "locked_at": NOW,
        "locked_by": HOLDER,
        "fencing_token": 7,
        "open_run": HOLDER,
        "last_run": FORMER,
        "outcome": "failed",
        "failures": 3,
    },
    "shedlock_run": {
        "name": "held",
        "provider": "default",
        "locked_by": FORMER,
        "host": "web-1",
        "started": NOW - timedelta(minutes=1),
        "ended": NOW,
        "outcome": "failed",
        "exception_type": "",
        "exception_message": "",
        "exception_traceback": "",
        "trigger": "scheduler",
        "operator": "",
        "reason": "",
    },
    "shedlock_action": {
        "name": "held",
        "provider": "default",
        "kind": "extend",
        "operator": "ada",
        "reason": "it takes long",
        "locked_by": HOLDER,
        "began": NOW,
        "ended": NOW,
        "result": "done",
        "detail": "",
        "facts": "",
        "process_is_gone": False,
    },
    "shedlock_notice": {
        "key": "0" * 64,
        "reader": "mail",
        "provider": "default",
        "lock": "held",
        "kind": "failed",
        "fact": f"failed {FORMER}",
        "told_at": NOW,
        "is_acknowledged": False,
        "version": 1,
    },
}
"""What the first release wrote: all that has no default in the database."""


@pytest.fixture(autouse=True)
def first_release() -> Iterator[None]:
    """Make the tables as the first release did, by its own SQL."""
    for app in APPS:
        call_command("migrate", app, "zero", verbosity=0)
    text = (KEPT / f"{connection.vendor}.sql").read_text(encoding="utf-8")
    try:
        with connection.cursor() as cursor:
            for statement in re.sub(r"(?m)^--.*$", "", text).split(";\n"):
                if statement.strip() not in {"", "BEGIN", "COMMIT"}:
                    cursor.execute(statement)
        recorder = MigrationRecorder(connection)
        for app in APPS:
            recorder.record_applied(app, "0001_initial")
        yield
    finally:  # the other tests of this process need the tables
        for app in APPS:
            call_command("migrate", app, "zero", verbosity=0)
            call_command("migrate", app, verbosity=0)


def write_as_then() -> None:
    """Write what the first release would have."""
    with connection.cursor() as cursor:
        for table, row in ROWS.items():
            columns = ", ".join(map(connection.ops.quote_name, row))
            marks = ", ".join(["%s"] * len(row))
            values = [
                connection.ops.adapt_datetimefield_value(value)
                if isinstance(value, datetime) and connection.vendor != "postgresql"
                else value
                for value in row.values()
            ]
            cursor.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", values)


def shape() -> dict[str, object]:
    """Return what the database says of the tables: columns, keys and indexes."""
    found: dict[str, object] = {}
    with connection.cursor() as cursor:
        for table in TABLES:
            described = connection.introspection.get_table_description(cursor, table)
            constraints = connection.introspection.get_constraints(cursor, table)
            found[table] = (
                [tuple(each) for each in described],
                sorted(
                    (
                        each["columns"] or [],
                        *(each[kind] for kind in ("primary_key", "unique", "check")),
                        name if each["index"] and not each["primary_key"] else "",
                    )
                    for name, each in constraints.items()
                ),
            )
    return found


def rows() -> dict[str, list[Any]]:
    """Return what is in the columns that the first release wrote."""
    found = {}
    with connection.cursor() as cursor:
        for table, row in ROWS.items():
            columns = ", ".join(map(connection.ops.quote_name, row))
            cursor.execute(f"SELECT {columns} FROM {table}")
            found[table] = cursor.fetchall()
    return found


def test_first_migration_is_that_of_the_first_release() -> None:
    """The first migrations create the tables of the first release."""
    kept = shape()
    for app in APPS:
        call_command("migrate", app, "zero", verbosity=0)
        call_command("migrate", app, "0001", verbosity=0)
    assert shape() == kept


def test_lock_outlives_the_upgrade() -> None:
    """Who held it holds it, its token goes on, and its run is in the history."""
    write_as_then()
    call_command("migrate", "django_shedlock", verbosity=0)
    assert not execute(lambda: None, "held").was_executed
    status = get_provider().status("held")
    assert status is not None
    assert (status.state, status.locked_by) == (LockState.RUNNING, HOLDER)
    force_release("held")
    assert execute(lambda: None, "held").was_executed
    assert LockRecord.objects.get(name="held").fencing_token > 7
    runs = LockRun.objects.filter(name="held").order_by("pk")
    outcomes = list(runs.values_list("outcome", flat=True))
    assert (outcomes[0], outcomes[-1]) == ("failed", "succeeded")
    assert LockAction.objects.get(name="held").operator == "ada"


def test_new_code_works_before_the_migration() -> None:
    """A process of the new version may start before somebody migrates."""
    write_as_then()
    assert not execute(lambda: None, "held").was_executed
    assert execute(lambda: 7, "free").value == 7
    assert not LockRecord.objects.filter(name="free").held().exists()


def test_old_code_works_after_the_migration() -> None:
    """What it does not write has a default in the database."""
    call_command("migrate", "django_shedlock", verbosity=0)
    write_as_then()
    assert get_provider().status("held").state is LockState.RUNNING  # type: ignore[union-attr]


def test_way_back_keeps_what_is_there() -> None:
    """Locks, runs and actions are as before when the newer migrations are undone."""
    write_as_then()
    kept = shape(), rows()
    assert all(map(len, kept[1].values()))
    call_command("migrate", "django_shedlock", verbosity=0)
    call_command("migrate", "django_shedlock", "0001", verbosity=0)
    assert (shape(), rows()) == kept
