"""Statements that are compiled once from a queryset, and executed many times."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar
from weakref import WeakKeyDictionary

from django.core.exceptions import FullResultSet
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.db.models import Case, QuerySet, When
from django.db.models.constants import OnConflict
from django.db.models.sql import DeleteQuery, InsertQuery, Query, UpdateQuery

from django_shedlock.sql.fields import CompiledPart, UTCDateTimeField

if TYPE_CHECKING:  # Django loads it with the first query
    from django.db.models.sql.compiler import SQLCompiler

Built = TypeVar("Built")
R = TypeVar("R")
Rows = TypeVar("Rows", bound="QuerySet[Any, Any]")

Columns = dict[str, object]
"""The columns that a statement writes, each with its expression or value."""
Changes = tuple[QuerySet[models.Model, object], Columns]
"""The records that an UPDATE changes, and their new columns."""
Row = tuple[type[models.Model], Columns]
"""The model of which an INSERT makes a row, and its columns."""
Answer = tuple[Any, ...]
"""A row as the driver returns it."""
Preparation = Callable[[object, BaseDatabaseWrapper], object]
"""Turns a value into what the database's driver takes."""

ROW_WAIT_SETTING = "SHEDLOCK_ROW_WAIT"
"""In the settings of connections whose statements must not wait long for a row."""


class Parameter(models.Expression):
    """Stands in a queryset for a value that is given with each execution."""

    def __init__(self, name: str, output_field: "models.Field[object, object]"):
        super().__init__(output_field=output_field)
        self.name = name

    def as_sql(
        self, compiler: "SQLCompiler", connection: BaseDatabaseWrapper
    ) -> CompiledPart:
        return "%s", [self]  # Compiled.bind() puts the value there

    def preparation(self, connection: BaseDatabaseWrapper) -> Preparation | None:
        """Return how a value is prepared for the driver; ``None`` if it need not be."""
        features = connection.features
        takes = {
            models.CharField: True,
            models.BigIntegerField: True,
            models.BooleanField: True,
            models.FloatField: True,
            models.DurationField: features.has_native_duration_field,
            UTCDateTimeField: features.supports_timezones,
        }
        if takes[type(self.output_field)]:
            return None
        return self.output_field.get_db_prep_value

    def as_mysql(
        self,
        compiler: "SQLCompiler",
        connection: BaseDatabaseWrapper,
        **context: object,
    ) -> CompiledPart:
        # Without the cast MySQL compares texts, so the number of digits matters.
        if isinstance(self.output_field, models.DateTimeField):
            return "CAST(%s AS DATETIME(6))", [self]
        return self.as_sql(compiler, connection)


def text(name: str) -> Parameter:
    """Return the parameter of this name for a ``str``."""
    return Parameter(name, models.CharField())


def texts(*columns: str) -> dict[str, Parameter]:
    """Return the parameters for these columns, which are named as they are."""
    return {column: text(column) for column in columns}


def number(name: str) -> Parameter:
    """Return the parameter of this name for an ``int``."""
    return Parameter(name, models.BigIntegerField())


def flag(name: str) -> Parameter:
    """Return the parameter of this name for a ``bool``."""
    return Parameter(name, models.BooleanField())


def seconds(name: str) -> Parameter:
    """Return the parameter of this name for a ``float``."""
    return Parameter(name, models.FloatField())


def duration(name: str) -> Parameter:
    """Return the parameter of this name for a ``timedelta``."""
    return Parameter(name, models.DurationField())


def instant(name: str) -> Parameter:
    """Return the parameter of this name for an aware ``datetime``."""
    return Parameter(name, UTCDateTimeField())


class TransactionSetting(models.Expression):
    """
    A condition that is true and sets something for its transaction, on PostgreSQL.

    In autocommit the statement is the transaction, so a pooler keeps nothing of it.
    ``only_with`` is a key that the connection's settings need for it.
    """

    def __init__(self, setting: str, value: str, only_with: str | None = None):
        super().__init__(output_field=models.BooleanField())
        self.setting: str = setting
        self.value: str = value
        self.only_with: str | None = only_with

    def as_sql(
        self, compiler: "SQLCompiler", connection: BaseDatabaseWrapper
    ) -> CompiledPart:
        raise FullResultSet  # which leaves the condition out

    def as_postgresql(
        self,
        compiler: "SQLCompiler",
        connection: BaseDatabaseWrapper,
        **context: object,
    ) -> CompiledPart:
        if self.only_with and self.only_with not in connection.settings_dict:
            raise FullResultSet
        call = f"set_config('{self.setting}', '{self.value}', true)"
        return f"{call} = '{self.value}'", []


