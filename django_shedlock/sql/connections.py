"""The connection on which a lock statement runs, and when it is sent again."""

import math
import os
import random
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from django.db import Error, OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model, QuerySet

from django_shedlock.background import Timetable
from django_shedlock.clocks import uptime
from django_shedlock.forking import renewed_in_child
from django_shedlock.in_tests import are_databases_temporary, is_only_connection
from django_shedlock.mutexes import Mutex
from django_shedlock.sql import errors
from django_shedlock.sql.compiling import ROW_WAIT_SETTING, on_connection

R = TypeVar("R")
T = TypeVar("T")
Work = Callable[[BaseDatabaseWrapper, bool], T]
"""Gets a connection, and whether it ran before: the reply to that may be lost."""

ATTEMPT_LIMIT = 6
BUSY_TIMEOUT_SECONDS = 1.0
"""A busy SQLite, which has waited by itself, is not asked again after this time."""

# Note [A connection of its own]
# Inside the caller's transaction a lock would be invisible to other workers, would
# make them block instead of skip, and would vanish with a rollback. So the statement
# gets a private connection in autocommit. It is never drawn from Django's pool: with
# every pooled connection in a caller's transaction each of them would wait for another
# one. It may meet a row lock of the caller's own transaction, which waits for us: hence
# the limit on the wait. SQLite has one writer, so there the caller's connection has to
# do.
ONE_WRITER_VENDORS = {"sqlite"}
CONNECTION_OPTIONS = {
    "postgresql": {"connect_timeout": 5},
    # MySQL's driver sends queries while it connects, before its socket is known.
    "mysql": {"connect_timeout": 5, "read_timeout": 6, "write_timeout": 6},
}
"""Options of private connections, unless the project's settings have them."""


def run(
    work: Work[T],
    using: str,
    *,
    is_urgent: bool = False,
    has_deadline: bool = False,
    stays_here: bool = False,
    busy_timeout: float | None = None,
) -> T:
    """
    Return what ``work`` returns, once it got through on the connection it is given.

    Urgent work never waits long for a row. Work that has a deadline is not sent again
    after it; see Note [A deadline]. Work that stays here is Django's own, on the
    caller's connection. ``work`` runs again after a conflict, and once on a fresh
    connection. Raises the ``django.db.Error`` that remains; ``NoAnswer`` if nobody can
    tell whether the server has carried out the statement.
    """
    caller = connections[using]
    has_one_writer = caller.vendor in ONE_WRITER_VENDORS
    may_leave = not (stays_here or has_one_writer or is_only_connection(caller))
    is_ready = (
        caller.connection is not None
        and not caller.in_atomic_block
        and caller.autocommit
        and not has_own_transaction(caller)
    )
    is_private = may_leave and (
        is_urgent or has_deadline or (not is_ready and in_callers_transaction(caller))
    )
    may_reconnect, was_sent, has_no_answer = True, False, False
    timeout = BUSY_TIMEOUT_SECONDS if busy_timeout is None else busy_timeout
    give_up_at = time.monotonic() + timeout
    has_deadline = has_deadline and may_leave
    answer_timeout = private_connections.answer_timeout_seconds
    deadline = time.monotonic() + (answer_timeout if has_deadline else math.inf)
    for attempts_left in reversed(range(ATTEMPT_LIMIT)):
        try:
            with (
                nullcontext(caller)
                if is_ready and not is_private
                else _given(caller, is_private=is_private)
            ) as connection:
                is_again, was_sent = was_sent, True
                return work(connection, is_again)
        except Error as error:
            has_no_answer |= may_leave and was_sent and errors.is_lost_reply(error)
            is_late = errors.is_busy(error) and time.monotonic() > give_up_at
            may_try = attempts_left > 0 and not is_late
            may_try &= time.monotonic() < deadline
            may_wait = may_try and has_no_answer and not is_urgent
            if may_wait and errors.is_lock_timeout(error):
                pass  # the lost statement before it may have the row until it commits
            elif may_try and errors.is_conflict(error):
                time.sleep(random.uniform(0.005, 0.03))
            elif may_try and may_reconnect and errors.may_be_lost_connection(error):
                is_unfit = not is_private and errors.is_unfit_server(error)
                may_reconnect, is_private, is_ready = False, may_leave, False
                if not has_deadline:  # the caller's connection may hang as well
                    _close_if_useless(caller, is_unfit=is_unfit)
                private_connections.close_idle(using)
            elif has_no_answer:
                message = f"the connection broke before the answer: {error}"
                raise errors.NoAnswer(message) from error
            else:
                raise
    raise AssertionError("the last attempt returns or raises")


