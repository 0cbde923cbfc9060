"""Columns that mean the same on every database, and the database's clock."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Self

from django.conf import settings
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import DateTimeField, Func
from django.db.models.expressions import Col, DurationExpression, TemporalSubtraction
from django.db.models.sql.compiler import SQLCompiler
from django.utils import timezone

from django_shedlock.clocks import EARLIEST, LATEST, aware

if TYPE_CHECKING:  # in Django itself they take no parameters
    Text = models.CharField[str, str]
    LongText = models.TextField[str, str]
    Number = models.BigIntegerField[Any, Any]
    Instant = models.DateTimeField[Any, Any]
else:
    Text, LongText = models.CharField, models.TextField
    Number, Instant = models.BigIntegerField, models.DateTimeField


class UTCDateTimeField(Instant):
    """
    A ``DateTimeField`` whose column is UTC, whatever the project's settings.

    Databases without time zones get naive values from Django in a zone that depends
    on ``USE_TZ`` and ``TIME_ZONE``. This column is compared with the database's own
    clock in UTC, so there it is always written and read as UTC. In Python it is what
    a ``DateTimeField`` is: aware with ``USE_TZ``, else naive in ``TIME_ZONE``.

    What other programs wrote is read as the nearest instant that Python can show in
    every zone: from ``clocks.EARLIEST``, also for what is no instant, to ``LATEST``.
    """

    def get_db_prep_value(
        self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False
    ) -> Any:
        if connection.features.supports_timezones:
            return super().get_db_prep_value(value, connection, prepared)
        value = value if prepared else self.get_prep_value(value)
        if isinstance(value, datetime):
            value = aware(value).astimezone(UTC).replace(tzinfo=None)
        return connection.ops.adapt_datetimefield_value(value)

    def from_db_value(
        self, value: datetime | None, expression: Any, connection: BaseDatabaseWrapper
    ) -> datetime | None:
        if value is None:
            if self.null or not isinstance(expression, Col):
                return None
            # MySQL's driver reads a zero date as None, and so does SQLite any word.
            moment = EARLIEST
        elif connection.features.supports_timezones:
            return value
        else:
            # With USE_TZ the backend already called it the connection's zone.
            moment = aware(value.replace(tzinfo=UTC))
        return moment if settings.USE_TZ else timezone.make_naive(moment)

    def select_format(
        self, compiler: SQLCompiler, sql: str, params: Any
    ) -> tuple[str, Any]:
        # See Note [Instants that no driver can read].
        return _readable(compiler.connection.vendor, sql, params)


# Note [Instants that no driver can read]
# psycopg refuses the whole answer if one instant is infinite, or its year is not one
# of Python's in the session's zone, and Django's converter for SQLite refuses the 31st
# of February. So the database makes them readable, the 31st of February as the 3rd of
# March. These functions keep NULL, unlike PostgreSQL's GREATEST.
READABLE = {
    "postgresql": (
        f"TIMESTAMPTZ_SMALLER(TIMESTAMPTZ_LARGER({{}}, '{EARLIEST}'), '{LATEST}')"
    ),
    "sqlite": f"MIN(MAX({{}}, '{EARLIEST.date()}'), '{LATEST.date()}')",
}


def _readable(vendor: str, sql: str, parameters: Any) -> tuple[str, Any]:
    nearest = READABLE.get(vendor, "{}").format(sql)
    if vendor != "sqlite":
        return nearest, parameters
    whole = f"STRFTIME('%%Y-%%m-%%d %%H:%%M:%%S', {nearest}, '+0 days')"
    # The fraction of a second stays as it is.
    return f"{whole} || SUBSTR({nearest}, 20, 7)", (*parameters, *parameters)


class LockNameField(Text):
    """
    A ``CharField`` that compares as Python does, and has no second index.

    MySQL's and MariaDB's usual collations take ``job``, ``Job`` and ``jöb`` for one
    key; PostgreSQL would get an index for LIKE that nobody uses.
    """

    def get_prep_value(self, value: Any) -> Any:
        # PostgreSQL refuses NUL. No name has it, nor any other control character.
        value = super().get_prep_value(value)
        return value.replace("\0", "\x01") if isinstance(value, str) else value

    def db_type(self, connection: BaseDatabaseWrapper) -> str | None:
        # The standard's long name, which gets no index for LIKE.
        column_type = super().db_type(connection)
        return column_type and column_type.replace("varchar", "character varying")

    def db_parameters(self, connection: BaseDatabaseWrapper) -> Any:
        parameters: dict[str, Any] = {**super().db_parameters(connection)}
        if connection.vendor == "mysql":
            parameters["collation"] = "utf8mb4_bin"
        return parameters


class MedianField(LongText):
    """The median of durations, or those that a database without one has listed."""

    def from_db_value(self, value: Any, *args: Any) -> timedelta | None:
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]
        found = sorted(int(each) for each in value.split(",") if each)
        return timedelta(microseconds=found[(len(found) - 1) // 2]) if found else None


class Kept(Func):
    """
    An expression whose text is kept, for a queryset from which others are made.

    Django compiles an expression anew wherever it stands, and in each queryset.
    """

    template, arity = "%(expressions)s", 1

    def copy(self) -> Self:
        # It may get another alias, and so another text.
        copied = super().copy()
        vars(copied).pop("kept", None)
        return copied

    def as_sql(  # type: ignore[override]
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper
    ) -> Any:
        kept: dict[Any, Any] = vars(self).setdefault("kept", {})
        if (key := (connection.alias, connection.vendor)) not in kept:
            kept[key] = super().as_sql(compiler, connection)
        sql, parameters = kept[key]
        return sql, list(parameters)


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
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any
    ) -> Any:
        template = self.templates.get(connection.vendor, "CURRENT_TIMESTAMP")
        shift = context.pop("shift", "").replace("%", "%%")
        context["template"] = template.replace("{shift}", shift)
        return super().as_sql(compiler, connection, **context)

    def _combine(self, other: Any, connector: str, is_reversed: bool) -> Any:
        # Django makes every sum and difference in it.
        combined = super()._combine(other, connector, is_reversed)  # type: ignore[misc]
        return Shifted(combined.lhs, combined.connector, combined.rhs)


class StatementNow(DatabaseNow):
    """
    The instant at which the statement began, for a search by an index.

    PostgreSQL looks up nothing in an index that may change from row to row.
    """

    templates: ClassVar[dict[str, str]] = {
        **DatabaseNow.templates,
        "postgresql": "STATEMENT_TIMESTAMP()",
    }


# Note [No Python in SQLite's statements]
# Django adds functions in Python to SQLite for durations. If a signal handler raises
# in one, Ctrl-C becomes an error of the statement, and the statement is sent again.


class Shifted(DurationExpression):
    """The database's now, and a duration later or earlier."""

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any
    ) -> Any:
        # See Note [No Python in SQLite's statements]. To the millisecond.
        now: Any = self.lhs
        duration: Any = self.rhs
        microseconds, parameters = compiler.compile(duration)
        shift = f", ({microseconds} / {self.connector}1000000.0) || ' seconds'"
        sql, _ = now.as_sql(compiler, connection, shift=shift)
        return sql, parameters


class TimeUntil(TemporalSubtraction):
    """
    The time from one instant to another; negative if that is past.

    It is zero for what is no instant.
    """

    templates: ClassVar[dict[str, str]] = {
        "postgresql": "({} - {})",
        # See Note [No Python in SQLite's statements]. To the millisecond.
        "sqlite": (
            "COALESCE(CAST(ROUND((JULIANDAY({}) - JULIANDAY({})) * 86400000) "
            "AS INTEGER) * 1000, 0)"
        ),
        # From a zero date there is no time.
        "mysql": "COALESCE(-TIMESTAMPDIFF(MICROSECOND, {}, {}), 0)",
    }

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> Any:
        vendor = connection.vendor
        if vendor not in self.templates:
            return super().as_sql(compiler, connection)
        # See Note [Instants that no driver can read].
        sides: Any = (self.lhs, self.rhs)
        read = [_readable(vendor, *compiler.compile(side)) for side in sides]
        (instant, of_instant), (now, of_now) = read
        return self.templates[vendor].format(instant, now), [*of_instant, *of_now]


def storable(text: str) -> str:
    """Return the text as every database accepts it."""
    # PostgreSQL accepts no NUL, and no database half of a surrogate pair.
    escaped = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return escaped.replace("\0", "\\0")
