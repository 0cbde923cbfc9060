"""Records that a test counts, writes by SQL, or makes unreadable."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection

from django_shedlock.locks.status import LockStatus
from django_shedlock.models import LockRecord
from django_shedlock.providers.base import ALL_LOCKS, LockQuery
from django_shedlock.providers.database import DatabaseLockProvider


@contextmanager
def counted_records(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Collect the names of the records that are read."""
    read: list[str] = []
    from_db = LockRecord.from_db

    def counted(cls: type, *args: Any, **kwargs: Any) -> LockRecord:
        record = from_db(*args, **kwargs)
        read.append(record.name)
        return record

    with monkeypatch.context() as patch:
        patch.setattr(LockRecord, "from_db", classmethod(counted))
        yield read


def make_record_unreadable(
    monkeypatch: pytest.MonkeyPatch, name: str = "broken"
) -> None:
    """Let the record of one name be one that can't be read, as in other stores."""

    def with_one_unreadable(
        provider: DatabaseLockProvider, query: LockQuery = ALL_LOCKS
    ) -> Iterator[LockStatus]:
        for status in statuses(provider, query):
            if status.name == name:
                yield status.as_unreadable("OverflowError: date value out of range")
            else:
                yield status

    statuses = DatabaseLockProvider.statuses
    monkeypatch.setattr(DatabaseLockProvider, "statuses", with_one_unreadable)


def write_columns(table: str, name: str, **columns: str) -> None:
    """Write texts into a row by SQL, as people and other programs do."""
    assignments = ", ".join(f"{column} = %s" for column in columns)
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":  # as servers have it that take zero dates
            cursor.execute("SET sql_mode = ''")
        cursor.execute(
            f"UPDATE {table} SET {assignments} WHERE name = %s",
            [*columns.values(), name],
        )
    if connection.vendor == "mysql":
        connection.close()
