"""The statements of a lock, sent by psycopg alone: what everything is compared with."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from benchmarks.tables import Ways

A_MINUTE = timedelta(minutes=1)
ACQUIRE = """
    UPDATE shedlock SET lock_until = clock_timestamp() + %s,
        lock_at_least_until = clock_timestamp(), locked_at = clock_timestamp(),
        locked_by = %s, released_at = NULL, fencing_token = fencing_token + 1
    WHERE name = %s AND lock_until <= clock_timestamp()
"""
RELEASE = """
    UPDATE shedlock SET lock_until = clock_timestamp(),
        released_at = clock_timestamp()
    WHERE name = %s AND locked_by = %s
"""
RELEASE_SOON = f"""
    {RELEASE} AND set_config('synchronous_commit', 'off', true) = 'off'
"""
BEGIN = """
    INSERT INTO shedlock_run (name, provider, locked_by, host, pid, fencing_token,
        started, outcome, exception_type, exception_message, exception_traceback,
        skips, trigger, operator, reason)
    SELECT name, 'default', locked_by, 'here', 1, fencing_token,
        clock_timestamp(), 'running', '', '', '', 0, 'scheduler', '', ''
    FROM shedlock
    WHERE name = %s AND set_config('synchronous_commit', 'off', true) = 'off'
    RETURNING id
"""
FINISH = """
    UPDATE shedlock_run SET outcome = 'succeeded', exception_type = '',
        exception_message = '', exception_traceback = '',
        finished = clock_timestamp(), duration = %s
    WHERE id = %s AND set_config('synchronous_commit', 'off', true) = 'off'
"""


def conninfo(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of libpq."""
    known = {
        "dbname": settings["NAME"],
        "host": settings.get("HOST"),
        "port": settings.get("PORT"),
        "user": settings.get("USER"),
        "password": settings.get("PASSWORD"),
    }
    return {key: value for key, value in known.items() if value}


def connect(settings: dict[str, Any]) -> Any:
    """Return a connection of psycopg alone, in autocommit."""
    import psycopg

    return psycopg.connect(**conninfo(settings), autocommit=True)


def pairs(settings: dict[str, Any]) -> Ways:
    """Return the statements alone: two, and four with those of the history."""
    raw = connect(settings)

    def pair(*, prepare: bool) -> None:
        raw.execute(ACQUIRE, (A_MINUTE, "me", "raw"), prepare=prepare)
        raw.execute(RELEASE, ("raw", "me"), prepare=prepare)

    def with_history(*, prepare: bool) -> None:
        raw.execute(ACQUIRE, (A_MINUTE, "me", "raw"), prepare=prepare)
        [row] = raw.execute(BEGIN, ("raw",), prepare=prepare).fetchone()
        raw.execute(RELEASE_SOON, ("raw", "me"), prepare=prepare)
        raw.execute(FINISH, (A_MINUTE, row), prepare=prepare)

    return {
        "raw psycopg, prepared": lambda: pair(prepare=True),
        "raw psycopg, not prepared": lambda: pair(prepare=False),
        "raw with history, prepared": lambda: with_history(prepare=True),
        "raw with history, not prepared": lambda: with_history(prepare=False),
    }


def tries(settings: dict[str, Any]) -> Ways:
    """Return the UPDATE alone, which matches no row."""
    raw = connect(settings)
    values = (A_MINUTE, "me", "held")
    return {
        "raw psycopg, prepared": lambda: raw.execute(ACQUIRE, values, prepare=True),
        "raw psycopg, not prepared": lambda: raw.execute(
            ACQUIRE, values, prepare=False
        ),
    }
