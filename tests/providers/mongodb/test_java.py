"""ShedLock for Java on the same collection, by the operations that it sends."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from bson import Timestamp
from pymongo.errors import DuplicateKeyError

from django_shedlock.locks.configuration import LockConfiguration
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockHolder, LockState, RunOutcome
from django_shedlock.providers.mongodb import MongoLockProvider
from django_shedlock.schedules.state import Start, Trigger
from django_shedlock.testing.contract.harness import force_extend
from tests.support.locks import (
    MINUTE,
    configure,
    force_release,
    status_of,
    take,
    take_at_last,
    try_from,
)
from tests.support.processes import Parent, workers
from tests.support.waiting import STARTUP_PATIENCE

ZERO = timedelta(0)
PAIRS, STEPS = 3, 10


class JavaShedLock:
    """ShedLock with ``MongoLockProvider``: its host's clock counts."""

    def __init__(self, locks: MongoLockProvider, host: str = "java"):
        self.host, self._collection = host, locks.collection

    def lock(self, name: str, at_most: timedelta) -> bool:
        """Update or insert the document; if that is there already, it is held."""
        now = datetime.now(UTC)
        lease = {"lockUntil": now + at_most, "lockedAt": now, "lockedBy": self.host}
        free = {"_id": name, "lockUntil": {"$lte": now}}
        try:
            self._collection.find_one_and_update(free, {"$set": lease}, upsert=True)
        except DuplicateKeyError:
            return False
        return True

    def extend(self, name: str, at_most: timedelta) -> bool:
        """Begin the lease anew, if it is not over and was not another's since."""
        now = datetime.now(UTC)
        ours = {"_id": name, "lockUntil": {"$gt": now}, "lockedBy": self.host}
        lease = {"$set": {"lockUntil": now + at_most}}
        return self._collection.find_one_and_update(ours, lease) is not None

    def unlock(self, name: str, at_least: timedelta = ZERO) -> None:
        """Let the lease end. ShedLock doesn't ask whose it is."""
        lease_end = datetime.now(UTC) + at_least
        end = {"$set": {"lockUntil": lease_end}}
        self._collection.find_one_and_update({"_id": name}, end)


@pytest.fixture
def java(locks: MongoLockProvider) -> JavaShedLock:
    return JavaShedLock(locks)


def end_lease(locks: MongoLockProvider) -> None:
    past = datetime.now(UTC) - timedelta(seconds=1)
    change = {"$set": {"lockUntil": past}}
    locks.collection.update_one({"_id": "job"}, change)


def test_java_holds(locks: MongoLockProvider, java: JavaShedLock) -> None:
    """We are refused, are told by whom, and see its extension."""
    assert java.lock("job", MINUTE)
    assert not java.lock("job", MINUTE)
    holder = try_from(locks, configure())
    assert isinstance(holder, LockHolder)
    assert holder.locked_by == "java"
    assert java.extend("job", 10 * MINUTE)
    status = status_of(locks, "job")
    assert status.state is LockState.RUNNING
    assert 9 * MINUTE < status.remaining <= 10 * MINUTE
    java.unlock("job")
    assert isinstance(try_from(locks, configure()), Lock)


def test_we_hold(locks: MongoLockProvider, java: JavaShedLock) -> None:
    """Java is refused, until we release, or our lease is over."""
    lock = take(configure(), locks)
    assert not java.lock("job", MINUTE)
    assert not java.extend("job", MINUTE)
    assert locks.extend(lock, 5 * MINUTE)
    assert not java.lock("job", MINUTE)
    assert locks.release(lock)
    assert java.lock("job", MINUTE)


def test_we_keep_a_lock(locks: MongoLockProvider, java: JavaShedLock) -> None:
    """What lock_at_least_for keeps Java can't get either."""
    assert locks.release(take(configure(lock_at_least_for=MINUTE), locks))
    assert not java.lock("job", MINUTE)


def test_java_took_what_was_ours(locks: MongoLockProvider, java: JavaShedLock) -> None:
    """We neither extend nor release it, and our fields say nothing of it."""
    lock = take(configure(lock_at_least_for=MINUTE), locks)
    assert locks.extend(lock, MINUTE)
    end_lease(locks)
    assert java.lock("job", MINUTE)
    assert not locks.extend(lock, MINUTE)
    assert not locks.release(lock)
    status = status_of(locks, "job")
    assert (status.state, status.heartbeat_at) == (LockState.RUNNING, None)
    java.unlock("job")
    status = status_of(locks, "job")
    assert status.state is LockState.EXPIRED  # nobody has accounted for our run
    assert take(configure(), locks).fencing_token > lock.fencing_token


