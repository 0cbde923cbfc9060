"""The hand-written statements, sent by psycopg alone: the least that a lock costs."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.tables import Ways

ACQUIRE = """
    UPDATE hand_written_lock SET lock_until = clock_timestamp() + interval '1 minute',
        locked_at = clock_timestamp(), locked_by = %s
    WHERE name = %s AND lock_until <= clock_timestamp()
"""
RELEASE = """
    UPDATE hand_written_lock SET lock_until = clock_timestamp()
    WHERE name = %s AND locked_by = %s
"""
RELEASE_AS_OURS = f"""
    {RELEASE} AND (SELECT set_config('synchronous_commit', 'off', true)) = 'off'
"""
"""Does not wait for the disk, like this package's release."""


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


def pair(
    connection: Any, name: str, *, prepare: bool, release: str = RELEASE, me: str = "me"
) -> bool:
    """Acquire and release; return whether the lock was free."""
    acquired = connection.execute(ACQUIRE, (me, name), prepare=prepare).rowcount
    if acquired:
        connection.execute(release, (name, me), prepare=prepare)
    return bool(acquired)


def pairs(settings: dict[str, Any], name: str, *, prepare: bool) -> Ways:
    """Return the pair with a durable release, and with one like this package's."""
    way = partial(pair, connect(settings), name, prepare=prepare)
    return {
        "raw psycopg": way,
        "raw psycopg, release as durable as ours": partial(
            way, release=RELEASE_AS_OURS
        ),
    }
