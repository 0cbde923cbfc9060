"""What the errors of databases mean."""

from django.core.management.base import CommandError
from django.db import (
    DEFAULT_DB_ALIAS,
    DatabaseError,
    Error,
    IntegrityError,
    InterfaceError,
    NotSupportedError,
    OperationalError,
)

from django_shedlock.exceptions import LockProviderError

# PostgreSQL's states are texts, MySQL's and MariaDB's numbers are integers.
CONFLICT_CODES: set[str | int] = {"40001", "40P01", 1213, 1020}
"""Serialization failures, deadlocks, and MariaDB's "record has changed"."""
LOCK_TIMEOUT_CODES: set[str | int] = {"55P03", 1205, 3572}
"""A row, or a table, belonged to somebody else for too long."""
READ_ONLY_CODES: set[str | int] = {"25006", 1290, 1792, 1836, 1874}
"""The server writes nothing: a replica, or a former primary after a fail-over."""
UNAVAILABLE_CODES: set[str | int] = {"57P01", "57P02", "57P03", 1047, 1053, 3032}
"""The server shuts down, starts, is offline, or has lost the others of its cluster."""
ENDED_SESSION_CODES: set[str | int] = {"25P03", "25P04", "57P05", 1927, 4031}
"""The server has ended the connection: a time limit, or an administrator."""
INTERRUPTED_CODES: set[str | int] = {"57014", 1317, 1969, 3024}
"""A time limit, or an administrator, has ended the statement."""
MISSING_COLUMN_CODES: set[str | int] = {"42703", 1054}
SQLITE_BUSY, SQLITE_LOCKED, SQLITE_BUSY_SNAPSHOT = 5, 6, 517
"""As in Python's sqlite3, which is not loaded for other databases."""
JAVA_URL = "https://django-shedlock.readthedocs.io/en/stable/stores/java.html"
KNOWN_DATABASES = "Locks work on PostgreSQL, MySQL, MariaDB and SQLite."
LOST_CONNECTION_NUMBERS = {0, 1053, 1927, *range(2000, 3000)}
"""Those of MySQL and MariaDB: from 2000 on the client's."""


class StaleTransaction(DatabaseError):
    """
    The caller's transaction on SQLite has read, and can't write any more.

    Another process has written since, or waits for the reader's end before it commits.
    So SQLite refuses at once: no wait would help.
    """


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

    Two inserts of one name are also a conflict: the next try finds the other's record.
    """
    return (
        isinstance(error, IntegrityError)
        or not CONFLICT_CODES.isdisjoint(_codes(error))
        or is_busy(error)
    )


def is_busy(error: Error) -> bool:
    """Whether SQLite's one writer was somebody else, for as long as we would wait."""
    code = getattr(error.__cause__, "sqlite_errorcode", None)
    # The lowest byte is the primary code, the others say more of it.
    return code is not None and code & 0xFF in {SQLITE_BUSY, SQLITE_LOCKED}


def is_lock_timeout(error: Error) -> bool:
    """Whether the statement waited too long for a row that somebody else has."""
    known = not LOCK_TIMEOUT_CODES.isdisjoint(_codes(error))
    return known or str(error).startswith("ORA-00054")


def is_unfit_server(error: Error) -> bool:
    """
    Whether the connection may be well, but its server can't write.

    After a fail-over a fresh connection leads to another server.
    """
    codes = _codes(error)
    return not (READ_ONLY_CODES | UNAVAILABLE_CODES).isdisjoint(codes)


def is_missing_column(error: Error) -> bool:
    """Whether the table was made by somebody else, such as ShedLock for Java."""
    known = not MISSING_COLUMN_CODES.isdisjoint(_codes(error))
    return known or str(error).startswith(("no such column", "ORA-00904"))


def is_missing_table(error: BaseException) -> bool:
    """Whether the table is missing: nobody has migrated this database yet."""
    if not isinstance(error, Error):
        return False
    known = not {"42P01", 1146}.isdisjoint(_codes(error))
    return known or str(error).startswith(("no such table", "ORA-00942"))


def migrate_command(using: str) -> str:
    """Return the command that makes the tables in this database."""
    option = "" if using == DEFAULT_DB_ALIAS else f" --database {using}"
    return f"python manage.py migrate{option}"


def may_be_lost_connection(error: Error) -> bool:
    """Whether a fresh connection may help; drivers say it in dozens of ways."""
    codes = _codes(error)
    # psycopg has other classes for some of these.
    if is_unfit_server(error) or not ENDED_SESSION_CODES.isdisjoint(codes):
        return True
    is_of_connection = isinstance(error, OperationalError | InterfaceError)
    # After an interrupt MySQL's driver calls it a ProgrammingError.
    is_of_connection = is_of_connection or codes[1] in LOST_CONNECTION_NUMBERS
    return is_of_connection and not is_lock_timeout(error)


def is_lost_reply(error: Error) -> bool:
    """Whether nobody knows if the server has carried out the statement."""
    if not may_be_lost_connection(error):
        return False
    # What the server itself refused has changed nothing.
    state, number, _ = _codes(error)
    if state is not None:
        return state.startswith(("08", "57P"))  # the connection ended
    return not isinstance(number, int) or number in LOST_CONNECTION_NUMBERS


def describe(error: Error) -> str:
    """Return what happened, in one line, and what to look at."""
    lines = str(error).strip().splitlines() or ["no message"]
    what = f"{type(error).__name__}: {lines[0].rstrip('.')}."
    if isinstance(error, NoAnswer) and isinstance(error.__cause__, Error):
        error = error.__cause__
    return f"{what} {_advice(error)}"


def _advice(error: Error) -> str:
    codes = _codes(error)
    if isinstance(error, StaleTransaction):
        return (
            "On SQLite, use locks before the transaction reads, or give the database "
            "the option `transaction_mode`: `IMMEDIATE`."
        )
    if is_lock_timeout(error):
        return "A transaction keeps its row: perhaps your own, which called fence()?"
    if not CONFLICT_CODES.isdisjoint(codes):
        return "Another transaction came first: run this one again."
    if not READ_ONLY_CODES.isdisjoint(codes):
        return (
            "It is read-only, as a replica is, and a former primary after a fail-over: "
            "let the provider's `using` lead to the primary."
        )
    if "SQLITE_READONLY" in codes:
        return "The file and its folder have to be writable for this user."
    if not INTERRUPTED_CODES.isdisjoint(codes):
        return (
            "A time limit of your database ended the statement, or an administrator "
            "did. Is the server busy, or the limit too short?"
        )
    if is_missing_column(error):
        return (
            "If ShedLock for Java made the table, Django has to make its own: see "
            f"{JAVA_URL}. Else run `python manage.py migrate`."
        )
    if isinstance(error, NotSupportedError):
        return f"Let the provider's `using` name another database. {KNOWN_DATABASES}"
    room = ""
    if may_be_lost_connection(error):
        room = " has its pooler room for one more connection,"
    migrated = "did `python manage.py migrate` run on it?"
    return f"Is the database reachable,{room} and {migrated}"


def _codes(error: Error) -> tuple[str | None, object, str | None]:
    """Return PostgreSQL's state, MySQL's number, and SQLite's name of the error."""
    # psycopg 3 calls it sqlstate, psycopg2 pgcode. MySQL's number comes first.
    cause = error.__cause__
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    # As in SQLITE_READONLY_DBMOVED: two words are the primary code.
    name = getattr(cause, "sqlite_errorname", None)
    primary = name and "_".join(name.split("_")[:2])
    return state, error.args[0] if error.args else None, primary
