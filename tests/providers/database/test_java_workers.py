"""Workers of ShedLock for Java and ours, on one table."""

from __future__ import annotations

import os
import random
import time
from contextlib import closing
from datetime import timedelta

import pytest
from django.db import connection

from django_shedlock.locks.configuration import LockConfiguration
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockHolder, LockState
from django_shedlock.providers.database import DatabaseLockProvider
from tests.models import Counter
from tests.support.java_shedlock import JavaShedLock
from tests.support.locks import (
    MINUTE,
    configure,
    expire,
    status_of,
    take_at_last,
    take_from,
    try_from,
)
from tests.support.processes import Parent, workers
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.servers_only]

CLOCKS = pytest.mark.parametrize("by_server", [True, False], ids=["server", "own"])
PAIRS, ROUNDS = 3, 40


@pytest.fixture
def ours() -> DatabaseLockProvider:
    return DatabaseLockProvider("default")


@pytest.fixture
def java(by_server: bool) -> JavaShedLock:
    return JavaShedLock(connection, by_server=by_server)


def newcomer(by_server: bool) -> JavaShedLock:
    """Return a worker that does not know yet that there is a record."""
    return JavaShedLock(connection, by_server=by_server)


@CLOCKS
def test_java_holds(
    ours: DatabaseLockProvider, java: JavaShedLock, by_server: bool
) -> None:
    """We are refused, are told by whom, and see its extension."""
    assert java.lock("job", MINUTE)
    assert not newcomer(by_server).lock("job", MINUTE)
    holder = try_from(ours, configure())
    assert isinstance(holder, LockHolder)
    assert holder.locked_by == "java"
    assert java.extend("job", 10 * MINUTE)
    status = status_of(ours, "job")
    assert status.state is LockState.RUNNING
    assert 9 * MINUTE < status.remaining <= 10 * MINUTE
    assert java.unlock("job")
    assert isinstance(try_from(ours, configure()), Lock)


@CLOCKS
def test_we_hold(
    ours: DatabaseLockProvider, java: JavaShedLock, by_server: bool
) -> None:
    """Java is refused, whether or not it knows the record, and can't extend."""
    lock = take_from(ours, configure())
    for _ in range(2):
        assert not java.lock("job", MINUTE)
    assert not java.extend("job", MINUTE)
    assert ours.release(lock)
    assert wait_for(lambda: java.lock("job", MINUTE))


@CLOCKS
def test_both_keep_at_least(ours: DatabaseLockProvider, java: JavaShedLock) -> None:
    """lockAtLeastFor keeps us away, and ours keeps Java away."""
    assert java.lock("job", MINUTE)
    assert java.unlock("job", at_least=MINUTE)
    assert isinstance(try_from(ours, configure()), LockHolder)
    expire("job")
    kept = LockConfiguration("job", MINUTE, MINUTE)
    assert ours.release(take_from(ours, kept))
    assert not java.lock("job", MINUTE)


@CLOCKS
def test_late_python(ours: DatabaseLockProvider, java: JavaShedLock) -> None:
    """After our lease Java may run; we can neither extend nor release its lock."""
    lock = take_from(ours, configure())
    expire("job")
    assert wait_for(lambda: java.lock("job", MINUTE))  # it has milliseconds
    assert not ours.extend(lock, MINUTE)
    assert not ours.release(lock)
    assert isinstance(try_from(ours, configure()), LockHolder)


@CLOCKS
def test_late_java(
    ours: DatabaseLockProvider, java: JavaShedLock, by_server: bool
) -> None:
    """After its lease we may run. By its own clock it then ends our lease."""
    assert java.lock("job", MINUTE)
    expire("job")
    lock = take_from(ours, configure())
    assert not java.extend("job", MINUTE)
    assert java.unlock("job") is not by_server
    assert ours.extend(lock, MINUTE) is by_server


@CLOCKS
def test_token_grows_beside_java(
    ours: DatabaseLockProvider, java: JavaShedLock
) -> None:
    """Java's acquisitions have no token, and leave ours as it is."""
    assert java.lock("job", MINUTE)
    assert java.unlock("job")
    tokens = []
    for _ in range(2):
        lock = take_from(ours, configure())
        tokens.append(lock.fencing_token)
        assert ours.release(lock)
        assert wait_for(lambda: java.lock("job", MINUTE))
        assert java.unlock("job")
    assert tokens == sorted(set(tokens))


@pytest.mark.postgres_only
@pytest.mark.parametrize(
    ("zone", "shortest", "longest"),
    [
        ("Asia/Kolkata", timedelta(hours=-5.6), timedelta(0)),
        ("America/New_York", timedelta(hours=3), timedelta(hours=5.1)),
    ],
)
def test_jvm_outside_utc(zone: str, shortest: timedelta, longest: timedelta) -> None:
    """Its lease is hours too short or too long: the one condition on PostgreSQL."""
    with closing(connection.copy()) as other:
        with other.cursor() as cursor:
            cursor.execute("SELECT set_config('TimeZone', %s, false)", [zone])
        assert JavaShedLock(other, by_server=True).lock("job", MINUTE)
    with connection.cursor() as cursor:
        cursor.execute("SELECT lock_until - CURRENT_TIMESTAMP FROM shedlock")
        [(rest,)] = cursor.fetchall()
    assert shortest < rest < longest


def add_one(name: str) -> None:
    """Read, wait and write: who overlaps loses a step."""
    value = Counter.objects.get(name=name).value
    time.sleep(random.uniform(0, 0.002))
    Counter.objects.filter(name=name).update(value=value + 1)


def work_as_java(parent: Parent, by_server: bool) -> None:
    host = f"java-{os.getpid()}"  # a host name each: ShedLock has nothing else
    java = JavaShedLock(connection, by_server=by_server, host=host)
    for _ in range(ROUNDS):
        while not java.lock("job", MINUTE):
            time.sleep(random.uniform(0, 0.005))
        add_one("both")
        assert java.unlock("job")


def work_as_we_do(parent: Parent) -> None:
    provider = DatabaseLockProvider("default")
    for _ in range(ROUNDS):
        lock = take_at_last(provider, configure())
        add_one("both")
        assert provider.release(lock)


@CLOCKS
def test_processes_of_both_never_overlap(by_server: bool) -> None:
    """Three workers of each kind lose no step of a counter under one lock."""
    Counter.objects.create(name="both")
    with workers(PAIRS, work_as_we_do) as ours:
        with workers(PAIRS, work_as_java, by_server) as theirs:
            for each in [*ours, *theirs]:
                each.result()
    assert Counter.objects.get().value == 2 * PAIRS * ROUNDS
