"""What the errors of databases mean."""

from __future__ import annotations

import sqlite3

from django.core.management.base import CommandError
from django.db import (
    DEFAULT_DB_ALIAS,
    DatabaseError,
    Error,
    IntegrityError,
    InterfaceError,
    OperationalError,
)

from django_shedlock.exceptions import LockProviderError

# The statement lost against another one. It may be sent again.
CONFLICT_STATES = {"40001", "40P01"}  # PostgreSQL: serialization failure, deadlock
CONFLICT_NUMBERS = {1213, 1020}  # MySQL: deadlock; MariaDB: record has changed
BUSY_SQLITE_CODES = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
# Somebody else has the row for longer than the limit.
TIMEOUT_STATES = {"55P03"}
TIMEOUT_NUMBERS = {1205}
# The connection ended, whatever became of the statement.
ENDED_STATES = ("08", "57P")
# There is no such table.
MISSING_STATES = {"42P01"}
MISSING_NUMBERS = {1146}
MISSING_TEXTS = ("no such table", "ORA-00942")  # SQLite and Oracle
ENDED_NUMBERS = {0, 1053, 1927, *range(2000, 3000)}  # MySQL; from 2000 on the client's


class StaleTransaction(DatabaseError):
    """
    The caller's transaction on SQLite has read, and can't write any more.

    Another process has written since, or waits for the reader's end before it commits.
    So SQLite refuses at once: no wait would help.
    """

    message = "this transaction has read, and another process writes"


class MissingTable(LockProviderError, CommandError):
    """
    The table is missing, as before the first ``migrate``.

    A management command that meets it ends in this one sentence, without a traceback.
    """


class NoAnswer(OperationalError):
    """The connection broke before the answer: perhaps the statement was carried out."""


def is_conflict(error: Error) -> bool:
    """
    Whether the work may succeed if it is done again.

    Two inserts of one name are a conflict, too: the next try finds the other's record.
    """
    return (
        isinstance(error, IntegrityError)
        or _state(error) in CONFLICT_STATES
        or _number(error) in CONFLICT_NUMBERS
        or is_busy(error)
    )


def is_busy(error: Error) -> bool:
    """Whether SQLite's one writer was somebody else, for as long as we would wait."""
    return _sqlite_code(error) in BUSY_SQLITE_CODES


def is_stale_snapshot(error: Error) -> bool:
    """Whether SQLite says by itself that the transaction can't write any more."""
    code = getattr(error.__cause__, "sqlite_errorcode", None)
    return code == sqlite3.SQLITE_BUSY_SNAPSHOT


def is_lock_timeout(error: Error) -> bool:
    """Whether the statement waited too long for a row that somebody else has."""
    return _state(error) in TIMEOUT_STATES or _number(error) in TIMEOUT_NUMBERS


def is_missing_table(error: BaseException) -> bool:
    """Whether the table is missing: nobody has migrated this database yet."""
    return isinstance(error, Error) and (
        _state(error) in MISSING_STATES
        or _number(error) in MISSING_NUMBERS
        or str(error).startswith(MISSING_TEXTS)
    )


def migrate_command(using: str) -> str:
    """Return the command that makes the tables in this database."""
    option = "" if using == DEFAULT_DB_ALIAS else f" --database {using}"
    return f"manage.py migrate{option}"


def describe(error: Error) -> str:
    """Return what happened, in one line, and what to look at."""
    lines = str(error).strip().splitlines() or ["no message"]
    return f"{type(error).__name__}: {lines[0].rstrip('.')}. {_advice(error)}"


def may_be_lost_connection(error: Error) -> bool:
    """Whether the connection may be gone; drivers say it in dozens of ways."""
    is_of_connection = isinstance(error, OperationalError | InterfaceError)
    # After an interrupt MySQL's driver calls it a ProgrammingError.
    is_of_connection = is_of_connection or _number(error) in ENDED_NUMBERS
    return is_of_connection and not is_lock_timeout(error)


def is_lost_reply(error: Error) -> bool:
    """Whether nobody knows if the server has carried out the statement."""
    if not may_be_lost_connection(error):
        return False
    # What the server itself refused has changed nothing.
    state, number = _state(error), _number(error)
    if state is not None:
        return state.startswith(ENDED_STATES)
    return not isinstance(number, int) or number in ENDED_NUMBERS


def _advice(error: Error) -> str:
    if isinstance(error, StaleTransaction):
        return (
            "On SQLite, use locks before the transaction reads, or give the database "
            "the option `transaction_mode`: `IMMEDIATE`."
        )
    if isinstance(error, NoAnswer) and isinstance(error.__cause__, Error):
        return _advice(error.__cause__)
    if is_lock_timeout(error):
        return "A transaction keeps its row: perhaps your own, which called fence()?"
    if may_be_lost_connection(error):
        return (
            "Is the database reachable, has its pooler room for one more connection, "
            "and did `manage.py migrate` run on it?"
        )
    return "Is the database reachable, and did `manage.py migrate` run on it?"


def _state(error: Error) -> str | None:
    # psycopg 3 calls it sqlstate, psycopg2 pgcode.
    cause = error.__cause__
    return getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)


def _number(error: Error) -> object:
    return error.args[0] if error.args else None


def _sqlite_code(error: Error) -> int | None:
    # The lowest byte is the primary code, the others say more of it.
    code = getattr(error.__cause__, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF
