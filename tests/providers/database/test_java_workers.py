"""Workers of ShedLock for Java and ours, on one table."""

from __future__ import annotations

import os
import random
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection
from django.db.backends.base.base import BaseDatabaseWrapper

from django_shedlock.locks.configuration import LockConfiguration
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockHolder, LockState
from django_shedlock.providers.database import DatabaseLockProvider
from tests.models import Counter
from tests.support.locks import (
    MINUTE,
    configure,
    expire,
    status_of,
    take,
    take_at_last,
    try_from,
)
from tests.support.processes import Parent, workers
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.servers_only]

ZERO = timedelta(0)


class JavaShedLock:
    """
    ShedLock 7.9 with ``JdbcTemplateLockProvider``, its JVM in UTC.

    By ``usingDbTime()`` the server's clock counts, otherwise the worker's own.
    """

    def __init__(
        self, connection: BaseDatabaseWrapper, *, by_server: bool, host: str = "java"
    ):
        self.host = host
        self._connection = connection
        self._is_postgres = connection.vendor == "postgresql"
        self._by_server = by_server
        self._has_record: set[str] = set()

    def lock(self, name: str, at_most: timedelta) -> bool:
        """Insert the record at the first time, otherwise update it."""
        values = self._values(name, at_most)
        if name not in self._has_record:
            self._has_record.add(name)
            if self._insert(values):
                return True
        condition = f"name = %(name)s AND lock_until <= {self._now}"
        return self._send(
            f"UPDATE shedlock SET {self._taken} WHERE {condition}", values
        )

    def extend(self, name: str, at_most: timedelta) -> bool:
        """Begin the lease anew, if it is not over and was not another's since."""
        return self._send(
            f"UPDATE shedlock SET lock_until = {self._until} WHERE name = %(name)s "
            f"AND locked_by = %(host)s AND lock_until > {self._now}",
            self._values(name, at_most),
        )

    def unlock(self, name: str, at_least: timedelta = ZERO) -> bool:
        """Let the lease end. By its own clock, ShedLock doesn't ask whose it is."""
        values = self._values(name, at_least=at_least)
        whose = " AND locked_by = %(host)s" if self._by_server else ""
        return self._send(
            f"UPDATE shedlock SET lock_until = {self._kept} "
            f"WHERE name = %(name)s{whose}",
            values,
        )

    def _insert(self, values: dict[str, Any]) -> bool:
        ignore = "IGNORE " if self._by_server and not self._is_postgres else ""
        statement = (
            f"INSERT {ignore}INTO shedlock (name, lock_until, locked_at, locked_by) "
            f"VALUES (%(name)s, {self._until}, {self._now}, %(host)s)"
        )
        if self._is_postgres:
            statement += (
                f" ON CONFLICT (name) DO UPDATE SET {self._taken} "
                f"WHERE shedlock.lock_until <= {self._now}"
            )
        try:
            return self._send(statement, values)
        except IntegrityError:
            return False

    @property
    def _taken(self) -> str:
        lease = f"lock_until = {self._until}, locked_at = {self._now}"
        return f"{lease}, locked_by = %(host)s"

    @property
    def _now(self) -> str:
        if not self._by_server:
            return "%(now)s"
        if self._is_postgres:
            return "timezone('utc', CURRENT_TIMESTAMP)"
        return "UTC_TIMESTAMP(3)"

    @property
    def _until(self) -> str:
        return self._later(self._now, "at_most") if self._by_server else "%(until)s"

    @property
    def _kept(self) -> str:
        if not self._by_server:
            return "%(kept)s"
        kept = self._later("locked_at", "at_least")
        return f"CASE WHEN {kept} > {self._now} THEN {kept} ELSE {self._now} END"

    def _later(self, instant: str, duration: str) -> str:
        if self._is_postgres:
            return f"{instant} + make_interval(secs => %({duration})s)"
        return f"TIMESTAMPADD(MICROSECOND, %({duration})s * 1000000, {instant})"

    def _values(
        self, name: str, at_most: timedelta = ZERO, at_least: timedelta = ZERO
    ) -> dict[str, Any]:
        # Java has milliseconds, and the driver sends no zone.
        now = datetime.now(UTC).replace(tzinfo=None)
        now -= timedelta(microseconds=now.microsecond % 1000)
        return {
            "name": name,
            "host": self.host,
            "now": now,
            "until": now + at_most,
            "kept": now + at_least,
            "at_most": at_most.total_seconds(),
            "at_least": at_least.total_seconds(),
        }

    def _send(self, statement: str, values: dict[str, Any]) -> bool:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, values)
            return bool(cursor.rowcount)


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
    lock = take(configure(), ours)
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
    assert ours.release(take(kept, ours))
    assert not java.lock("job", MINUTE)


@CLOCKS
def test_late_python(ours: DatabaseLockProvider, java: JavaShedLock) -> None:
    """After our lease Java may acquire the lock, and we can't extend or release it."""
    lock = take(configure(), ours)
    expire("job")
    assert wait_for(lambda: java.lock("job", MINUTE))  # it has milliseconds
    assert not ours.extend(lock, MINUTE)
    assert not ours.release(lock)
    assert isinstance(try_from(ours, configure()), LockHolder)


@CLOCKS
def test_late_java(
    ours: DatabaseLockProvider, java: JavaShedLock, by_server: bool
) -> None:
    """
    After Java's lease we may acquire the lock.

    Java's late release ends our lease only if Java uses its own clock.
    """
    assert java.lock("job", MINUTE)
    expire("job")
    lock = take(configure(), ours)
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
        lock = take(configure(), ours)
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
    """A JVM outside UTC takes leases on PostgreSQL that are hours too short or long."""
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
