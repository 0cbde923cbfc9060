"""Statements that are compiled once, with parameters that are filled in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.sql.compiler import SQLUpdateCompiler

from django_shedlock import hold
from django_shedlock.fields import DatabaseNow
from django_shedlock.history.recording import NO_EXCEPTION, RUNS
from django_shedlock.locks.lock import Lock
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers.database.acquisition import (
    ACQUIRE,
    CREATE,
    CREATE_FREE,
)
from django_shedlock.providers.database.leases import RELEASE
from django_shedlock.providers.database.reading import read
from django_shedlock.providers.database.statements import (
    Insert,
    Update,
    duration,
    instant,
    number,
    text,
)
from tests.support.locks import MINUTE, configure

SOME = {
    "lock": Lock(None, configure()),
    "name": "job",
    "locked_by": "me",
    "at_most": MINUTE,
    "at_least": timedelta(0),
}
CAUSE = {"trigger": "scheduler", "operator": "", "reason": ""}


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each UPDATE that Django compiles."""
    seen: list[str] = []
    as_sql = SQLUpdateCompiler.as_sql

    def note(self: Any) -> Any:
        sql, parameters = as_sql(self)
        seen.append(sql)
        return sql, parameters

    monkeypatch.setattr(SQLUpdateCompiler, "as_sql", note)
    return seen


@pytest.mark.django_db
def test_lock_compiles_nothing_the_second_time(compiled: list[str]) -> None:
    """Building and compiling would cost as much as the statements themselves."""
    with hold("job"):
        pass
    del compiled[:]
    with hold("job", lock_at_most_for="2m"), hold("other"):
        pass
    assert compiled == []


@pytest.mark.django_db
def test_statement_is_compiled_for_each_way_to_bind(compiled: list[str]) -> None:
    """A server that binds the parameters gets a text of its own, as from Django."""
    statement = Update(lambda: (LockRecord.objects.all(), {"locked_by": text("me")}))
    for binding in (None, True, True):
        # A feature that only PostgreSQL has.
        connection.features.__dict__["uses_server_side_binding"] = binding
        statement.compiled(connection)
    del connection.features.__dict__["uses_server_side_binding"]
    assert len(compiled) == 2


@pytest.mark.django_db
def test_values_are_written_as_django_writes_them() -> None:
    """Each kind of parameter reaches its column, and so does nothing at all."""
    moment = datetime(2026, 3, 2, 9, 0, 0, 123, tzinfo=UTC)
    columns = {
        "lock_until": instant("until"),
        "locked_at": DatabaseNow() + duration("ahead"),
        "locked_by": text("me"),
        "tick": instant("tick"),
        "fencing_token": number("token"),
    }
    CREATE(connection, **SOME)
    before = LockRecord.objects.clock()
    write = Update(lambda: (LockRecord.objects.filter(name=text("name")), columns))
    values = {"until": moment, "ahead": MINUTE, "token": 7, "tick": None}
    assert write(connection, name="nobody", me="it's", **values) == 0
    assert write(connection, name="job", me="it's \\ 100 %s", **values) == 1
    record = LockRecord.objects.get()
    assert record.lock_until == moment
    assert record.locked_at >= before + MINUTE
    assert (record.locked_by, record.fencing_token) == ("it's \\ 100 %s", 7)
    assert record.tick is None


@pytest.mark.django_db
def test_only_what_changes_is_a_parameter() -> None:
    """Numbers and simple words are part of the text; all else stays outside of it."""
    CREATE(connection, **SOME)
    columns: dict[str, Any] = {"fencing_token": 12, "locked_by": "in row"}
    for word in ("in row", "it's", "50 %", "%s", "\\", ""):
        records = LockRecord.objects.filter(name=text("name"), locked_by="in row")
        write = Update(lambda: (records, {**columns, "locked_by": word}))  # noqa: B023
        sources = write.compiled(connection).sources
        assert [given for name, given in sources if name is None] == (
            [] if word in {"in row", ""} else [word]
        )
        LockRecord.objects.update(locked_by="in row")
        assert write(connection, name="job") == 1
        assert list(LockRecord.objects.values_list(*columns)) == [(12, word)]


