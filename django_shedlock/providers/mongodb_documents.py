"""
The documents of locks in MongoDB, and the pipelines that change them.

ShedLock for Java has the fields ``_id``, ``lockUntil``, ``lockedAt`` and ``lockedBy``,
and leaves all others as they are. So most of the others count only while ``acquiredBy``
is ``lockedBy``. The fields of ``JobState`` always count. They have its names in camel
case. Dates have milliseconds.
"""

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
    RECORD_FORMAT,
    Entry,
    Read,
    check_format,
    instant_of,
    optional_instant_of,
)

Document = dict[str, Any]
"""A document, or a part of an operation, as PyMongo takes and returns it."""


def _in_camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


JOB_DOCUMENT_FIELDS = {name: _in_camel_case(name) for name in JOB_FIELDS}
"""The names in a document of the fields of ``JobAccount``."""
# These tell any two versions of a document apart. Each of our changes counts in
# ``changes``, and each of Java's changes another of these fields.
COMPARED_FIELDS = ("lockUntil", "lockedAt", "lockedBy", "changes")
READABLE_FORMATS = (None, *range(1, RECORD_FORMAT + 1))
"""The values of ``minFormat`` that this version reads: see ``check_format()``."""


def projection() -> Document:
    """Return what to read: the fields of a document, and the server's clock."""
    names = (
        *COMPARED_FIELDS,
        *("acquiredBy", "atLeastUntil", "extendedAt"),
        *("fencingToken", "isReleased", "ticks", "minFormat"),
        *JOB_DOCUMENT_FIELDS.values(),
    )
    return {**dict.fromkeys(names, 1), "now": "$$NOW"}


def readable(name: str, **values: object) -> Document:
    """Return what finds the document if this version reads it, with these values."""
    return {"_id": name, "minFormat": {"$in": list(READABLE_FORMATS)}, **values}


def unchanged(name: str, document: Document) -> Document:
    """Return what finds the document if nobody has changed it since it was read."""
    return {"_id": name, **{each: document.get(each) for each in COMPARED_FIELDS}}


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
    # If ``lockUntil`` is no date, the lock is not free, and a reader reports the error.
    is_free = {"$lte": [{"$ifNull": ["$lockUntil", "$$NOW"]}, "$$NOW"]}
    is_date = {"$in": [{"$type": "$lockUntil"}, ["date", "missing", "null"]]}
    # If an answer was lost, a lock that is ours already is not acquired again.
    is_new = {"$ne": [known("lockedBy"), ours]}
    is_readable = {"$in": [known("minFormat"), list(READABLE_FORMATS)]}
    acquired = {"$mergeObjects": ["$$ROOT", new]}
    free = {"$and": [is_date, is_free, is_new, is_readable]}
    return [{"$replaceWith": {"$cond": [free, acquired, "$$ROOT"]}}]


def _abandoning() -> Document:
    """Return the fields that account for a run that is still open, if there is one."""
    is_open = {"$ne": [known("openRun"), None]}
    # If Java has acquired the lock since, nobody knows when the run started.
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
    """Return the last run if somebody else accounted for it."""
    if document.get("outcome") != RunOutcome.ABANDONED:
        return None
    started_at = optional_instant_of(_optional_seconds(document.get("startedAt")))
    ended_at = instant_of(seconds_of(document["endedAt"]))
    return AbandonedRun(document["lastRun"], started_at, ended_at)


def releasing(lock: Lock, *, succeeded: bool) -> list[Document]:
    """Return the pipeline that releases the lock, and accounts for its run."""
    # If the clock was set back, keep the lock no longer than after an acquisition now.
    kept = {"$min": ["$atLeastUntil", after(lock.lock_at_least_for)]}
    new: Document = {
        "lockUntil": {"$max": ["$$NOW", kept]},
        "isReleased": True,
        "lastRun": "$openRun",
        "startedAt": "$lockedAt",
        "endedAt": "$$NOW",
        "openRun": None,
        "outcome": lock.failed_outcome.value,
        "failures": {"$add": [known("failures", 0), 1]},
        "changes": next_change(),
    }
    if succeeded:
        new["outcome"] = RunOutcome.SUCCEEDED.value
        new["failures"] = 0
        new["succeededAt"] = "$$NOW"
        new["usual"] = _next_usual(lock.took)
    return [{"$set": new}]


def _next_usual(took: float) -> Document:
    """Return what computes ``next_usual()`` on the server."""
    at_most = {"$add": [{"$multiply": ["$usual", 2]}, 15]}
    counted = {"$min": [at_most, {"$max": [{"$multiply": ["$usual", 0.75]}, took]}]}
    old, new = {"$multiply": ["$usual", 0.75]}, {"$multiply": [counted, 0.25]}
    is_first = {"$eq": [known("usual"), None]}
    return {"$cond": [is_first, took, {"$add": [old, new]}]}


def next_change() -> Document:
    """Return what computes the number of the next change on the server."""
    return {"$add": [{"$ifNull": ["$changes", 0]}, 1]}


def known(field: str, otherwise: object = None) -> Document:
    """Return what reads a field on the server; ``otherwise`` replaces a missing one."""
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
            for name, field in JOB_DOCUMENT_FIELDS.items()
        },
    }


def parse(document: Document) -> Read[Document]:
    """
    Return the entry of a document, the document itself, and the server's clock.

    Raises ``ValueError`` if it is no document of a lock.
    """
    check_format(document.get("minFormat"))
    now, name = seconds_of(document["now"]), document["_id"]
    job: dict[str, Any] = {
        name: document.get(field) for name, field in JOB_DOCUMENT_FIELDS.items()
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
            # Java writes one end, whether it is that of the lease or of the job.
            is_released=document["isReleased"] if is_ours else lease_end <= now,
            extended_at=None if heartbeat is None else seconds_of(heartbeat),
            ticks=document.get("ticks", ""),
            **job,
        )
        # Its values get the types that they have in an entry read as JSON.
        return Entry.from_json(entry.to_json()), document, now
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{document!r} is no document of a lock: {error}") from error


def seconds_of(date: Any) -> float:
    """Return the seconds since 1970 of a date of MongoDB, or of a ``Timestamp``."""
    # Java's DbTimeMongoLockProvider writes a ``Timestamp``.
    moment = date.as_datetime() if hasattr(date, "inc") else date
    return float(moment.timestamp())


def _optional_seconds(date: Any) -> float | None:
    return None if date is None else seconds_of(date)


def _job_value(name: str, value: Any) -> object:
    return _date(value) if name in JOB_INSTANT_FIELDS and value is not None else value


def _is_ours(document: Document) -> bool:
    # All locks of a host have the same ``lockedBy`` of Java. Ours is always another.
    return document.get("acquiredBy") == document.get("lockedBy")


def after(time: timedelta) -> Document:
    """Return what computes on the server the instant that is so long from now."""
    return {"$add": ["$$NOW", ceil(time / timedelta(milliseconds=1))]}


def _date(moment: float) -> datetime:
    # Round up, so that no lease is shorter than promised.
    milliseconds = ceil(round(moment * 1000, 2))
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds)
