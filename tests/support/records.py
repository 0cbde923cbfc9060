"""How much of the tables a piece of work reads, and records that nobody can read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from django_shedlock.locks.states import LockStatus
from django_shedlock.models import LockRecord, records


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
    """Let the record of one name have columns of which nobody can make a status."""

    def fail_for_one(of: str, *args: Any) -> LockStatus:
        if of == name:
            raise OverflowError("date value out of range")
        return real(of, *args)

    real = records.status_of
    monkeypatch.setattr(records, "status_of", fail_for_one)
