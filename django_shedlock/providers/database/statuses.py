"""Read records as statuses; one that can't be read does not hide the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from django.db import Error

from django_shedlock.clocks import host_now
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.states import LockState, LockStatus, log_unreadable
from django_shedlock.models import LockRecord, LockRecordQuerySet

BATCH = 1000
"""Names for each statement: databases limit the number of parameters."""


def read_statuses(records: LockRecordQuerySet) -> list[LockStatus]:
    """Return the statuses of these records, in their order, with one statement."""
    try:
        return [record.status for record in records.with_status().with_clock()]
    except Error:
        raise
    except Exception:  # whatever a value that somebody wrote makes of the conversion
        names = list(records.values_list("name", flat=True))
        return list(_read_some(records.db, names))


def batches(names: Iterable[str]) -> Iterator[Sequence[str]]:
    """Return the names in their order, in parts that fit into a statement."""
    ordered = sorted(names)
    for start in range(0, len(ordered), BATCH):
        yield ordered[start : start + BATCH]


def _read_some(using: str, names: Sequence[str]) -> Iterator[LockStatus]:
    if not names:
        return
    records = LockRecord.objects.using(using).filter(name__in=names)
    try:
        read = records.with_status().with_clock()
        found = {record.name: record.status for record in read}
    except Error:
        raise
    except Exception as error:
        if len(names) == 1:
            yield from _unreadable(records, error)
            return
        middle = len(names) // 2
        yield from _read_some(using, names[:middle])
        yield from _read_some(using, names[middle:])
    else:
        yield from (found[name] for name in names if name in found)


def _unreadable(records: LockRecordQuerySet, error: Exception) -> Iterator[LockStatus]:
    added: Any = records.with_status()
    known = added.values_list("name", "state", "locked_by")
    reason, now = f"{type(error).__name__}: {error}", host_now()
    for name, state, locked_by in known:
        log_unreadable(name, reason)
        state = LockState(state)
        yield LockStatus(name, state, locked_by, now, now, ZERO, unreadable=reason)