ASYNCHRONOUS_COMMIT = TransactionSetting("synchronous_commit", "off")
"""
Commits without a wait for the disk.

Only for what a crash of the server may lose. Nothing is corrupted, and the next durable
statement makes this one durable as well.
"""


@dataclass(frozen=True)
class Compiled:
    """
    A statement's text, its query, and what stands for its placeholders.

    Each of ``sources`` is the name of a value and how it is prepared, or no name and
    then the value itself. ``columns`` are those that a SELECT returns.
    """

    sql: str
    query: Query
    sources: tuple[tuple[str | None, Preparation | None, object], ...]
    columns: tuple[models.Expression, ...] = ()

    @classmethod
    def of(
        cls,
        connection: BaseDatabaseWrapper,
        query: Query,
        sql: str,
        parameters: Iterable[object],
        columns: tuple[models.Expression, ...] = (),
    ) -> Self:
        """Return what Django compiled from a queryset with ``Parameter``s."""
        sources: list[tuple[str | None, Preparation | None, object]] = []
        remaining = iter(parameters)

        def place(found: re.Match[str]) -> str:
            if found[0] == "%%":
                return found[0]
            given = next(remaining)
            if isinstance(given, Parameter):
                sources.append((given.name, given.preparation(connection), None))
                return found[0]
            # A driver's own number is shown as one by str() only.
            literal = repr(given) if isinstance(given, str) else str(given)
            # Python and SQL write this alike, so it need not be a parameter. Oracle
            # does not compare a literal with its texts (by construction, not tried).
            is_plain = re.fullmatch(r"[0-9]+(\.[0-9]+)?|'[a-z :]*'", literal)
            if is_plain and connection.vendor != "oracle":
                return literal
            sources.append((None, None, given))
            return found[0]

        text = re.sub("%[s%]", place, sql)
        return cls(text, query, tuple(sources), columns)

    def bind(
        self, values: Mapping[str, object], connection: BaseDatabaseWrapper
    ) -> list[Any]:
        """Return the parameters with their values."""
        bound = []
        for name, prepare, given in self.sources:
            if name is None:
                bound.append(given)
            elif prepare is None:
                bound.append(values[name])
            else:
                bound.append(prepare(values[name], connection))
        return bound


class Statement(ABC, Generic[Built, R]):
    """
    A statement that is built by a function, and compiled once for each database.

    Calling it executes it on the connection that is given, with values by keyword, and
    returns what ``fetch()`` gets from Django's cursor.
    """

    key_attribute: ClassVar[str] = "shedlock_key"
    """Under this name a connection keeps which of the compiled texts are its own."""

    def __init__(self, build: Callable[[], Built]):
        self._build = build
        self._compiled: dict[Hashable, Compiled] = {}

    def compiled(self, connection: BaseDatabaseWrapper) -> Compiled:
        """Return the statement for this connection's database and settings."""
        key = vars(connection)[self.key_attribute] = (
            connection.alias,
            connection.vendor,
            ROW_WAIT_SETTING in connection.settings_dict,
            getattr(connection.features, "uses_server_side_binding", None),
        )
        if key not in self._compiled:
            self._compiled[key] = self._compile(self._build(), connection)
        return self._compiled[key]

    def __call__(self, connection: BaseDatabaseWrapper, /, **values: object) -> R:
        """Execute it."""
        known = self._compiled.get(vars(connection).get(self.key_attribute))
        compiled = known or self.compiled(connection)
        with connection.cursor() as cursor:
            cursor.execute(compiled.sql, compiled.bind(values, connection))
            return self.fetch(cursor)

    @abstractmethod
    def fetch(self, cursor: CursorWrapper) -> R:
        """Return the answer from the cursor that has executed the statement."""

    @abstractmethod
    def _compile(self, built: Built, connection: BaseDatabaseWrapper) -> Compiled: ...


def can_return(connection: BaseDatabaseWrapper) -> bool:
    """Return whether an UPDATE can return columns: SQLite does so since 3.35."""
    known = connection.vendor in {"postgresql", "sqlite"}
    return known and connection.features.can_return_columns_from_insert


def returning(
    column: str, compiled: Compiled, connection: BaseDatabaseWrapper
) -> Compiled:
    """Return the statement with a RETURNING clause, where the database has one."""
    if not can_return(connection):
        return compiled
    return replace(compiled, sql=f"{compiled.sql} RETURNING {column}")


