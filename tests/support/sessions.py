"""The server's view of this process's connections."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import connection

from tests.support.waiting import wait_for

NUMBER = {"postgresql": "SELECT pg_backend_pid()", "mysql": "SELECT CONNECTION_ID()"}
KILL = {"postgresql": "SELECT pg_terminate_backend(%s)", "mysql": "KILL %s"}
# Neither is a snapshot of the transaction that asks, as pg_stat_activity is.
BLOCKED = {
    "postgresql": "SELECT COUNT(*) FROM pg_locks WHERE NOT granted AND pid = %s",
    "mysql": (
        "SELECT COUNT(*) FROM information_schema.innodb_trx "
        "WHERE trx_state = 'LOCK WAIT' AND trx_mysql_thread_id = %s"
    ),
}


SESSIONS = {
    "postgresql": (
        "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database()"
    ),
    "mysql": (
        "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE()"
    ),
}


AT_WORK = {
    "postgresql": (
        "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() "
        "AND state = 'active' AND backend_type = 'client backend' "
        "AND pid <> pg_backend_pid()"
    ),
    "mysql": (
        "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() "
        "AND command = 'Query' AND id <> CONNECTION_ID()"
    ),
}


def number_of_sessions() -> int:
    """Return how many connections to the database the server has."""
    return int(_ask(connection, SESSIONS))


def number_at_work(of: Any = connection) -> int:
    """Return how many other sessions of the database carry out a statement."""
    return int(_ask(of, AT_WORK))


def session_number() -> int:
    """Return the number by which the server knows this thread's connection."""
    return session_number_of(connection)


def session_number_of(other: Any) -> int:
    """Return the number of that connection."""
    return int(_ask(other, NUMBER))


def wait_until_blocked(number: int) -> None:
    """Wait until that session's statement waits for somebody's row."""
    # MariaDB shows the same answer to all who ask again within 0.1 s.
    wait_for(lambda: _ask(connection, BLOCKED, number), pause=0.12)


def read_clock() -> datetime:
    """Return PostgreSQL's clock, by none of the code under test."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT CLOCK_TIMESTAMP()")
        [now] = cursor.fetchone()
    assert isinstance(now, datetime)
    return now


def kill_session(number: int) -> None:
    """Let the server end that session, as an administrator would."""
    killer = connection.copy()
    killer.settings_dict["OPTIONS"].pop("pool", None)
    try:
        with killer.cursor() as cursor:
            cursor.execute(KILL[connection.vendor], [number])
    finally:
        killer.close()


def _ask(of: Any, questions: dict[str, str], *parameters: int) -> Any:
    with of.cursor() as cursor:
        cursor.execute(questions[of.vendor], parameters)
        return cursor.fetchone()[0]
