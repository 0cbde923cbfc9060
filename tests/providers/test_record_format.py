"""Records of a newer version, through every operation of every store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.configuration import ZERO, LockConfiguration
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockState
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.dynamodb import DynamoDBLockProvider
from django_shedlock.providers.entries import RECORD_FORMAT, Entry, EntryLockProvider
from django_shedlock.providers.etcd import EtcdLockProvider
from django_shedlock.providers.mongodb import MongoLockProvider
from django_shedlock.providers.redis import RedisLockProvider
from django_shedlock.schedules.cron import Schedule
from tests.support.dynamodb_fixtures import dynamodb
from tests.support.etcd_servers import PATIENT, prefixes, running_etcd
from tests.support.locks import (
    MINUTE,
    configure,
    force_release,
    pause,
    status_of,
    take,
    try_from,
)
from tests.support.mongodb_fixtures import mongodb
from tests.support.redis_servers import (
    locks_on,
    redis_program,
    running_own_redis,
    running_redis,
    server,
)
from tests.support.zookeeper_servers import (
    locks_on as zookeeper_on,
)
from tests.support.zookeeper_servers import own_zookeeper, running_zookeeper

__all__ = [
    "dynamodb",
    "mongodb",
    "own_zookeeper",
    "redis_program",
    "running_etcd",
    "running_own_redis",
    "running_redis",
    "running_zookeeper",
    "server",
]
SCHEDULE = Schedule("0 0 1 1 *", "UTC")
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
SERVERS = {
    "redis": "server",
    "etcd": "running_etcd",
    "mongodb": "mongodb",
    "dynamodb": "dynamodb",
    "zookeeper": "running_zookeeper",
}


@contextmanager
def opened(store: str, server: Any) -> Iterator[EntryLockProvider[Any, Any]]:
    """Yield a provider without locks."""
    if store == "redis":
        with locks_on(server) as redis:
            yield redis
    elif store == "zookeeper":
        with zookeeper_on(server) as zookeeper:
            yield zookeeper
    elif store == "etcd":
        where = {"endpoints": [server.url], "prefix": next(prefixes)}
        etcd = EtcdLockProvider("default", **where, **PATIENT)
        yield etcd
        etcd.members.clients.close()
    elif store == "mongodb":
        mongo = MongoLockProvider("default", **server)
        yield mongo
        mongo.clients.close()
    else:
        dynamo = DynamoDBLockProvider("default", **server)
        yield dynamo
        dynamo.clients.close()


@pytest.fixture(params=SERVERS)
def locks(request: pytest.FixtureRequest) -> Iterator[EntryLockProvider[Any, Any]]:
    with opened(
        request.param, request.getfixturevalue(SERVERS[request.param])
    ) as provider:
        yield provider


FIELDS = {"zone": "eu", "min_format": RECORD_FORMAT}
"""What a newer version may write that this one understands well enough."""


def write_fields(
    locks: EntryLockProvider[Any, Any], name: str, fields: dict[str, Any]
) -> None:
    """Add these fields to the record, as a newer version does."""
    if isinstance(locks, RedisLockProvider):
        client, key = locks.server.clients.get(), locks.server.key(name)
        client.hset(key, mapping=fields)
    elif isinstance(locks, MongoLockProvider):
        named = {mongo_name(field): value for field, value in fields.items()}
        locks.collection.update_one({"_id": name}, {"$set": named})
    else:
        entry, version, _ = locks.read(name)
        assert entry is not None
        with_them = replace(entry, others={**entry.others, **fields})
        assert locks.write(name, with_them, version)


def fields_of(locks: EntryLockProvider[Any, Any], name: str) -> dict[str, Any]:
    """Return what the record has of these fields."""
    found: dict[str, Any]
    if isinstance(locks, RedisLockProvider):
        client, key = locks.server.clients.get(), locks.server.key(name)
        raw = {k.decode(): v.decode() for k, v in client.hgetall(key).items()}
        found = {**raw, "min_format": int(raw.get("min_format", 0))}
    elif isinstance(locks, MongoLockProvider):
        document = locks.collection.find_one({"_id": name}) or {}
        found = {field: document.get(mongo_name(field)) for field in FIELDS}
    else:
        entry = locks.read(name)[0]
        assert entry is not None
        found = entry.others
    return {field: found.get(field) for field in FIELDS}


def mongo_name(field: str) -> str:
    return "minFormat" if field == "min_format" else field


def test_unknown_fields_stay(locks: EntryLockProvider[Any, Any]) -> None:
    """Whatever this version does with the lock, it writes them back."""
    lock = take(configure(), locks)
    write_fields(locks, "job", FIELDS)
    assert try_from(locks, configure()) is not None
    assert locks.extend(lock, MINUTE)
    locks.request_run("job", "alice", "again")
    asked_at = status_of(locks).job.asked_at
    assert asked_at is not None
    assert locks.withdraw_request("job", asked_at)
    locks.note_unrecorded("job")
    assert locks.replace(status_of(locks), 2 * MINUTE)
    assert fields_of(locks, "job") == FIELDS
    assert locks.release(lock)
    assert fields_of(locks, "job") == FIELDS
    locks.register("job", SCHEDULE, LONG_AGO)
    scheduled = take(LockConfiguration("job", MINUTE, schedule=SCHEDULE), locks)
    assert fields_of(locks, "job") == FIELDS
    assert locks.release(scheduled)
    lost = take(configure(), locks)
    assert force_release(locks)
    locks.account_for_loss(lost, has_ended=True)
    assert locks.release(pause("job", locks))
    assert fields_of(locks, "job") == FIELDS


class Operations:
    """What may be done with a lock that is held, whose record is unreadable."""

    def __init__(self, locks: LockProvider, held: Lock):
        self._locks = locks
        self._held = held
        self._seen = status_of(locks)

    def acquire(self) -> object:
        return try_from(self._locks, configure())

    def acquire_with_a_schedule(self) -> object:
        return try_from(
            self._locks, LockConfiguration("job", MINUTE, schedule=SCHEDULE)
        )

    def extend(self) -> object:
        return self._locks.extend(self._held, MINUTE)

    def release(self) -> object:
        return self._locks.release(self._held)

    def release_again(self) -> object:
        self._held.was_release_tried = True
        return self._locks.release(self._held)

    def release_without_a_run(self) -> object:
        self._held.opens_run = False
        return self._locks.release(self._held)

    def account_for_loss(self) -> object:
        return self._locks.account_for_loss(self._held, has_ended=True)

    def force_release(self) -> object:
        return self._locks.replace(self._seen, ZERO)

    def force_extend(self) -> object:
        return self._locks.replace(self._seen, 5 * MINUTE)

    def request_run(self) -> object:
        return self._locks.request_run("job", "alice", "again")

    def withdraw_request(self) -> object:
        return self._locks.withdraw_request("job", self._seen.clock)

    def note_unrecorded(self) -> object:
        return self._locks.note_unrecorded("job")

    def register(self) -> object:
        return self._locks.register("job", SCHEDULE, LONG_AGO)


OPERATIONS = [name for name in vars(Operations) if not name.startswith("_")]
NEWER = {"zone": "eu", "min_format": RECORD_FORMAT + 1}


def test_newer_record_is_left_alone(locks: EntryLockProvider[Any, Any]) -> None:
    """No operation changes it, and each error says to upgrade."""
    held = take(configure(), locks)
    operations = Operations(locks, held)
    for name in OPERATIONS:
        # The record is as it was, but for its format.
        write_fields(locks, "job", NEWER)
        before = status_of(locks)
        assert before.state is LockState.FREE, "a newer record has no known state"
        assert "upgrade this process" in before.unreadable
        assert "delete" not in before.unreadable
        with pytest.raises(LockProviderError, match=r"'job'.* newer version") as raised:
            getattr(operations, name)()
        assert "delete" not in str(raised.value), name
        make_readable(locks)
        assert status_of(locks).locked_by == held.locked_by, name
        held.was_release_tried, held.opens_run = False, True
    assert locks.release(held)


def test_free_newer_record_is_not_acquired(locks: EntryLockProvider[Any, Any]) -> None:
    """Whatever the newer version means by it, it may not be free."""
    take(configure(), locks).release()
    write_fields(locks, "job", NEWER)
    with pytest.raises(LockProviderError, match=r"'job'.* newer version"):
        try_from(locks, configure())
    make_readable(locks)
    assert isinstance(try_from(locks, configure()), Lock)


def make_readable(locks: EntryLockProvider[Any, Any]) -> None:
    """Give the record the format of this version."""
    if isinstance(locks, RedisLockProvider | MongoLockProvider):
        write_fields(locks, "job", FIELDS)
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("django_shedlock.providers.entries.RECORD_FORMAT", 99)
        write_fields(locks, "job", FIELDS)


@pytest.mark.parametrize("least", ["2", 1.5, [], {}, True + 1])
def test_format_that_this_version_does_not_read(least: object) -> None:
    """Whatever its type, it is none of ours."""
    record = Entry.free(0)
    text = replace(record, others={"min_format": least}).to_json()
    with pytest.raises(ValueError, match="newer version"):
        Entry.from_json(text)