# Note [A deadline]
# A server that hangs still acknowledges what it gets, so neither TCP nor an option of
# the driver ends the wait, and poolers refuse PostgreSQL's own timeout at the start of
# a session. So what people and monitoring ask runs on a private connection, whose
# socket the watcher shuts after ``answer_timeout_seconds``. That also covers what
# Django asks on a new connection. Until its socket is known only the options of the
# driver limit the connecting, and nothing limits the look-up of the host's address.


def within_deadline(work: Callable[[BaseDatabaseWrapper], T], using: str) -> T:
    """
    Return what ``work`` returns, on a private connection; see Note [A deadline].

    It must only read, or may be done twice. On SQLite, and in a ``TestCase``, it gets
    the caller's connection, and has no deadline. Raises the ``django.db.Error`` that
    remains.
    """

    def call(connection: BaseDatabaseWrapper, is_again: bool) -> T:
        return work(connection)

    return run(call, using, has_deadline=True)


def read_rows(queryset: "QuerySet[Model, R]", using: str) -> list[R]:
    """Return the queryset's rows, read with ``within_deadline()``."""

    def read(connection: BaseDatabaseWrapper) -> list[R]:
        return list(on_connection(queryset, connection))

    return within_deadline(read, using)


def run_here(work: Callable[[], T], using: str) -> T:
    """Return what Django's own ``work`` returns, on the caller's connection."""

    def call(connection: BaseDatabaseWrapper, is_again: bool) -> T:
        return work()

    return run(call, using, stays_here=True)


def read_here(queryset: "QuerySet[Model, R]", using: str) -> list[R]:
    """Return the queryset's rows, read on the caller's connection."""

    def read() -> list[R]:
        return list(queryset.all())

    return run_here(read, using)


def delete_here(queryset: "QuerySet[Model]", using: str) -> int:
    """
    Delete the queryset's rows with one statement; return their number.

    If the project listens to deletions, Django's ``delete()`` reads the rows first, and
    then also deletes a lock that was acquired since. It also begins a transaction, and
    so ends one that the caller began by a raw BEGIN on MySQL or MariaDB.
    """

    def delete() -> int:
        return queryset._raw_delete(using) or 0  # None if no row can match

    return run_here(delete, using)


def _close_if_useless(caller: BaseDatabaseWrapper, *, is_unfit: bool) -> None:
    """Close a connection that is dead, or whose server can't write any more."""
    # Inside a transaction the caller has to learn of it.
    if caller.connection is None or in_callers_transaction(caller):
        return
    if not caller.is_usable():
        caller.close()
    elif is_unfit and not (
        _has_hidden_transaction(caller) or _is_read_only_by_itself(caller)
    ):
        if caller.vendor == "postgresql":
            # Else a pool would lend it again, since it works.
            caller.connection.close()
        close(caller)


