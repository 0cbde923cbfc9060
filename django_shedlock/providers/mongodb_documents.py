"""
The documents of locks: what MongoDB is sent to change one, and what it keeps.

ShedLock for Java has the fields ``_id``, ``lockUntil``, ``lockedAt`` and ``lockedBy``,
and leaves the others as they are. So most of these count only while ``acquiredBy`` is
``lockedBy``. Dates have milliseconds.
"""

from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any

from django_shedlock.locks.lock import Lock
from django_shedlock.providers.entries import Entry, Read

MILLISECOND = timedelta(milliseconds=1)
NOW = "$$NOW"
COMPARED = ("lockUntil", "lockedAt", "lockedBy", "changes")
"""Each change of ours counts in ``changes``, and each of Java's changes another one."""
OURS = (
    *("acquiredBy", "atLeastUntil", "extendedAt"),
    *("fencingToken", "isReleased", "ticks"),
)
WITH_CLOCK: dict[str, Any] = {**dict.fromkeys(COMPARED + OURS, 1), "now": NOW}
"""What is read of a document: its fields, and the server's clock."""
DECODING: dict[str, Any] = {
    "tz_aware": True,
    "datetime_conversion": "DATETIME_AUTO",
    "unicode_decode_error_handler": "replace",
}
"""Options of PyMongo by which one foreign document does not spoil all of an answer."""
CHANGED: dict[str, Any] = {"$add": [{"$ifNull": ["$changes", 0]}, 1]}
Document = dict[str, Any]


def acquiring(lock: Lock) -> list[Document]:
    """Return the pipeline that acquires the lock if it is free."""
    configuration = lock.configuration
    new = {
        "lockUntil": after(configuration.lock_at_most_for),
        "lockedAt": NOW,
        "lockedBy": {"$literal": lock.locked_by},
        "acquiredBy": {"$literal": lock.locked_by},
        "atLeastUntil": after(configuration.lock_at_least_for),
        "extendedAt": None,
        "fencingToken": {"$add": [{"$ifNull": ["$fencingToken", 0]}, 1]},
        "isReleased": False,
        "changes": CHANGED,
    }
    # A date that is no date is not free: it is told.
    is_free = {"$lte": [{"$ifNull": ["$lockUntil", NOW]}, NOW]}
    is_date = {"$in": [{"$type": "$lockUntil"}, ["date", "missing", "null"]]}
    acquired = {"$mergeObjects": ["$$ROOT", new]}
    free = {"$and": [is_date, is_free]}
    return [{"$replaceWith": {"$cond": [free, acquired, "$$ROOT"]}}]


def to_document(entry: Entry, before: Document) -> Document:
    """Return the fields of the entry that follows this document."""
    is_of_java = entry.locked_by == before.get("lockedBy") and not _is_ours(before)
    return {
        "lockUntil": _date(entry.lock_until),
        "lockedAt": _date(entry.locked_at),
        "lockedBy": entry.locked_by,
        "acquiredBy": None if is_of_java else entry.locked_by,
        "atLeastUntil": _date(entry.lock_at_least_until),
        "extendedAt": None if entry.extended_at is None else _date(entry.extended_at),
        "fencingToken": entry.fencing_token,
        "isReleased": entry.is_released,
        "ticks": entry.ticks,
        "changes": (before.get("changes") or 0) + 1,
    }


def parse(document: Document) -> Read:
    """Return the entry of a document, itself, and the clock; or ``ValueError``."""
    now, name = seconds(document["now"]), document["_id"]
    if not isinstance(name, str) or "\ufffd" in name:
        raise ValueError(f"its _id {name!r} is no text")
    try:
        lease_end = seconds(document["lockUntil"])
        is_ours = _is_ours(document)
        beat = document.get("extendedAt") if is_ours else None
        at_least = document["atLeastUntil"] if is_ours else document["lockUntil"]
        entry = Entry(
            locked_by=document["lockedBy"],
            locked_at=seconds(document["lockedAt"]),
            lock_until=lease_end,
            lock_at_least_until=seconds(at_least),
            fencing_token=document.get("fencingToken", 0),
            # Java tells an end, not whether it is that of the lease or of the job.
            is_released=document["isReleased"] if is_ours else lease_end <= now,
            extended_at=None if beat is None else seconds(beat),
            ticks=document.get("ticks", ""),
        )
        # It has the same types as one that was read as JSON.
        return Entry.from_json(entry.to_json()), document, now
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{document!r} is no document of a lock: {error}") from error


def seconds(date: Any) -> float:
    """Return the seconds since 1970 of a date of MongoDB, or of a ``Timestamp``."""
    # Java writes that by its DbTimeMongoLockProvider.
    moment = date.as_datetime() if hasattr(date, "inc") else date
    return float(moment.timestamp())


def _is_ours(document: Document) -> bool:
    # Java's name is the same for all locks of a host, ours for no two acquisitions.
    return document.get("acquiredBy") == document.get("lockedBy")


def after(time: timedelta) -> Document:
    """Return the instant so long from now, by the server's clock."""
    return {"$add": [NOW, ceil(time / MILLISECOND)]}


def _date(moment: float) -> datetime:
    # Never a lease that is shorter than it was promised.
    milliseconds = ceil(round(moment * 1000, 2))
    return datetime.fromtimestamp(0, UTC) + milliseconds * MILLISECOND