def reported_number(cursor: CursorWrapper) -> int | None:
    """Return the number that the statement reports; see ``Reported``."""
    return int(cursor.lastrowid) if cursor.db.vendor == "mysql" else None


class Reported(models.Func):
    """
    A number that MySQL and MariaDB report to the client, beside writing it.

    Other databases return columns, so there it is the number alone.
    """

    function: str | None = "LAST_INSERT_ID"
    arity: int | None = 1

    def as_sql(  # type: ignore[override]
        self, compiler: "SQLCompiler", connection: BaseDatabaseWrapper, **context: str
    ) -> CompiledPart:
        if connection.vendor == "mysql":
            return super().as_sql(compiler, connection, **context)
        return compiler.compile(self.source_expressions[0])


def row_wait_of(duration: str) -> TransactionSetting:
    """Return the condition by which a private connection waits no longer for a row."""
    return TransactionSetting("lock_timeout", duration, ROW_WAIT_SETTING)


class BaseUpdate(Statement[Changes, R]):
    """An UPDATE, built from a queryset and its new columns."""

    row_wait: ClassVar[str] = "1s"
    """On a private connection it waits for a row no longer than this."""

    def _compile(self, built: Changes, connection: BaseDatabaseWrapper) -> Compiled:
        records, columns = built
        limited = records.filter(row_wait_of(self.row_wait))
        query: Any = limited.query.chain(UpdateQuery)
        query.add_update_values(columns)
        query.annotations = {}
        compiler = query.get_compiler(connection=connection)
        sql, parameters = compiler.as_sql()
        return Compiled.of(connection, query, sql, parameters)


class Update(BaseUpdate[int]):
    """An UPDATE that returns how many records matched."""

    def fetch(self, cursor: CursorWrapper) -> int:
        """Return how many records matched."""
        return int(cursor.rowcount)


class HastyUpdate(Update):
    """An UPDATE that hardly waits for a row: other work waits behind it."""

    row_wait = "10ms"


class Delete(Statement[QuerySet[models.Model, object], int]):
    """A DELETE, built from a queryset, that returns how many rows were deleted."""

    row_wait: ClassVar[str] = "1s"
    """On a private connection it waits for a row no longer than this."""

    def fetch(self, cursor: CursorWrapper) -> int:
        """Return how many rows were deleted."""
        return int(cursor.rowcount)

    def _compile(
        self, built: QuerySet[models.Model, object], connection: BaseDatabaseWrapper
    ) -> Compiled:
        limited = built.filter(row_wait_of(self.row_wait))
        query: Any = limited.query.chain(DeleteQuery)
        sql, parameters = query.get_compiler(connection=connection).as_sql()
        return Compiled.of(connection, query, sql, parameters)


class UpdateReturning(BaseUpdate[tuple[int | None] | None]):
    """
    An UPDATE of one record that returns the new number in a column.

    It returns a tuple of the number, or ``None`` if no record matched. MySQL and
    MariaDB return the number that is ``Reported``; an old SQLite returns none.
    """

    def __init__(self, build: Callable[[], Changes], *, column: str):
        super().__init__(build)
        self._column = column

    def fetch(self, cursor: CursorWrapper) -> tuple[int | None] | None:
        """Return the number, as far as the database can return one."""
        if can_return(cursor.db):
            rows = cursor.fetchall()  # SQLite commits once the last row is read
            return (rows[0][0],) if rows else None
        return (reported_number(cursor),) if cursor.rowcount else None

    def _compile(self, built: Changes, connection: BaseDatabaseWrapper) -> Compiled:
        return returning(self._column, super()._compile(built, connection), connection)


class Select(Statement[QuerySet[models.Model, object], list[Answer]]):
    """A SELECT, built from a queryset of ``values_list()``."""

    def fetch(self, cursor: CursorWrapper) -> list[Answer]:
        """Return the rows as the driver has them."""
        rows: list[Answer] = cursor.fetchall()
        return rows

    def __call__(
        self, connection: BaseDatabaseWrapper, /, **values: object
    ) -> list[Answer]:
        """Execute it; return the rows as Django would."""
        rows = super().__call__(connection, **values)
        if not rows:
            return rows
        # Each connection keeps what Django converts the answer with.
        known = vars(connection).setdefault("shedlock_converters", WeakKeyDictionary())
        if self not in known:
            compiled = self.compiled(connection)
            compiler = compiled.query.get_compiler(connection=connection)
            known[self] = compiler, compiler.get_converters(compiled.columns)
        compiler, converters = known[self]
        return [tuple(row) for row in compiler.apply_converters(rows, converters)]

    def _compile(
        self, built: QuerySet[models.Model, object], connection: BaseDatabaseWrapper
    ) -> Compiled:
        compiler = built.query.get_compiler(connection=connection)
        sql, parameters = compiler.as_sql()
        columns = tuple(column for column, _, _ in compiler.select)
        return Compiled.of(connection, built.query, sql, parameters, columns)


