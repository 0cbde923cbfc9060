"""A worker of ShedLock for Java, by the statements that its JDBC provider sends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import IntegrityError
from django.db.backends.base.base import BaseDatabaseWrapper

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
