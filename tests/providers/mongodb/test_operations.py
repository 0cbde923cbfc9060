"""What is sent to MongoDB, what it keeps, and what a lost answer changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import bson
import pytest
from bson.datetime_ms import DatetimeMS
from pymongo import monitoring
from pymongo.errors import OperationFailure, ProtocolError, WTimeoutError

from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.configuration import LockConfiguration
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockHolder
from django_shedlock.providers import mongodb_documents as documents
from django_shedlock.providers.entries import Entry
from django_shedlock.providers.mongodb import MongoLockProvider
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import Start, Trigger
from tests.providers.mongodb.test_contract import lost_answers
from tests.support.locks import (
    MINUTE,
    configure,
    status_of,
    take,
    try_from,
    try_to_acquire,
    try_to_release,
)
from tests.support.ports import free_port
from tests.support.proxies import proxy
from tests.support.waiting import wait_for

MILLISECOND = timedelta(milliseconds=1)


class Commands(monitoring.CommandListener):
    """Collects the names of the commands that are sent."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.sent: list[Any] = []

    def started(self, event: Any) -> None:
        self.names.append(event.command_name)
        self.sent.append(event.command)

    def succeeded(self, event: Any) -> None:
        pass

    def failed(self, event: Any) -> None:
        pass

    @contextmanager
    def expected(self, *names: str) -> Iterator[None]:
        """Assert that just these are sent."""
        self.names.clear()
        yield
        assert self.names == list(names)


@pytest.fixture
def commands() -> Commands:
    return Commands()


@pytest.fixture
def watched(mongodb: dict[str, Any], commands: Commands) -> Iterator[MongoLockProvider]:
    provider = MongoLockProvider("default", **mongodb, event_listeners=[commands])
    provider.clock()
    yield provider
    provider.clients.close()


def document(locks: MongoLockProvider, name: str = "job") -> dict[str, Any]:
    found: dict[str, Any] = locks.collection.find_one({"_id": name})
    return found


def test_operations_of_a_lock(watched: MongoLockProvider, commands: Commands) -> None:
    """Each step of a lock is one operation. A refused acquisition takes two."""
    with commands.expected("findAndModify"):
        lock = take(configure(), watched)
    with commands.expected("findAndModify", "aggregate"):
        assert isinstance(try_from(watched, configure()), LockHolder)
    with commands.expected("findAndModify"):
        assert watched.extend(lock, MINUTE)
    with commands.expected("findAndModify"):
        assert watched.release(lock)
    with commands.expected("aggregate"):
        watched.statuses()


ELSEWHERE = "readPreference=secondary&readConcernLevel=available&w=0&journal=false"


def test_url_weakens_nothing(mongodb: dict[str, Any], commands: Commands) -> None:
    """Reads ask the primary for its newest data, and a majority confirms writes."""
    url = f"{mongodb['url'].partition('?')[0]}?{ELSEWHERE}"
    options = {**mongodb, "url": url, "event_listeners": [commands]}
    locks = MongoLockProvider("default", **options)
    lock = take(configure(), locks)
    assert locks.extend(lock, MINUTE)
    assert status_of(locks, "job").remaining
    assert list(locks.names()) == ["job"]
    assert lock.release()
    reads = [each for each in commands.sent if {"aggregate", "find"} & {*each}]
    writes = [each for each in commands.sent if "findAndModify" in each]
    assert (len(reads), len(writes)) == (2, 3)
    for each in reads:
        assert each.get("$readPreference", {"mode": "primary"}) == {"mode": "primary"}
        assert each.get("readConcern", {"level": "local"}) == {"level": "local"}
    assert all(each["writeConcern"] == {"w": "majority"} for each in writes)
    locks.clients.close()


