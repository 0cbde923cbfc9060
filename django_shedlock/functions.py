"""The database's clock as an expression."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import DateTimeField, Func, Value
from django.db.models.sql.compiler import SQLCompiler


class DatabaseNow(Func):
    """
    The instant at which the database evaluates it, in UTC, to the microsecond.

    Django's ``Now()`` is the statement's start on PostgreSQL, so that a statement
    that waited for a row would shorten the lease, and it follows the session's time
    zone on MySQL and MariaDB. SQLite has milliseconds, which are padded because
    SQLite compares instants as texts.
    """

    template = "CURRENT_TIMESTAMP"
    output_field = DateTimeField()

    def as_postgresql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any
    ) -> Any:
        """See PostgreSQL's documentation, "Current Date/Time"."""
        return self.as_sql(
            compiler, connection, template="CLOCK_TIMESTAMP()", **context
        )

    def as_mysql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any
    ) -> Any:
        """Independent of the session's zone, which Django never sets."""
        return self.as_sql(compiler, connection, template="UTC_TIMESTAMP(6)", **context)

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any
    ) -> Any:
        """In the very format in which Django writes a datetime with microseconds."""
        # Each % is doubled for the template, and again for the statement's parameters.
        template = "(STRFTIME('%%%%Y-%%%%m-%%%%d %%%%H:%%%%M:%%%%f', 'NOW') || '000')"
        return self.as_sql(compiler, connection, template=template, **context)

    def as_oracle(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any
    ) -> Any:
        """By construction: Django keeps naive UTC timestamps on Oracle."""
        return self.as_sql(
            compiler, connection, template="SYS_EXTRACT_UTC(SYSTIMESTAMP)", **context
        )


class Instant(Value):
    """A given instant, of the same type as a column of instants."""

    def __init__(self, moment: datetime, output_field: DateTimeField[Any, Any]):
        super().__init__(moment, output_field=output_field)

    def as_mysql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any
    ) -> Any:
        """Else it is a text, which differs from an equal one with more digits."""
        sql, parameters = self.as_sql(compiler, connection)
        return f"CAST({sql} AS DATETIME(6))", parameters
