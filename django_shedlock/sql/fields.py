"""Columns that mean the same on every database, and the database's clock."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from django.conf import settings
from django.db import NotSupportedError, models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import DateTimeField, Func
from django.db.models.expressions import (
    Combinable,
    DurationExpression,
    TemporalSubtraction,
)
from django.db.models.lookups import GreaterThanOrEqual, Lookup, Range
from django.utils import timezone

from django_shedlock.clocks import EARLIEST_INSTANT, LATEST_INSTANT, aware

if TYPE_CHECKING:  # in Django itself the fields take no parameters
    from django.db.models.sql.compiler import SQLCompiler

    Text = models.CharField[str, str]
    LongText = models.TextField[str, str]
    OptionalText = models.CharField[str | None, str | None]
    Flag = models.BooleanField[bool, bool]
    Number = models.BigIntegerField[int, int]
    OptionalNumber = models.BigIntegerField[int | None, int | None]
    Count = models.IntegerField[int, int]
    OptionalFloat = models.FloatField[float | None, float | None]
    OptionalDuration = models.DurationField[timedelta | None, Any]
    Instant = models.DateTimeField[Any, Any]  # of one that must not be NULL as well
else:
    Text, OptionalText, LongText = models.CharField, models.CharField, models.TextField
    Number = OptionalNumber = models.BigIntegerField
    Count, Flag = models.IntegerField, models.BooleanField
    OptionalFloat, Instant = models.FloatField, models.DateTimeField
    OptionalDuration = models.DurationField

CompiledPart = tuple[str, Any]
"""A part of a statement, and its parameters: more than Django's type stubs allow."""


class UTCDateTimeField(Instant):
    """
    A ``DateTimeField`` whose column is UTC, whatever the project's settings.

    Databases without time zones get naive values from Django in a zone that depends
    on ``USE_TZ`` and ``TIME_ZONE``. This column is compared with the database's own
    clock in UTC, so there it is always written and read as UTC. In Python it is what
    a ``DateTimeField`` is: aware with ``USE_TZ``, else naive in ``TIME_ZONE``.
    """

    def get_db_prep_value(
        self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False
    ) -> object:
        if connection.features.supports_timezones:
            return super().get_db_prep_value(value, connection, prepared)
        value = value if prepared else self.get_prep_value(value)
        if isinstance(value, datetime):
            value = aware(value).astimezone(UTC).replace(tzinfo=None)
        if isinstance(value, datetime) and connection.vendor == "sqlite":
            # It compares texts, so each needs its six digits.
            return value.isoformat(sep=" ", timespec="microseconds")
        return connection.ops.adapt_datetimefield_value(value)

    def from_db_value(
        self,
        value: datetime | None,
        expression: object,
        connection: BaseDatabaseWrapper,
    ) -> datetime | None:
        if value is None or connection.features.supports_timezones:
            return value
        # With USE_TZ the backend already called it the connection's zone.
        moment = aware(value.replace(tzinfo=UTC))
        return moment if settings.USE_TZ else timezone.make_naive(moment)


class LockUntilField(UTCDateTimeField):
    """
    The end of a lease, which is read as ``LATEST_INSTANT`` at the latest.

    People pause a job by hand with ``9999-12-31 23:59:59``. East of Greenwich that is
    in the year 10000, which neither psycopg nor Python can show.
    """

    def select_format(
        self, compiler: "SQLCompiler", sql: str, params: Sequence[str | int]
    ) -> CompiledPart:
        if compiler.connection.vendor == "postgresql":
            sql = f"LEAST({sql}, '{LATEST_INSTANT}')"
        return sql, params