def test_operations_of_a_tick(watched: MongoLockProvider, commands: Commands) -> None:
    """Two to acquire a lock of a schedule, and two for a tick that succeeded."""
    schedule = Schedule("0 0 1 1 *", "UTC")
    configuration = LockConfiguration("job", MINUTE, schedule=schedule)
    with commands.expected("aggregate", "hello", "insert"):
        lock = take(configuration, watched)
    with commands.expected("aggregate", "update"):
        assert watched.release(lock)
    with commands.expected("aggregate"):
        assert isinstance(try_from(watched, configuration), LockHolder)
    forced = replace(configuration, start=Start(Trigger.OPERATOR))
    with commands.expected("aggregate", "update"):
        assert isinstance(try_from(watched, forced), Lock)


def test_document(locks: MongoLockProvider) -> None:
    """Java's fields are dates and a text; ours stand beside them."""
    lock = take(configure(lock_at_least_for=MINUTE), locks)
    found = document(locks)
    assert found["lockedBy"] == found["acquiredBy"] == lock.locked_by
    assert found["lockUntil"] - found["lockedAt"] == configure().lock_at_most_for
    assert found["atLeastUntil"] - found["lockedAt"] == MINUTE
    assert (found["fencingToken"], found["isReleased"]) == (lock.fencing_token, False)
    milliseconds = round(found["lockedAt"].timestamp() * 1000)
    assert abs(found["fencingToken"] - milliseconds) < 5
    assert (found["openRun"], found["failures"]) == (lock.locked_by, 0)
    assert abs(found["lockedAt"] - datetime.now(UTC)) < 5 * MINUTE


def test_held_lock_is_not_written(locks: MongoLockProvider) -> None:
    """Who comes second changes nothing."""
    take(configure(), locks)
    before = document(locks)
    assert isinstance(try_from(locks, configure()), LockHolder)
    assert document(locks) == before