def _has_hidden_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Return whether MySQL or MariaDB has a transaction that its driver can't see."""
    if connection.vendor != "mysql":
        return False
    try:
        # Refused inside a transaction; else it is for the next one.
        _execute(connection, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    except Error:
        return True
    return False


def _is_read_only_by_itself(connection: BaseDatabaseWrapper) -> bool:
    """Return whether the caller has made its session read-only, not the server."""
    try:
        with connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                cursor.execute(
                    "SELECT source = 'session' AND setting = 'on' AND NOT "
                    "pg_is_in_recovery() FROM pg_settings WHERE name = "
                    "'default_transaction_read_only'"
                )
                return bool(cursor.fetchone()[0])
            # MariaDB's name for it is "tx_read_only".
            cursor.execute("SHOW SESSION VARIABLES LIKE 't%read_only'")
            session = cursor.fetchall()
            cursor.execute("SHOW GLOBAL VARIABLES LIKE 't%read_only'")
            return bool(session != cursor.fetchall())
    except Error:
        return False


def _given(
    caller: BaseDatabaseWrapper, *, is_private: bool
) -> AbstractContextManager[BaseDatabaseWrapper]:
    if is_private:
        return private_connections.borrowed(caller)
    caller.ensure_connection()  # before the statement counts as sent
    if caller.vendor in ONE_WRITER_VENDORS and has_own_transaction(caller):
        return _own_savepoint(caller)
    in_transaction = caller.in_atomic_block or not caller.get_autocommit()
    return _savepoint(caller) if in_transaction else nullcontext(caller)


# A savepoint, so that a statement that fails does not break the transaction it is in.
@contextmanager
def _savepoint(connection: BaseDatabaseWrapper) -> Iterator[BaseDatabaseWrapper]:
    with _stale_transactions(connection), transaction.atomic(connection.alias):
        yield connection


@contextmanager
def _own_savepoint(connection: BaseDatabaseWrapper) -> Iterator[BaseDatabaseWrapper]:
    # Django takes this connection for one in autocommit, and its atomic() would begin
    # a transaction inside the caller's.
    with _stale_transactions(connection):
        _execute(connection, "SAVEPOINT shedlock")
        try:
            yield connection
        except BaseException:
            # An error such as a full disk has ended the whole transaction.
            if has_own_transaction(connection):
                _execute(connection, "ROLLBACK TO SAVEPOINT shedlock")
                _execute(connection, "RELEASE SAVEPOINT shedlock")
            raise
        _execute(connection, "RELEASE SAVEPOINT shedlock")


def _execute(connection: BaseDatabaseWrapper, statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


@contextmanager
def _stale_transactions(connection: BaseDatabaseWrapper) -> Iterator[None]:
    began = time.monotonic()
    try:
        yield
    except Error as error:
        if errors.is_busy(error):
            # SQLite waits for as long as it is set to, unless a wait can't help.
            [timeout] = connection.connection.execute("PRAGMA busy_timeout").fetchone()
            has_waited = time.monotonic() >= began + timeout / 1000
            code = getattr(error.__cause__, "sqlite_errorcode", None)
            if code == errors.SQLITE_BUSY_SNAPSHOT or not has_waited:
                message = "this transaction has read, and another process writes"
                raise errors.StaleTransaction(message) from error
        raise


def in_callers_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Return whether a statement would be part of a transaction of the caller's."""
    if connection.in_atomic_block:
        return True
    if connection.connection is None:  # and a pool may have none to open it
        return not connection.settings_dict["AUTOCOMMIT"]
    return not connection.get_autocommit() or has_own_transaction(connection)


def has_own_transaction(connection: BaseDatabaseWrapper) -> bool:
    """
    Return whether the caller began a transaction without Django, by a raw BEGIN.

    The driver of MySQL and MariaDB does not report it, so a lock is then part of that
    transaction. The answer is also yes if a signal's handler raised while Django was
    turning autocommit off: Django believes that it is on, and the driver knows better.
    """
    driver: Any = connection.connection
    if connection.in_atomic_block or driver is None:
        return False
    if connection.vendor == "sqlite":
        return bool(driver.in_transaction)
    if connection.vendor == "postgresql":
        in_transaction, in_error = 2, 3  # as libpq has them, in every driver
        if driver.info.transaction_status in (in_transaction, in_error):
            return True
        return connection.autocommit and not driver.autocommit
    if connection.vendor == "mysql" and connection.autocommit:
        with suppress(Exception):  # the driver's, if it is closed
            return not driver.get_autocommit()
    return False


class ConnectionWatch(Timetable):
    """Watches the private connections; its end closes those that are idle."""

    ends_last = True

    def join(self, timeout: float) -> None:
        """See Timetable.join()."""
        super().join(timeout)
        private_connections.close_idle()
        self.remove(private_connections)


class PrivateConnections:
    """
    Connections in autocommit that lock statements and looks use, and nothing else.

    An idle one is kept for the next statement, since opening one costs more than ten
    locks. A timetable closes idle ones, and interrupts statements without an answer.
    None is kept to a temporary database, so that it can be dropped.
    """

    idle_timeout_seconds: ClassVar[float] = 5.0
    answer_timeout_seconds: ClassVar[float] = 5.0
    watch_interval_seconds: ClassVar[float] = 1.0

    def __init__(self) -> None:
        self._watching = ConnectionWatch("connections")
        self._begin()

    def forget(self) -> None:
        """Forget the connections: a forked child must not use its parent's."""
        for connection in (*self._idle, *self._lent):
            leave_to_parent(connection)
        self._begin()

    def _begin(self) -> None:
        self._idle: dict[BaseDatabaseWrapper, float] = {}
        self._lent: dict[BaseDatabaseWrapper, tuple[float, int | None]] = {}
        """Since when each one waits for an answer, and the socket of that."""
        # Re-entrant, since a signal handler may release locks.
        self._mutex = Mutex()
        self._is_watched = False

    @contextmanager
    def borrowed(self, like: BaseDatabaseWrapper) -> Iterator[BaseDatabaseWrapper]:
        """Lend one to the body; close it if the body raises."""
        with self._mutex:
            # The newest, so that the others can grow old and be closed.
            idle = [c for c in self._idle if address(c) == address(like)]
            connection = idle[-1] if idle else copy_of(like)
            self._idle.pop(connection, None)
        is_kept = False
        try:
            if connection.connection is None:
                self._stamp(connection)
                with self._watched(connection):
                    _open(connection)
            self._stamp(connection, _socket_of(connection))
            yield connection
            is_kept = not are_databases_temporary()
        except Error as error:
            if connection in self._lent:
                raise
            # The watcher has given it up.
            message = (
                f"no answer within {self.answer_timeout_seconds:g} s, so it hangs or, "
                "for example, another transaction has locked its table"
            )
            raise OperationalError(message) from error
        finally:
            with self._mutex:
                is_kept &= self._lent.pop(connection, None) is not None
                if is_kept:
                    self._idle[connection] = time.monotonic()
            if not is_kept:
                close(connection)

    def close_idle(self, using: str | None = None) -> None:
        """Close the idle ones, to one database or to all."""
        with self._mutex:
            idle = [c for c in self._idle if using in (None, c.alias)]
            for connection in idle:
                del self._idle[connection]
        for connection in idle:
            close(connection)

    @contextmanager
    def _watched(self, connection: BaseDatabaseWrapper) -> Iterator[None]:
        # Django asks some things on a new connection, for which a pooler may lack room.
        initialize = connection.init_connection_state

        def initialize_watched() -> None:
            self._stamp(connection, _socket_of(connection))
            initialize()

        vars(connection)["init_connection_state"] = initialize_watched
        try:
            yield
        finally:
            del vars(connection)["init_connection_state"]

    def _stamp(
        self, connection: BaseDatabaseWrapper, answer: int | None = None
    ) -> None:
        with self._mutex:
            self._lent[connection] = (time.monotonic(), answer)
            if not self._is_watched or self not in self._watching.entries:
                with suppress(RuntimeError):  # no room for a thread: the next one tries
                    due = uptime() + self.watch_interval_seconds
                    self._watching.add(self, self._watch, due)
                    self._is_watched = True

    def _watch(self) -> float | None:
        now = time.monotonic()
        used_after = now - self.idle_timeout_seconds
        sent_after = now - self.answer_timeout_seconds
        with self._mutex:
            expired = [c for c, at in self._idle.items() if at < used_after]
            for connection in expired:
                del self._idle[connection]
            # Under the mutex, so that no connection changes hands meanwhile.
            silent = [c for c, (at, _) in self._lent.items() if at < sent_after]
            for connection in silent:
                # Once: then the driver closes it, and another may get its number.
                _, answer = self._lent.pop(connection)
                if answer is not None:
                    _interrupt(answer)
            is_watched = self._is_watched = bool(self._idle or self._lent)
        for connection in expired:
            close(connection)
        return uptime() + self.watch_interval_seconds if is_watched else None


private_connections: PrivateConnections = renewed_in_child(PrivateConnections())


def copy_of(like: BaseDatabaseWrapper) -> BaseDatabaseWrapper:
    """Return a connection of our own; see Note [A connection of its own]."""
    connection = like.copy()
    settings = connection.settings_dict
    settings["AUTOCOMMIT"] = True
    settings[ROW_WAIT_SETTING] = True
    settings["OPTIONS"].pop("pool", None)
    own = CONNECTION_OPTIONS.get(connection.vendor, {})
    settings["OPTIONS"] |= own | settings["OPTIONS"]
    connection.inc_thread_sharing()
    return connection


def _open(connection: BaseDatabaseWrapper) -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":
            # The statement itself can't limit its wait for a row there.
            cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")


def address(connection: BaseDatabaseWrapper) -> tuple[object, ...]:
    """Return what identifies a database: a tenant's may have the alias of another."""
    settings = connection.settings_dict
    return (connection.alias, *map(settings.get, ("NAME", "HOST", "PORT", "USER")))


def _socket_of(connection: BaseDatabaseWrapper) -> int | None:
    # Asked before the statement: MySQL's driver answers nothing while it waits.
    fileno = getattr(connection.connection, "fileno", None)
    return None if fileno is None else int(fileno())


def leave_to_parent(connection: BaseDatabaseWrapper) -> None:
    """
    Let a forked child close its parent's connection without an effect on the parent.

    The garbage collector closes it, too, at the latest when the child ends. MySQL's
    driver then sends the server a farewell.
    """
    with suppress(Exception):  # the driver's, if it is closed already
        own = _socket_of(connection)
        # After a lost connection, the driver may still return the old number.
        if own is not None and stat.S_ISSOCK(os.fstat(own).st_mode):
            with Path(os.devnull).open("r+b", buffering=0) as nowhere:
                # Only the child's number; the parent's socket stays.
                os.dup2(nowhere.fileno(), own)


def _interrupt(answer: int) -> None:
    # The caller gets an error from its driver. Its store hangs, or its pooler has no
    # room.
    with suppress(OSError):  # the other side has closed it
        with socket.socket(fileno=os.dup(answer)) as waiting:
            waiting.shutdown(socket.SHUT_RDWR)


def close(connection: BaseDatabaseWrapper) -> None:
    """Close it, whatever has become of it."""
    with suppress(Error):
        connection.close()
