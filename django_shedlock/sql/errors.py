"""What the errors of databases mean."""

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

# PostgreSQL's states are texts, MySQL's and MariaDB's numbers are integers.
CONFLICT_CODES: set[str | int] = {"40001", "40P01", 1213, 1020}
"""Serialization failures, deadlocks, and MariaDB's "record has changed"."""
SQLITE_BUSY, SQLITE_LOCKED, SQLITE_BUSY_SNAPSHOT = 5, 6, 517
"""As in Python's sqlite3, which is not loaded for other databases."""
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
    known = not {"55P03", 1205, 3572}.isdisjoint(_codes(error))
    return known or str(error).startswith("ORA-00054")


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
    """Whether the connection may be gone; drivers say it in dozens of ways."""
    is_of_connection = isinstance(error, OperationalError | InterfaceError)
    # After an interrupt MySQL's driver calls it a ProgrammingError.
    is_of_connection = is_of_connection or _codes(error)[1] in LOST_CONNECTION_NUMBERS
    return is_of_connection and not is_lock_timeout(error)


def is_lost_reply(error: Error) -> bool:
    """Whether nobody knows if the server has carried out the statement."""
    if not may_be_lost_connection(error):
        return False
    # What the server itself refused has changed nothing.
    state, number = _codes(error)
    if state is not None:
        return state.startswith(("08", "57P"))  # the connection ended
    return not isinstance(number, int) or number in LOST_CONNECTION_NUMBERS


def is_refusal(error: Error) -> bool:
    """Whether the server refused the statement itself, and would do so again."""
    if isinstance(error, NoAnswer | StaleTransaction):
        return False
    if isinstance(error, IntegrityError):
        return True
    is_sqlite = hasattr(error.__cause__, "sqlite_errorcode")
    return not is_conflict(error) and (is_sqlite or not is_lost_reply(error))


def describe(error: Error) -> str:
    """Return what happened, in one line, and what to look at."""
    lines = str(error).strip().splitlines() or ["no message"]
    what = f"{type(error).__name__}: {lines[0].rstrip('.')}."
    if isinstance(error, NoAnswer) and isinstance(error.__cause__, Error):
        error = error.__cause__
    room = ""
    if isinstance(error, StaleTransaction):
        return (
            f"{what} On SQLite, use locks before the transaction reads, or give the "
            "database the option `transaction_mode`: `IMMEDIATE`."
        )
    if is_lock_timeout(error):
        holder = "perhaps your own, which called fence()?"
        return f"{what} A transaction keeps its row: {holder}"
    if not CONFLICT_CODES.isdisjoint(_codes(error)):
        return f"{what} Another transaction came first: run this one again."
    if may_be_lost_connection(error):
        room = " has its pooler room for one more connection,"
    migrated = "did `python manage.py migrate` run on it?"
    return f"{what} Is the database reachable,{room} and {migrated}"


def _codes(error: Error) -> tuple[str | None, object]:
    # psycopg 3 calls it sqlstate, psycopg2 pgcode. MySQL's number comes first.
    cause = error.__cause__
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    return state, error.args[0] if error.args else None