def test_java_between_two_of_our_runs(
    locks: MongoLockProvider, java: JavaShedLock
) -> None:
    """Our killed run is counted once, and Java's own run is not."""
    killed = take(configure(), locks)
    end_lease(locks)
    assert java.lock("job", MINUTE)
    assert status_of(locks, "job").state is LockState.RUNNING
    java.unlock("job")
    status = status_of(locks, "job")
    assert status.state is LockState.EXPIRED
    assert status.job.open_run == killed.locked_by
    lock = take(configure(), locks)
    job = status_of(locks, "job").job
    assert (job.last_run, job.outcome) == (killed.locked_by, RunOutcome.ABANDONED)
    assert (job.failures, job.started_at) == (1, None)
    assert lock.abandoned is not None
    assert lock.abandoned.started_at is None
    assert locks.release(lock)
    assert java.lock("job", MINUTE)
    java.unlock("job")
    assert take(configure(), locks).abandoned is None
    assert status_of(locks, "job").job.failures == 0


def test_java_took_what_we_released(
    locks: MongoLockProvider, java: JavaShedLock
) -> None:
    """
    A lock that Java took stays held, although our field says "released".

    Not even a forced start acquires the lock.
    """
    assert locks.release(take(configure(), locks))
    assert java.lock("job", MINUTE)
    assert status_of(locks, "job").state is LockState.RUNNING
    forced = LockConfiguration("job", MINUTE, start=Start(Trigger.OPERATOR))
    assert isinstance(try_from(locks, forced), LockHolder)


def test_java_writes_a_timestamp(locks: MongoLockProvider, java: JavaShedLock) -> None:
    """By ``DbTimeMongoLockProvider``, ``lockedAt`` is of another type than a date."""
    assert java.lock("job", MINUTE)
    moment = Timestamp(int(time.time()) - 10, 1)
    change = {"$set": {"lockedAt": moment}}
    locks.collection.update_one({"_id": "job"}, change)
    holder = try_from(locks, configure())
    assert isinstance(holder, LockHolder)
    status = status_of(locks, "job")
    assert status.locked_at == moment.as_datetime()
    assert force_release(locks, "job")
    assert isinstance(try_from(locks, configure()), Lock)


def test_operators_act_on_javas_lock(
    locks: MongoLockProvider, java: JavaShedLock
) -> None:
    """Again and again: what they did to one lease says nothing of the next."""
    for _ in range(2):
        assert java.lock("job", MINUTE)
        assert force_extend(locks, "job", 10 * MINUTE)
        assert status_of(locks, "job").remaining > 9 * MINUTE
        assert status_of(locks, "job").state is LockState.RUNNING
        assert force_release(locks, "job")
        assert status_of(locks, "job").state is LockState.FREE


def test_end_of_javas_lease_is_no_finding(
    locks: MongoLockProvider, java: JavaShedLock
) -> None:
    """Java tells no released lock from one whose lease is over."""
    assert java.lock("job", MINUTE)
    end_lease(locks)
    assert status_of(locks, "job").state is LockState.FREE


def count_up(
    parent: Parent, options: dict[str, Any], is_java: bool, counter: str
) -> None:
    """Add to a number in a file, which is read, and written, under the lock."""
    locks, path = MongoLockProvider("default", **options), Path(counter)
    java = JavaShedLock(locks, f"java {random.random()}")
    for _ in range(STEPS):
        lock = take_java(java) if is_java else take_at_last(locks, configure())
        value = int(path.read_text())
        time.sleep(0.001)
        path.write_text(str(value + 1))
        if isinstance(lock, Lock):
            assert locks.release(lock)
        else:
            java.unlock("job")


def take_java(java: JavaShedLock) -> None:
    deadline = time.monotonic() + STARTUP_PATIENCE
    while not java.lock("job", MINUTE):
        assert time.monotonic() < deadline
        time.sleep(random.uniform(0.001, 0.005))


def test_workers_of_both_never_overlap(
    locks: MongoLockProvider, mongodb: dict[str, Any], tmp_path: Path
) -> None:
    """Three processes of each lose no step of a number that they count up."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    with (
        workers(PAIRS, count_up, mongodb, True, str(counter)) as javas,
        workers(PAIRS, count_up, mongodb, False, str(counter)) as ours,
    ):
        for each in [*javas, *ours]:
            each.result()
    assert int(counter.read_text()) == 2 * PAIRS * STEPS
