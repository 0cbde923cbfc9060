"""How much of the tables a piece of work reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from django_shedlock.models import LockRecord


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
