"""Clocks that a test sets: the store's, and that of the host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch
from zoneinfo import ZoneInfo

from django.db.models.sql.compiler import SQLCompiler

from django_shedlock.functions import DatabaseNow

LATER = {
    "postgresql": "({sql} + INTERVAL '{seconds:f} seconds')",
    "mysql": "({sql} + INTERVAL {seconds:f} SECOND)",
}
ON_SQLITE = "'NOW', '{seconds:+f} seconds'"


def daily_far_from_now(time_zone: str = "UTC", *, hours_ago: int = 6) -> str:
    """
    Return an expression whose newest tick is that old, and whose next is far.

    So no tick comes between the steps of a test, nor the end of its grace.
    """
    tick = datetime.now(ZoneInfo(time_zone)) - timedelta(hours=hours_ago)
    return f"{tick.minute} {tick.hour} * * *"


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
