"""
The documents of locks: what MongoDB is sent to change one, and what it keeps.

ShedLock for Java has the fields ``_id``, ``lockUntil``, ``lockedAt`` and ``lockedBy``,
and leaves the others as they are. So most of these count only while ``acquiredBy`` is
``lockedBy``. Those of ``JobState`` always count; they have its names in camel case.
Dates have milliseconds.
"""

import time
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any

from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import (
    JOB_FIELDS,
    JOB_INSTANT_FIELDS,
    AbandonedRun,
    RunOutcome,
)
from django_shedlock.providers.entries import (
    Entry,
    Read,
    instant_of,
    optional_instant_of,
)

Document = dict[str, Any]


def _in_camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


DOCUMENT_NAMES = {name: _in_camel_case(name) for name in JOB_FIELDS}
"""The fields of ``JobAccount``, with their names in a document."""
COMPARED_FIELDS = ("lockUntil", "lockedAt", "lockedBy", "changes")
"""Each change of ours counts in ``changes``; each of Java's changes another field."""
READ_FIELDS: Document = {
    **dict.fromkeys(COMPARED_FIELDS, 1),
    **dict.fromkeys(("acquiredBy", "atLeastUntil", "extendedAt"), 1),
    **dict.fromkeys(("fencingToken", "isReleased", "ticks"), 1),
    **dict.fromkeys(DOCUMENT_NAMES.values(), 1),
    "now": "$$NOW",
}
"""The projection of what is read: the fields of a document, and the server's clock."""


def acquiring(lock: Lock) -> list[Document]:
    """Return the pipeline that acquires the lock if it is free."""
    configuration = lock.configuration
    ours = {"$literal": lock.locked_by}
    token = {"$add": [known("fencingToken", 0), 1]}
    new = {
        **_abandoning(),
        "lockUntil": after(configuration.lock_at_most_for),
        "lockedAt": "$$NOW",
        "lockedBy": ours,
        "acquiredBy": ours,
        "openRun": ours if lock.opens_run else None,
        "atLeastUntil": after(configuration.lock_at_least_for),
        "extendedAt": None,
        "fencingToken": {"$max": [token, {"$toLong": "$$NOW"}]},
        "isReleased": False,
        "changes": next_change(),
    }
    # A date that is no date is not free: it is reported.
    is_free = {"$lte": [{"$ifNull": ["$lockUntil", "$$NOW"]}, "$$NOW"]}
    is_date = {"$in": [{"$type": "$lockUntil"}, ["date", "missing", "null"]]}
    # Our own, if an answer was lost, is not acquired again.
    is_new = {"$ne": [known("lockedBy"), ours]}
    acquired = {"$mergeObjects": ["$$ROOT", new]}
    free = {"$and": [is_date, is_free, is_new]}
    return [{"$replaceWith": {"$cond": [free, acquired, "$$ROOT"]}}]


def _abandoning() -> Document:
    """Return the fields that account for a run that is still open, if there is one."""
    is_open = {"$ne": [known("openRun"), None]}
    # Java may have acquired the lock since: then its start is not known.
    is_holder = {"$eq": [known("openRun"), known("lockedBy")]}
    began = {"$cond": [is_holder, "$lockedAt", None]}
    abandoned = RunOutcome.ABANDONED.value
    return {
        "lastRun": {"$ifNull": ["$openRun", known("lastRun")]},
        "outcome": {"$cond": [is_open, abandoned, known("outcome")]},
        "failures": {"$add": [known("failures", 0), {"$cond": [is_open, 1, 0]}]},
        "endedAt": {"$cond": [is_open, "$lockUntil", known("endedAt")]},
        "startedAt": {"$cond": [is_open, began, known("startedAt")]},
    }


def abandoned_run(document: Document) -> AbandonedRun | None:
    """Return the last run, if somebody else accounted for it."""
    if document.get("outcome") != RunOutcome.ABANDONED:
        return None
    started_at = optional_instant_of(_optional_seconds(document.get("startedAt")))
    ended_at = instant_of(seconds_of(document["endedAt"]))
    return AbandonedRun(document["lastRun"], started_at, ended_at)


