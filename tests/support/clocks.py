"""Clocks that a test sets: the store's, and that of the host."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

from django.db.models.sql.compiler import SQLCompiler

from django_shedlock.functions import DatabaseNow

CALM = timedelta(seconds=20)
"""In so much time a test that has to do with ticks has come to its end."""
LATER = {
    "postgresql": "({sql} + INTERVAL '{seconds:f} seconds')",
    "mysql": "({sql} + INTERVAL {seconds:f} SECOND)",
}
ON_SQLITE = "'NOW', '{seconds:+f} seconds'"


def wait_for_calm() -> None:
    """
    Let no tick of ``@hourly`` or ``@daily`` come between the steps of a test.

    It waits, seldom and not for long, if a tick is at hand, or the end of the grace of
    one, or the middle between two, from which on the next one is the nearest.
    """
    while _is_restless(datetime.now(UTC)):
        time.sleep(0.5)


def _is_restless(now: datetime) -> bool:
    # The middle between two days is a full hour as well.
    since_hour = timedelta(minutes=now.minute, seconds=now.second)
    moments = (timedelta(minutes=minutes) for minutes in (5, 30, 60))
    return any(timedelta(0) <= moment - since_hour <= CALM for moment in moments)


@contextmanager
def store_clock(moment: datetime) -> Iterator[None]:
    """Let the database's clock, which goes on, show this instant at first."""
    ahead = (moment - datetime.now(UTC)).total_seconds()
    as_sql = DatabaseNow.as_sql

    def later(
        self: DatabaseNow, compiler: SQLCompiler, connection: Any, **context: Any
    ) -> Any:
        sql, parameters = as_sql(self, compiler, connection, **context)
        if connection.vendor == "sqlite":
            return sql.replace("'NOW'", ON_SQLITE.format(seconds=ahead)), parameters
        shifted = LATER[connection.vendor].format(sql=sql, seconds=ahead)
        return shifted, parameters

    with patch.object(DatabaseNow, "as_sql", later):
        yield


@contextmanager
def host_clock(moment: datetime) -> Iterator[None]:
    """Let this process's clock, which goes on, show this instant at first."""
    ahead = moment - datetime.now(UTC)
    with patch(
        "django_shedlock.providers.taking.host_now", lambda: datetime.now(UTC) + ahead
    ):
        yield


@contextmanager
def both_clocks(
    store: datetime, *, host_ahead: timedelta = timedelta(0)
) -> Iterator[None]:
    """Let the store's clock show this instant, and the host's one that much more."""
    with store_clock(store), host_clock(store + host_ahead):
        yield
