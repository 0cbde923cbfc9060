"""The store's clock, which a test sets, and schedules that it does not disturb."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch
from zoneinfo import ZoneInfo

from django.db.models.sql.compiler import SQLCompiler

from django_shedlock.sql.compiling import Compiled, Statement
from django_shedlock.sql.fields import DatabaseNow

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
def store_clock(moment: datetime | Callable[[], datetime]) -> Iterator[None]:
    """
    Let the database's clock, which goes on, show this instant at first.

    A function is asked for the instant before each statement.
    """
    fixed = None if callable(moment) else moment - datetime.now(UTC)
    as_sql = DatabaseNow.as_sql

    def later(
        self: DatabaseNow, compiler: SQLCompiler, connection: Any, **context: Any
    ) -> Any:
        shift = moment() - datetime.now(UTC) if callable(moment) else fixed
        assert shift is not None
        ahead = shift.total_seconds()
        sql, parameters = as_sql(self, compiler, connection, **context)
        if connection.vendor == "sqlite":
            return sql.replace("'NOW'", ON_SQLITE.format(seconds=ahead)), parameters
        shifted = LATER[connection.vendor].format(sql=sql, seconds=ahead)
        return shifted, parameters

    with patch.object(DatabaseNow, "as_sql", later), compiled_anew():
        yield


@contextmanager
def compiled_anew() -> Iterator[None]:
    """Let each statement be compiled with each execution."""

    def compiled(self: Statement[Any, Any], connection: Any) -> Compiled:
        return self._compile(self._build(), connection)

    with (
        patch.object(Statement, "compiled", compiled),
        patch.object(Statement, "key_attribute", "no key"),
    ):
        yield


class SleepingClock:
    """Stands for ``time``, which passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