class Readable(Func):
    """
    The condition that every time zone can show the instants of these columns.

    The first one may be later; see ``LockUntilField``. NULL is fine in every column.
    """

    output_field = models.BooleanField()

    def as_sql(  # type: ignore[override]
        self,
        compiler: "SQLCompiler",
        connection: BaseDatabaseWrapper,
        **context: object,
    ) -> CompiledPart:
        first, *others = self.source_expressions
        lookups: list[Lookup[bool]] = [GreaterThanOrEqual(first, EARLIEST_INSTANT)]
        lookups += [
            Range(column, (EARLIEST_INSTANT, LATEST_INSTANT)) for column in others
        ]
        conditions: list[str] = []
        parameters: list[object] = []
        for lookup in lookups:
            condition, values = compiler.compile(lookup)
            conditions.append(condition)
            parameters += values
        return f"({' AND '.join(conditions)})", parameters

    def as_postgresql(
        self,
        compiler: "SQLCompiler",
        connection: BaseDatabaseWrapper,
        **context: object,
    ) -> CompiledPart:
        # Each UPDATE checks it. Fewer comparisons take a third of the time, and here
        # LEAST and GREATEST ignore NULL.
        columns = [compiler.compile(column)[0] for column in self.source_expressions]
        earliest, latest = ", ".join(columns), ", ".join(columns[1:])
        is_late_enough = f"LEAST({earliest}) >= '{EARLIEST_INSTANT}'"
        is_early_enough = f"GREATEST({latest}) <= '{LATEST_INSTANT}'"
        return f"({is_late_enough} AND {is_early_enough})", []


class LockNameField(Text):
    """
    A ``CharField`` that compares as Python does, and has no second index.

    MySQL's and MariaDB's usual collations take ``job``, ``Job`` and ``jöb`` for one
    key; PostgreSQL would get an index for LIKE that nobody uses.
    """

    def get_prep_value(self, value: object) -> object:
        # PostgreSQL refuses NUL. No name has it, nor any other control character.
        value = super().get_prep_value(value)
        return value.replace("\0", "\x01") if isinstance(value, str) else value

    def db_type(self, connection: BaseDatabaseWrapper) -> str | None:
        # The standard's long name, which gets no index for LIKE.
        column_type = super().db_type(connection)
        return column_type and column_type.replace("varchar", "character varying")

    def db_parameters(self, connection: BaseDatabaseWrapper) -> dict[str, str | None]:
        parameters = {**super().db_parameters(connection)}
        if connection.vendor == "mysql":
            parameters["collation"] = "utf8mb4_bin"
        return parameters


class DatabaseNow(Func):
    """
    The instant at which the database evaluates it, in UTC, to the microsecond.

    Django's ``Now()`` is the statement's start on PostgreSQL, so that a statement
    that waited for a row would shorten the lease, and it follows the session's time
    zone on MySQL and MariaDB. SQLite has milliseconds, which are padded because
    SQLite compares instants as texts. A duration may be added and subtracted.
    """

    output_field = DateTimeField()
    templates: ClassVar[dict[str, str]] = {
        "postgresql": "CLOCK_TIMESTAMP()",
        "mysql": "UTC_TIMESTAMP(6)",
        # In the very format in which Django writes a datetime with microseconds. Each %
        # is doubled for the template, and again for the statement's parameters.
        "sqlite": (
            "(STRFTIME('%%%%Y-%%%%m-%%%%d %%%%H:%%%%M:%%%%f', 'NOW'{shift}) || '000')"
        ),
        "oracle": "SYS_EXTRACT_UTC(SYSTIMESTAMP)",  # by construction, not tried
    }

    def as_sql(  # type: ignore[override]
        self, compiler: "SQLCompiler", connection: BaseDatabaseWrapper, **context: str
    ) -> CompiledPart:
        template = self.templates.get(connection.vendor, "CURRENT_TIMESTAMP")
        shift = context.pop("shift", "").replace("%", "%%")
        context["template"] = template.replace("{shift}", shift)
        return super().as_sql(compiler, connection, **context)

    def __add__(self, duration: object) -> "Shifted":
        return Shifted(self, self.ADD, as_expression(duration))

    def __sub__(self, duration: object) -> "Shifted":
        return Shifted(self, self.SUB, as_expression(duration))


