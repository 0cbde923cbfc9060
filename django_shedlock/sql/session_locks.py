"""Locks of the database itself, each held by a connection for as long as it lives."""

import hashlib
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, ClassVar
from uuid import uuid4

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_shedlock.forking import renewed_in_child
from django_shedlock.sql.connections import close, copy_of, leave_to_parent

IDENTITY_PREFIX = "session:"


class SessionLock(ABC):
    """
    A lock with this name of the database ``using``, on a connection of its own.

    It needs no table, and the database releases it when the connection ends. Each
    method may raise ``django.db.Error``.
    """

    number_query: ClassVar[str]
    """Asks for the number of the connection on which it is sent."""

    def __init__(self, using: str, name: str):
        self.using = using
        self.name = name
        self.identity: str = f"{IDENTITY_PREFIX}{uuid4().hex}"
        """Names the holder, whichever connection it uses: see ``is_held_by()``."""
        self.connection: BaseDatabaseWrapper = copy_of(connections[using])
        renewed_in_child(self)
        self.number: int | None = None
        """The number of this connection in the database, once it has the lock."""

    def try_acquire(self) -> bool:
        """Acquire the lock, unless another connection holds it."""
        if not self._try_first(self.name):
            return False
        [number] = self._ask(self.number_query)
        self.number = int(number)
        # Nobody else knows this name, so nobody else can have its lock.
        self._try(self.identity)
        return True

    def holders(self) -> set[int]:
        """Return the numbers of the connections that hold the lock."""
        return self._holders_of(self.name)

    def is_held_by(self, identity: str) -> bool:
        """
        Return whether the process with this ``identity`` holds the lock.

        Its connection then also holds a lock with that name.
        """
        if not identity.startswith(IDENTITY_PREFIX):
            return False
        return not self.holders().isdisjoint(self._holders_of(identity))

    @abstractmethod
    def _try_first(self, name: str) -> bool:
        """Do what ``_try()`` does, on a connection that holds no lock yet."""

    @abstractmethod
    def _try(self, name: str) -> bool:
        """Acquire the lock with this name, unless another connection holds it."""

    @abstractmethod
    def _holders_of(self, name: str) -> set[int]:
        """Return the numbers of the connections that hold the lock with this name."""

    def forget(self) -> None:
        """Leave the lock to the parent of this forked child."""
        leave_to_parent(self.connection)

    def close(self) -> None:
        """Close the connection, and so release the lock."""
        close(self.connection)

    def _ask(self, query: str, *values: str | int) -> list[Any]:
        """Return the first column of the answer."""
        with self.connection.cursor() as cursor:
            cursor.execute(query, values)
            return [row[0] for row in cursor.fetchall()]


class PostgreSQLLock(SessionLock):
    """
    An advisory lock of a transaction that stays open.

    A pooler that lends connections for a transaction lends this one for as long. At the
    level READ COMMITTED an idle transaction has no snapshot, so it holds up neither
    VACUUM nor an index that is made concurrently.
    """

    number_query = "SELECT pg_backend_pid()"
    lift_timeouts_query: ClassVar[str] = (
        "SELECT set_config(name, '0', true) FROM pg_settings WHERE name IN "
        "('idle_in_transaction_session_timeout', 'transaction_timeout')"
    )

    def _try_first(self, name: str) -> bool:
        self.connection.set_autocommit(False)
        with self.connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        self._ask(self.lift_timeouts_query)
        is_ours = self._try(name)
        if not is_ours:
            self.connection.rollback()  # an idle transaction would occupy a pooler
        return is_ours

    def _try(self, name: str) -> bool:
        [is_ours] = self._ask("SELECT pg_try_advisory_xact_lock(%s)", self._key(name))
        return bool(is_ours)

    @staticmethod
    def _key(name: str) -> int:
        # Each database has keys of its own.
        digest = hashlib.sha256(f"shedlock:{name}".encode()).digest()
        return int.from_bytes(digest[:8], signed=True)

    def _holders_of(self, name: str) -> set[int]:
        key = self._key(name) % 2**64
        numbers = self._ask(
            "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted "
            "AND classid::bigint = %s AND objid::bigint = %s AND objsubid = 1 "
            "AND database = (SELECT oid FROM pg_database "
            "WHERE datname = current_database())",
            key >> 32,
            key % 2**32,
        )
        return set(numbers)


class MySQLLock(SessionLock):
    """A lock by ``GET_LOCK()`` of MySQL or MariaDB; each server has its own."""

    number_query = "SELECT CONNECTION_ID()"

    def _try_first(self, name: str) -> bool:
        return self._try(name)

    def _try(self, name: str) -> bool:
        [is_ours] = self._ask("SELECT GET_LOCK(%s, 0)", self._key(name))
        return bool(is_ours)

    def _key(self, name: str) -> str:
        digest = hashlib.sha256(f"{self._database}:{name}".encode()).hexdigest()
        return f"shedlock:{digest[:40]}"  # at most 64 characters

    @cached_property
    def _database(self) -> str:
        # The name may stand in an option file of MySQL, and not in the settings.
        [database] = self._ask("SELECT DATABASE()")
        return str(database)

    def _holders_of(self, name: str) -> set[int]:
        [number] = self._ask("SELECT IS_USED_LOCK(%s)", self._key(name))
        return set() if number is None else {number}


_lock_classes: dict[str, type[SessionLock]] = {
    "postgresql": PostgreSQLLock,
    "mysql": MySQLLock,
}


def session_lock(using: str, name: str) -> SessionLock | None:
    """Return the lock; ``None`` if this kind of database has none."""
    lock_class = _lock_classes.get(connections[using].vendor)
    return None if lock_class is None else lock_class(using, name)