def set_back(locks: MongoLockProvider, by: timedelta) -> None:
    """Let the lock be as if the server's clock had been set back by so much."""
    fields = ("lockUntil", "lockedAt", "atLeastUntil")
    later = {field: {"$add": [f"${field}", by // MILLISECOND]} for field in fields}
    locks.collection.update_one({"_id": "job"}, [{"$set": later}])


def test_release_tells_when_it_was(locks: MongoLockProvider) -> None:
    """A lock that nothing keeps ends now, not when it was acquired."""
    lock = take(configure(), locks)
    set_back(locks, -MINUTE / 2)
    assert locks.release(lock)
    found = document(locks)
    assert found["lockUntil"] - found["lockedAt"] >= MINUTE / 2


@pytest.mark.parametrize(
    "change",
    [
        {"lockUntil": datetime.now(UTC)},
        {"lockedAt": datetime.now(UTC)},
        {"lockedBy": "java"},
        {"changes": 7},
    ],
    ids=lambda change: next(iter(change)),
)
def test_write_changes_only_what_was_read(
    locks: MongoLockProvider, change: dict[str, Any]
) -> None:
    """Whatever field somebody changed since, Java's or ours."""
    take(configure(), locks)
    entry, version, _ = locks.read("job")
    assert entry is not None
    locks.collection.update_one({"_id": "job"}, {"$set": change})
    before = document(locks)
    assert not locks.write("job", entry, version)
    assert document(locks) == before


def test_lease_is_rounded_up() -> None:
    """MongoDB has milliseconds, and no lease may end early."""
    moment = 1_800_000_000.0004
    fields = documents.to_document(Entry("me", moment, moment, moment), {})
    assert fields["lockUntil"].timestamp() == 1_800_000_000.001
    again = documents.to_document(Entry("me", moment, 1_800_000_000.001, moment), {})
    assert again["lockUntil"] == fields["lockUntil"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"_id": b"gr\xfcn"},
        {"_id": 7},
        {"lockUntil": float("inf")},
        {"fencingToken": float("nan")},
        {"lockedBy": None},
    ],
    ids=repr,
)
def test_foreign_document(locks: MongoLockProvider, wrong: dict[str, Any]) -> None:
    """A foreign document is listed as unreadable, and hides no other lock."""
    take(configure("other"), locks)
    right = document(locks, "other")
    locks.collection.insert_one({**right, "_id": "job", **wrong})
    found = {status.name: bool(status.unreadable) for status in locks.statuses()}
    assert found.pop("other") is False
    assert list(found.values()) == [True]


@pytest.mark.parametrize("moment", [2**62, -(2**62)])
def test_instant_that_python_does_not_know(
    locks: MongoLockProvider, moment: int
) -> None:
    """A date that Python can't represent spoils only its own document."""
    take(configure(), locks)
    date = DatetimeMS(moment)
    right = {**locks.read("job")[1], "now": locks.now()}
    answer = bson.encode({"cursor": [right, {**right, "lockUntil": date}]})
    one, other = bson.decode(answer, locks.collection.codec_options)["cursor"]
    assert documents.parse(one)[0]
    with pytest.raises(ValueError, match="is no document of a lock"):
        documents.parse(other)


def test_name_that_is_no_utf_8(locks: MongoLockProvider) -> None:
    """A name that is not UTF-8 is reported, and the answer is still decoded."""
    take(configure("gr__n"), locks)
    right = {**locks.read("gr__n")[1], "now": locks.now()}
    answer = bson.encode(right).replace(b"gr__n", b"gr\xfc\xfcn")
    found = bson.decode(answer, locks.collection.codec_options)
    with pytest.raises(ValueError, match="is no text"):
        documents.parse(found)


LOST_SHARD = OperationFailure(
    "lost", 6, {"ok": 0, "code": 6, "errorLabels": ["RetryableWriteError"]}
)
"""What mongos answers if it has lost the server that has the document."""


@pytest.mark.parametrize(
    "error",
    [
        WTimeoutError("no majority"),
        ProtocolError("another's answer"),
        LOST_SHARD,
        # These are none of PyMongo's own.
        ConnectionResetError(104, "lost"),
        KeyError("lost"),
        RuntimeError("lost"),
    ],
    ids=repr,
)
def test_change_that_may_not_stay(locks: MongoLockProvider, error: Exception) -> None:
    """Nobody knows whether it stays; asked again, MongoDB says so."""
    lock = Lock(locks, configure())
    with lost_answers(1, error):
        with pytest.raises(LockProviderError, match="'job' in MongoDB") as raised:
            locks.acquire(lock)
    assert raised.value.is_uncertain
    assert locks.acquire(lock) is None
    assert document(locks)["fencingToken"] == lock.fencing_token
    assert document(locks)["changes"] == 1


def test_holder_that_is_no_text(locks: MongoLockProvider) -> None:
    """A document with an unreadable holder stays unchanged, and the error says so."""
    take(configure(), locks)
    locks.collection.update_one({"_id": "job"}, {"$set": {"lockedBy": 1}})
    before = document(locks)
    with pytest.raises(LockProviderError, match="'job'.*can't be read"):
        try_from(locks, configure())
    assert document(locks) == before


def test_network_that_is_cut(mongodb: dict[str, Any]) -> None:
    """The operation fails in time, and nobody knows whether MongoDB does it."""
    host = urlsplit(mongodb["url"]).port or 27017
    with proxy(host) as network:
        url = f"mongodb://127.0.0.1:{network.port}/?directConnection=true"
        options = {**mongodb, "url": url, "timeout": "500ms"}
        locks = MongoLockProvider("default", **options)
        lock = Lock(locks, configure())
        warm = Lock(locks, configure("warm"))
        assert wait_for(lambda: try_to_acquire(warm))
        with network.cut():
            with pytest.raises(LockProviderError, match="'job' in MongoDB") as raised:
                locks.acquire(lock)
            assert raised.value.is_uncertain
        assert wait_for(lambda: try_to_acquire(lock))
        assert wait_for(lambda: try_to_release(lock))
        locks.clients.close()


def test_nobody_listens() -> None:
    """Then it is certain that nothing was done, and the error is short."""
    url = f"mongodb://me:secret@127.0.0.1:{free_port()}"
    locks = MongoLockProvider("default", url=url, timeout="200ms")
    with pytest.raises(LockProviderError, match="'job' in MongoDB") as failure:
        try_from(locks, configure())
    assert not failure.value.is_uncertain
    assert "secret" not in str(failure.value)
    assert len(str(failure.value)) < 300
    locks.clients.close()