class StatementNow(DatabaseNow):
    """
    The instant at which the statement began, for a search by an index.

    PostgreSQL looks up nothing in an index that may change from row to row.
    """

    templates: ClassVar[dict[str, str]] = {
        **DatabaseNow.templates,
        "postgresql": "STATEMENT_TIMESTAMP()",
    }


def as_expression(duration: object) -> Combinable:
    """Return the duration as an expression, if it is none yet."""
    return duration if isinstance(duration, Combinable) else models.Value(duration)


# Note [No Python in SQLite's statements]
# Django adds functions in Python to SQLite for durations. If a signal handler raises
# in one, Ctrl-C becomes an error of the statement, and the statement is sent again.


class Shifted(DurationExpression):
    """The database's now, and a duration later or earlier."""

    lhs: DatabaseNow
    rhs: models.Expression

    def as_sqlite(
        self,
        compiler: "SQLCompiler",
        connection: BaseDatabaseWrapper,
        **context: object,
    ) -> CompiledPart:
        # See Note [No Python in SQLite's statements]. To the millisecond.
        microseconds, parameters = compiler.compile(self.rhs)
        shift = f", ({microseconds} / {self.connector}1000000.0) || ' seconds'"
        sql, _ = self.lhs.as_sql(compiler, connection, shift=shift)
        return sql, parameters


class TimeUntil(TemporalSubtraction):
    """
    The time from one instant to another; negative if that is past.

    See ``LockUntilField`` for instants that are later than ``LATEST_INSTANT``.
    """

    lhs: models.Expression
    rhs: models.Expression
    templates: ClassVar[dict[str, str]] = {
        "postgresql": f"(LEAST({{}}, '{LATEST_INSTANT}') - {{}})",
        # See Note [No Python in SQLite's statements]. To the millisecond.
        "sqlite": (
            f"CAST(ROUND((JULIANDAY(MIN({{}}, '{LATEST_INSTANT:%Y-%m-%d}')) - "
            "JULIANDAY({})) * 86400000) AS INTEGER) * 1000"
        ),
        "mysql": "-TIMESTAMPDIFF(MICROSECOND, {}, {})",
    }

    def as_sql(
        self, compiler: "SQLCompiler", connection: BaseDatabaseWrapper
    ) -> CompiledPart:
        template = self.templates.get(connection.vendor)
        if template is None:
            return super().as_sql(compiler, connection)
        instant, of_instant = compiler.compile(self.lhs)
        now, of_now = compiler.compile(self.rhs)
        return template.format(instant, now), [*of_instant, *of_now]


class ClockMilliseconds(Func):
    """The milliseconds since 1970 by the database's clock, a whole number."""

    output_field = models.BigIntegerField()
    arity: int | None = 0
    templates: ClassVar[dict[str, str]] = {
        "postgresql": "(DATE_PART('epoch', {now}) * 1000)::bigint",
        "mysql": "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {now}) DIV 1000)",
        "sqlite": "CAST((JULIANDAY({now}) - 2440587.5) * 86400000 AS INTEGER)",
        # By construction, not tried.
        "cockroachdb": "(EXTRACT(epoch FROM {now}) * 1000)::bigint",
        "oracle": "TRUNC((CAST({now} AS DATE) - DATE '1970-01-01') * 86400000)",
    }

    def as_sql(  # type: ignore[override]
        self,
        compiler: "SQLCompiler",
        connection: BaseDatabaseWrapper,
        **context: object,
    ) -> CompiledPart:
        template = self.templates.get(connection.vendor)
        if template is None:
            # Others may count in local time, or in whole seconds.
            name = connection.display_name
            raise NotSupportedError(f"{name} has no clock that locks can rely on")
        now, parameters = compiler.compile(DatabaseNow())
        return template.format(now=now), parameters


def storable(text: str) -> str:
    """Return the text as every database accepts it."""
    # PostgreSQL accepts no NUL, and no database half of a surrogate pair.
    escaped = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return escaped.replace("\0", "\\0")
