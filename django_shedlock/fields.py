"""Columns that mean the same on every database, and the database's clock."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import DateTimeField, Func
from django.db.models.expressions import DurationExpression, TemporalSubtraction
from django.db.models.sql.compiler import SQLCompiler
from django.utils import timezone

from django_shedlock.clocks import aware


class UTCDateTimeField(models.DateTimeField):  # type: ignore[type-arg]
    """
    A ``DateTimeField`` whose column is UTC, whatever the project's settings.

    Databases without time zones get naive values from Django in a zone that depends
    on ``USE_TZ`` and ``TIME_ZONE``. This column is compared with the database's own
    clock in UTC, so there it is always written and read as UTC. In Python it is what
    a ``DateTimeField`` is: aware with ``USE_TZ``, else naive in ``TIME_ZONE``.
    """

    def get_db_prep_value(
        self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False
    ) -> Any:
        """Return ``value`` for the driver, in UTC."""
        if connection.features.supports_timezones:
            return super().get_db_prep_value(value, connection, prepared)
        value = value if prepared else self.get_prep_value(value)
        if isinstance(value, datetime):
            value = aware(value).astimezone(UTC).replace(tzinfo=None)
        return connection.ops.adapt_datetimefield_value(value)

    def from_db_value(
        self, value: datetime | None, expression: Any, connection: BaseDatabaseWrapper
    ) -> datetime | None:
        """Return the column as Django would return a datetime."""
        if value is None or connection.features.supports_timezones:
            return value
        # With USE_TZ the backend already called it the connection's zone.
        in_utc = value.replace(tzinfo=UTC)
        return in_utc if settings.USE_TZ else timezone.make_naive(in_utc)


class LockNameField(models.CharField):  # type: ignore[type-arg]
    """
    A ``CharField`` that compares as Python does, and has no second index.

    MySQL's and MariaDB's usual collations take ``job``, ``Job`` and ``jöb`` for one
    key; PostgreSQL would get an index for LIKE that nobody uses.
    """

    collations = {"mysql": "utf8mb4_bin"}

    def db_type(self, connection: BaseDatabaseWrapper) -> str | None:
        """Return the standard's long name, which gets no index for LIKE."""
        column_type = super().db_type(connection)
        return column_type and column_type.replace("varchar", "character varying")

    def db_parameters(self, connection: BaseDatabaseWrapper) -> Any:
        """Return the column's type, with a binary collation where it matters."""
        parameters: dict[str, Any] = {**super().db_parameters(connection)}
        if connection.vendor in self.collations:
            parameters["collation"] = self.collations[connection.vendor]
        return parameters


class DatabaseNow(Func):
    """
    The instant at which the database evaluates it, in UTC, to the microsecond.

    Django's ``Now()`` is the statement's start on PostgreSQL, so that a statement
    that waited for a row would shorten the lease, and it follows the session's time
    zone on MySQL and MariaDB. SQLite has milliseconds, which are padded because
    SQLite compares instants as texts. A duration may be added and subtracted.
    """

    template = "CURRENT_TIMESTAMP"
    output_field = DateTimeField()

    def __add__(self, duration: Any) -> Shifted:
        return Shifted(super().__add__(duration))

    def __sub__(self, duration: Any) -> Shifted:
        return Shifted(super().__sub__(duration))

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
        self,
        compiler: SQLCompiler,
        connection: BaseDatabaseWrapper,
        shift: str = "",
        **context: Any,
    ) -> Any:
        """In the very format in which Django writes a datetime with microseconds."""
        # Each % is doubled for the template, and again for the statement's parameters.
        form = "%%%%Y-%%%%m-%%%%d %%%%H:%%%%M:%%%%f"
        template = f"(STRFTIME('{form}', 'NOW'{shift.replace('%', '%%')}) || '000')"
        return self.as_sql(compiler, connection, template=template, **context)

    def as_oracle(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any
    ) -> Any:
        """By construction: Django keeps naive UTC timestamps on Oracle."""
        return self.as_sql(
            compiler, connection, template="SYS_EXTRACT_UTC(SYSTIMESTAMP)", **context
        )


# Note [No Python in SQLite's statements]
# Django adds functions in Python to SQLite for durations. If a signal handler raises
# in one, Ctrl-C becomes an error of the statement, and the statement is sent again.


class Shifted(DurationExpression):
    """The database's now, and a duration later or earlier."""

    def __init__(self, combined: Any):
        super().__init__(combined.lhs, combined.connector, combined.rhs)

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any
    ) -> Any:
        """See Note [No Python in SQLite's statements]. To the millisecond."""
        now: Any = self.lhs
        duration: Any = self.rhs
        microseconds, parameters = compiler.compile(duration)
        shift = f", ({microseconds} / {self.connector}1000000.0) || ' seconds'"
        sql, _ = now.as_sqlite(compiler, connection, shift=shift)
        return sql, parameters


class TimeUntil(TemporalSubtraction):
    """The time from one instant to another; negative if that is past."""

    def __init__(self, instant: Any, now: Any):
        super().__init__(instant, now)

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any
    ) -> Any:
        """See Note [No Python in SQLite's statements]. To the millisecond."""
        sides: Any = (self.lhs, self.rhs)
        (instant, of_instant), (now, of_now) = map(compiler.compile, sides)
        days = f"(JULIANDAY({instant}) - JULIANDAY({now}))"
        sql = f"CAST(ROUND({days} * 86400000) AS INTEGER) * 1000"
        return sql, [*of_instant, *of_now]
