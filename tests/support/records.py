"""How much of the tables a piece of work reads, and records that nobody can read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


def make_unreadable(
    monkeypatch: pytest.MonkeyPatch, kind: type[Any], method: str, name: str = "broken"
) -> None:
    """Let this method, or property, of a record or a status fail for one name."""
    real: Any = getattr(kind, method)
    is_property = isinstance(real, property)
    read: Callable[..., Any] = real.fget if is_property else real

    def fail_for_one(self: Any, *args: Any) -> Any:
        if self.name == name:
            raise OverflowError("date value out of range")
        return read(self, *args)

    changed = property(fail_for_one) if is_property else fail_for_one
    monkeypatch.setattr(kind, method, changed)