@pytest.mark.django_db
def test_inserted_row_tells_its_key() -> None:
    """A table that numbers its rows returns the number; one with names has none."""
    assert CREATE_FREE(connection, name="other") is None
    assert CREATE(connection, **SOME) is not None
    values = {"provider": "default", "host": "web-1", "pid": 7, "skips": 0, **CAUSE}
    key = RUNS.inserted(
        connection, name="job", locked_by="me", ago=timedelta(0), **values
    )
    run = LockRun.objects.get()
    assert (run.pk, run.fencing_token) == (key, 1)


@pytest.mark.django_db
def test_key_of_a_server_that_returns_no_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """MySQL tells the number of the last row after the statement."""
    monkeypatch.setattr(connection.features, "can_return_columns_from_insert", False)
    last = {"sqlite": "last_insert_rowid()", "postgresql": "lastval()"}
    question = f"SELECT {last.get(connection.vendor, 'LAST_INSERT_ID()')}"

    def ask(cursor: Any, table: str, column: str) -> int:
        assert (table, column) == ("shedlock_run", "id")
        cursor.execute(question)
        return int(cursor.fetchone()[0])

    monkeypatch.setattr(connection.ops, "last_insert_id", ask)
    add = Insert(
        lambda: (
            LockRun,
            {
                **{name: text(name) for name in ("name", "provider", "locked_by")},
                "host": "",
                "started": DatabaseNow(),
                "outcome": "running",
                **NO_EXCEPTION,
                **CAUSE,
                "skips": 0,
            },
        )
    )
    key = add(connection, name="job", provider="default", locked_by="me")
    assert key == LockRun.objects.get().pk


@pytest.fixture
def preparing() -> Iterator[BaseDatabaseWrapper]:
    """A connection with Django's own options for prepared statements."""
    with closing(connection.copy()) as other:
        other.settings_dict["OPTIONS"] |= {
            "server_side_binding": True,
            "prepare_threshold": 0,
        }
        yield other


@pytest.mark.postgres_only
@pytest.mark.django_db(transaction=True)
def test_statements_can_be_prepared(preparing: BaseDatabaseWrapper) -> None:
    """With server_side_binding the server has them once, and executes them again."""
    CREATE(preparing, **{**SOME, "at_most": timedelta(microseconds=1)})
    for turn in range(3):
        values = {**SOME, "locked_by": f"holder {turn}"}
        assert ACQUIRE[False](preparing, **values) is not None
        assert ACQUIRE[False](preparing, **SOME) is None
        status = read(preparing, "job")
        assert status is not None
        assert status.locked_by == f"holder {turn}"
        release = RELEASE[False, False, False]
        assert release(preparing, **values) == 1
    with preparing.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM pg_prepared_statements")
        [count] = cursor.fetchone()
    assert count > 3


@pytest.mark.postgres_only
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("has_success", [False, True])
def test_release_waits_for_the_disk_only_for_a_success(has_success: bool) -> None:
    """What a crash of the server may take away does not wait; nothing stays set."""
    CREATE(connection, **SOME)
    [columns, wanted] = ["synchronous_commit", "off" if not has_success else "on"]
    seen: list[str] = []

    def look(execute: Any, sql: str, *arguments: Any) -> Any:
        result = execute(sql, *arguments)
        with closing(connection.connection.cursor()) as cursor:
            cursor.execute(f"SHOW {columns}")
            seen.append(cursor.fetchone()[0])
        return result

    from django.db import transaction

    with transaction.atomic(), connection.execute_wrapper(look):
        values = {**SOME, "due_at": datetime(2026, 3, 2, tzinfo=UTC)}
        assert RELEASE[False, has_success, False](connection, **values) == 1
    assert seen == [wanted]
    with connection.cursor() as cursor:
        cursor.execute(f"SHOW {columns}")
        assert cursor.fetchone()[0] == "on"