class Probe(Select):
    """A SELECT that fails at once if another transaction has a row."""

    # It keeps no row: a worker that is stopped before its UPDATE would keep the lock.

    def is_needed_on(self, connection: BaseDatabaseWrapper) -> bool:
        """Return whether an UPDATE waits for a row for a second at least."""
        return connection.vendor in {"mysql", "oracle"}  # Oracle: not tried

    def _compile(
        self, built: QuerySet[models.Model, object], connection: BaseDatabaseWrapper
    ) -> Compiled:
        compiled = super()._compile(built, connection)
        nowait = connection.ops.for_update_sql(nowait=True)
        return replace(compiled, sql=f"{compiled.sql} {nowait}")


class BaseInsert(Statement[Row, R]):
    """
    An INSERT, built from the model and the columns that are given.

    If a row has the same value in the column ``unique``, that row gets the columns
    ``updated`` instead. Without them it stays as it is.
    """

    row_wait: ClassVar[str] = "1s"
    """On a private connection it waits no longer for another row of this key."""

    def __init__(
        self,
        build: Callable[[], Row],
        *,
        unique: str | None = None,
        updated: Sequence[str] = (),
    ):
        super().__init__(build)
        self._unique = unique
        self._updated = updated

    def _compile(self, built: Row, connection: BaseDatabaseWrapper) -> Compiled:
        model, columns = built
        # An INSERT has no WHERE, so the limit is a part of its first value.
        first = next(iter(columns))
        limit = row_wait_of(self.row_wait)
        columns = {**columns, first: Case(When(limit, then=columns[first]))}
        query = InsertQuery(model, **self._on_conflict(model, connection))
        known = model._meta.concrete_fields
        fields = [field for field in known if field.name in columns]
        query.insert_values(fields, [model(**columns)])
        compiler = query.get_compiler(connection=connection)
        [(sql, parameters)] = compiler.as_sql()
        return Compiled.of(connection, query, sql, parameters)

    def _on_conflict(
        self, model: type[models.Model], connection: BaseDatabaseWrapper
    ) -> dict[str, object]:
        if self._unique is None:
            return {}
        unique = model._meta.get_field(self._unique)
        # Without others it updates the unique column to what it is. An INSERT IGNORE of
        # MySQL would also ignore values that do not fit.
        updated = [model._meta.get_field(each) for each in self._updated] or [unique]
        # MySQL and MariaDB take whichever unique column there is.
        has_target = connection.features.supports_update_conflicts_with_target
        return {
            "on_conflict": OnConflict.UPDATE,
            "update_fields": updated,
            "unique_fields": [unique] if has_target else [],
        }


class Insert(BaseInsert[int]):
    """An INSERT that returns how many rows were written."""

    def fetch(self, cursor: CursorWrapper) -> int:
        """Return how many rows were written."""
        return int(cursor.rowcount)


class InsertReturning(BaseInsert[int | None]):
    """An INSERT that returns the number in a column; see ``UpdateReturning``."""

    def __init__(self, build: Callable[[], Row], *, column: str):
        super().__init__(build)
        self._column = column

    def fetch(self, cursor: CursorWrapper) -> int | None:
        """Return the number; ``None`` if the database returns none."""
        if not can_return(cursor.db):
            return reported_number(cursor)
        [row] = cursor.fetchall()
        return int(row[0])

    def _compile(self, built: Row, connection: BaseDatabaseWrapper) -> Compiled:
        return returning(self._column, super()._compile(built, connection), connection)


class QueryOnConnection(Query):
    """A query that runs on ``given``, not on the connection of the queryset's alias."""

    given: BaseDatabaseWrapper

    def get_compiler(
        self,
        using: str | None = None,
        connection: BaseDatabaseWrapper | None = None,
        elide_empty: bool = True,
    ) -> Any:
        given = self.given if connection is None else connection
        return super().get_compiler(connection=given, elide_empty=elide_empty)


def on_connection(queryset: Rows, connection: BaseDatabaseWrapper) -> Rows:
    """Return the queryset, which reads on this connection. It can't write there."""
    chosen: Rows = queryset.all()
    query: Any = chosen.query  # its own
    query.__class__ = QueryOnConnection
    query.given = connection
    return chosen