def releasing(lock: Lock, *, succeeded: bool) -> list[Document]:
    """Return the pipeline that releases the lock, and accounts for its run."""
    # If the clock was set back, keep it no longer than if it were acquired now.
    kept = {"$min": ["$atLeastUntil", after(lock.lock_at_least_for)]}
    new: Document = {
        "lockUntil": {"$max": ["$$NOW", kept]},
        "isReleased": True,
        "lastRun": "$openRun",
        "startedAt": "$lockedAt",
        "endedAt": "$$NOW",
        "openRun": None,
        "outcome": RunOutcome.FAILED.value,
        "failures": {"$add": [known("failures", 0), 1]},
        "changes": next_change(),
    }
    if succeeded:
        took = time.monotonic() - lock.began
        new["outcome"] = RunOutcome.SUCCEEDED.value
        new["failures"] = 0
        new["succeededAt"] = "$$NOW"
        new["usual"] = _next_usual(took)
    return [{"$set": new}]


def _next_usual(took: float) -> Document:
    """Return the duration of ``next_usual()``."""
    at_most = {"$add": [{"$multiply": ["$usual", 2]}, 15]}
    counted = {"$min": [at_most, {"$max": [{"$multiply": ["$usual", 0.75]}, took]}]}
    old, new = {"$multiply": ["$usual", 0.75]}, {"$multiply": [counted, 0.25]}
    is_first = {"$eq": [known("usual"), None]}
    return {"$cond": [is_first, took, {"$add": [old, new]}]}


def next_change() -> Document:
    """Return the number of the next change."""
    return {"$add": [{"$ifNull": ["$changes", 0]}, 1]}


def known(field: str, otherwise: Any = None) -> Document:
    """Return the value of a field, which may be missing."""
    return {"$ifNull": [f"${field}", otherwise]}


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
        **{
            field: _job_value(name, getattr(entry, name))
            for name, field in DOCUMENT_NAMES.items()
        },
    }


def parse(document: Document) -> Read:
    """Return the entry of a document, itself, and the clock; or ``ValueError``."""
    now, name = seconds_of(document["now"]), document["_id"]
    job: dict[str, Any] = {
        name: document.get(field) for name, field in DOCUMENT_NAMES.items()
    }
    job["failures"] = job["failures"] or 0
    if not isinstance(name, str) or "\ufffd" in name:
        raise ValueError(f"its _id {name!r} is no text")
    try:
        lease_end = seconds_of(document["lockUntil"])
        is_ours = _is_ours(document)
        heartbeat = document.get("extendedAt") if is_ours else None
        at_least = document["atLeastUntil"] if is_ours else document["lockUntil"]
        job |= {each: _optional_seconds(job[each]) for each in JOB_INSTANT_FIELDS}
        entry = Entry(
            locked_by=document["lockedBy"],
            locked_at=seconds_of(document["lockedAt"]),
            lock_until=lease_end,
            lock_at_least_until=seconds_of(at_least),
            fencing_token=document.get("fencingToken", 0),
            # Java writes an end, not whether it is that of the lease or of the job.
            is_released=document["isReleased"] if is_ours else lease_end <= now,
            extended_at=None if heartbeat is None else seconds_of(heartbeat),
            ticks=document.get("ticks", ""),
            **job,
        )
        # It has the same types as one that was read as JSON.
        return Entry.from_json(entry.to_json()), document, now
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{document!r} is no document of a lock: {error}") from error


def seconds_of(date: Any) -> float:
    """Return the seconds since 1970 of a date of MongoDB, or of a ``Timestamp``."""
    # Java writes that by its DbTimeMongoLockProvider.
    moment = date.as_datetime() if hasattr(date, "inc") else date
    return float(moment.timestamp())


def _optional_seconds(date: Any) -> float | None:
    return None if date is None else seconds_of(date)


def _job_value(name: str, value: Any) -> Any:
    return _date(value) if name in JOB_INSTANT_FIELDS and value is not None else value


def _is_ours(document: Document) -> bool:
    # Java's name is the same for all locks of a host, ours for no two acquisitions.
    return document.get("acquiredBy") == document.get("lockedBy")


def after(time: timedelta) -> Document:
    """Return the instant so long from now, by the server's clock."""
    return {"$add": ["$$NOW", ceil(time / timedelta(milliseconds=1))]}


def _date(moment: float) -> datetime:
    # Never a lease that is shorter than it was promised.
    milliseconds = ceil(round(moment * 1000, 2))
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds)
