"""Statements that are compiled once, with parameters that are filled in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.sql.compiler import SQLUpdateCompiler

from django_shedlock import hold
from django_shedlock.locks.lock import Lock
from django_shedlock.models import LockRecord
from django_shedlock.providers.database import statements
from django_shedlock.providers.database.reading import read
from django_shedlock.sql.compiling import (
    BaseUpdate,
    Insert,
    Statement,
    Update,
    duration,
    instant,
    number,
    text,
)
from django_shedlock.sql.fields import DatabaseNow
from tests.support.locks import MINUTE, configure

SOME = {
    "lock": Lock(None, configure()),
    "name": "job",
    "locked_by": "me",
    "open_run": "me",
    "at_most": MINUTE,
    "at_least": timedelta(0),
    "took": 1.5,
}


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
    statements.create(connection, **SOME)
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
    statements.create(connection, **SOME)
    columns: dict[str, Any] = {"fencing_token": 12, "locked_by": "in row"}
    for word in ("in row", "it's", "50 %", "%s", "\\", ""):
        records = LockRecord.objects.filter(name=text("name"), locked_by="in row")
        write = Update(lambda: (records, {**columns, "locked_by": word}))  # noqa: B023
        sources = write.compiled(connection).sources
        assert [given for name, _, given in sources if name is None] == (
            [] if word in {"in row", ""} else [word]
        )
        LockRecord.objects.update(locked_by="in row")
        assert write(connection, name="job") == 1
        assert list(LockRecord.objects.values_list(*columns)) == [(12, word)]


@pytest.mark.django_db
def test_row_of_the_same_name_is_kept_or_updated() -> None:
    """An INSERT of a row that is there leaves it alone, or gives it some columns."""

    def build() -> Any:
        columns = {"locked_by": text("me"), "fencing_token": number("token")}
        times = dict.fromkeys(("locked_at", "lock_until"), DatabaseNow())
        return LockRecord, {"name": text("name"), **columns, **times}

    keep = Insert(build, unique="name")
    replace = Insert(build, unique="name", updated=["locked_by"])
    known = LockRecord.objects.values_list("locked_by", "fencing_token")
    keep(connection, name="job", me="first", token=1)
    keep(connection, name="job", me="second", token=2)
    assert list(known.all()) == [("first", 1)]
    replace(connection, name="job", me="third", token=3)
    assert list(known.all()) == [("third", 1)]


def all_statements() -> dict[str, Statement[Any, Any]]:
    """Return each statement of the file, with both forms of an acquisition."""
    found = {}
    for name, each in vars(statements).items():
        if isinstance(each, statements.Acquisition):
            found[name] = each.usual
            found[f"{name} over an open run"] = each.over_open_run
        elif isinstance(each, Statement):
            found[name] = each
    return found


ASSIGNED = re.compile(r'(?:SET |, )[`"]?(\w+)[`"]? = ')


@pytest.mark.django_db
def test_no_assignment_reads_a_column_that_is_assigned_before() -> None:
    """MySQL and MariaDB carry out assignments from left to right."""
    updates = {n: e for n, e in all_statements().items() if isinstance(e, BaseUpdate)}
    assert len(updates) > 20
    for name, statement in updates.items():
        whole = statement.compiled(connection).sql.partition(" WHERE ")[0]
        parts = ASSIGNED.split(whole)[1:]
        assert parts, name
        before: set[str] = set()
        for column, expression in zip(parts[::2], parts[1::2], strict=True):
            read_columns = set(re.findall(r'[`"](\w+)[`"]', expression))
            assert not read_columns & before, f"{name}: {column} reads {before}"
            before.add(column)


@pytest.mark.django_db
def test_every_statement_can_be_compiled() -> None:
    """No statement waits for its first use to turn out to be wrong."""
    assert len(all_statements()) > 25
    for each in all_statements().values():
        assert each.compiled(connection).sql


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
    over = {"open_run": None, "at_most": timedelta(microseconds=1)}
    statements.create(preparing, **{**SOME, **over})
    for turn in range(3):
        holder = f"holder {turn}"
        values = {**SOME, "locked_by": holder, "open_run": holder}
        assert statements.acquire.usual(preparing, **values) is not None
        assert statements.acquire.usual(preparing, **SOME) is None
        status = read(preparing, "job")
        assert status is not None
        assert status.locked_by == f"holder {turn}"
        assert statements.release_succeeded(preparing, **values) == 1
    with preparing.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM pg_prepared_statements")
        [count] = cursor.fetchone()
    assert count > 3


@pytest.mark.postgres_only
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("has_tick", [False, True])
def test_release_waits_for_the_disk_only_for_a_tick(has_tick: bool) -> None:
    """What a crash of the server may take away does not wait; nothing stays set."""
    statements.create(connection, **SOME)
    [columns, wanted] = ["synchronous_commit", "off" if not has_tick else "on"]
    seen: list[str] = []

    def look(execute: Any, sql: str, *arguments: Any) -> Any:
        result = execute(sql, *arguments)
        with closing(connection.connection.cursor()) as cursor:
            cursor.execute(f"SHOW {columns}")
            seen.append(cursor.fetchone()[0])
        return result

    with transaction.atomic(), connection.execute_wrapper(look):
        values = {**SOME, "due_at": datetime(2026, 3, 2, tzinfo=UTC)}
        plain, of_tick = statements.release_succeeded, statements.release_tick
        release = of_tick if has_tick else plain
        assert release(connection, **values) == 1
    assert seen == [wanted]
    with connection.cursor() as cursor:
        cursor.execute(f"SHOW {columns}")
        assert cursor.fetchone()[0] == "on"
