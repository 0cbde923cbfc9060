"""The lock's statements, each compiled once from a queryset."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

from django.core.exceptions import FullResultSet
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import (
    BigIntegerField,
    BooleanField,
    CharField,
    DateTimeField,
    DurationField,
    Expression,
    Field,
    Model,
    QuerySet,
)
from django.db.models.sql import InsertQuery, UpdateQuery
from django.db.models.sql.compiler import SQLCompiler

from django_shedlock.fields import UTCDateTimeField

T = TypeVar("T")

ROW_WAIT = "SHEDLOCK_ROW_WAIT"
"""In a connection's settings: its statements wait for a row for a second at most."""
PROBED = {"mysql", "oracle"}
"""Their UPDATE waits for a row for a second at least; on Oracle by construction."""


class Parameter(Expression):
    """
    Stands in a queryset for a value that is given with each execution.

    Texts and integers go to the driver as they are. Other fields prepare their values.
    """

    def __init__(self, name: str, output_field: Field[Any, Any]):
        super().__init__(output_field=output_field)
        self.name = name
        self.is_plain = isinstance(output_field, CharField | BigIntegerField)

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> Any:
        return "%s", [self]  # which the value replaces, see Compiled.bind()

    def as_mysql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any
    ) -> Any:
        # Without the cast MySQL compares texts, so the number of digits matters.
        if isinstance(self.output_field, DateTimeField):
            return "CAST(%s AS DATETIME(6))", [self]
        return self.as_sql(compiler, connection)


text = partial(Parameter, output_field=CharField())
number = partial(Parameter, output_field=BigIntegerField())
duration = partial(Parameter, output_field=DurationField())
"""For a ``timedelta``."""
instant = partial(Parameter, output_field=UTCDateTimeField())
"""For an aware ``datetime``."""


class TransactionSetting(Expression):
    """
    A condition that is true and sets something for its transaction, on PostgreSQL.

    In autocommit the statement is the transaction, so a pooler keeps nothing of it.
    ``only_with`` is a key that the connection's settings need for it.
    """

    def __init__(self, setting: str, value: str, only_with: str | None = None):
        super().__init__(output_field=BooleanField())
        self.setting, self.value, self.only_with = setting, value, only_with

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> Any:
        raise FullResultSet  # which leaves the condition out

    def as_postgresql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any
    ) -> Any:
        if self.only_with and self.only_with not in connection.settings_dict:
            raise FullResultSet
        call = f"set_config('{self.setting}', '{self.value}', true)"
        return f"{call} = '{self.value}'", []


ASYNCHRONOUS_COMMIT = TransactionSetting("synchronous_commit", "off")
"""
Commits without a wait for the disk.

Only for what a crash of the server may lose. Nothing is corrupted, and the next durable
statement makes it durable, too.
"""


@dataclass(frozen=True)
class Compiled:
    """A statement's text, and what stands for its placeholders."""

    sql: str
    parameters: tuple[Any, ...]
    query: Any = None
    columns: tuple[Any, ...] = ()
    key: Any = None

    def bind(
        self, values: Mapping[str, Any], connection: BaseDatabaseWrapper
    ) -> list[Any]:
        """Return the parameters with their values."""
        bound = []
        for given in self.parameters:
            if not isinstance(given, Parameter):
                bound.append(given)
            elif given.is_plain:
                bound.append(values[given.name])
            else:
                field, value = given.output_field, values[given.name]
                bound.append(field.get_db_prep_value(value, connection))
        return bound


class Statement(ABC, Generic[T]):
    """
    A statement that is built by a function, and compiled once for each database.

    Calling it executes it on the connection that is given, with values by keyword.
    """

    def __init__(self, build: Callable[[], T]):
        self._build = build
        self._compiled: dict[Hashable, Compiled] = {}

    def compiled(self, connection: BaseDatabaseWrapper) -> Compiled:
        """Return the statement for this connection's database and settings."""
        key = (
            connection.alias,
            connection.vendor,
            ROW_WAIT in connection.settings_dict,
            getattr(connection.features, "uses_server_side_binding", None),
        )
        if key not in self._compiled:
            self._compiled[key] = self._compile(self._build(), connection)
        return self._compiled[key]

    @abstractmethod
    def _compile(self, built: T, connection: BaseDatabaseWrapper) -> Compiled: ...


class Update(Statement[tuple["QuerySet[Any]", dict[str, Any]]]):
    """An UPDATE: what is built is the records and their new columns; see ROW_WAIT."""

    def __init__(self, build: Callable[[], Any], *, wait: str = "1s"):
        super().__init__(build)
        self._limit = TransactionSetting("lock_timeout", wait, only_with=ROW_WAIT)

    def __call__(self, connection: BaseDatabaseWrapper, /, **values: Any) -> int:
        """Execute it; return how many records matched."""
        compiled = self.compiled(connection)
        with connection.cursor() as cursor:
            cursor.execute(compiled.sql, compiled.bind(values, connection))
            count: int = cursor.rowcount
        return count

    def _compile(
        self,
        built: tuple[QuerySet[Any], dict[str, Any]],
        connection: BaseDatabaseWrapper,
    ) -> Compiled:
        records, columns = built
        query: Any = records.filter(self._limit).query.chain(UpdateQuery)
        query.add_update_values(columns)
        query.annotations = {}
        sql, parameters = query.get_compiler(connection=connection).as_sql()
        return Compiled(sql, tuple(parameters))


class Select(Statement["QuerySet[Any, Any]"]):
    """A SELECT: what is built is a queryset of ``values_list()``."""

    def __call__(
        self, connection: BaseDatabaseWrapper, /, **values: Any
    ) -> list[tuple[Any, ...]]:
        """Execute it; return the rows as Django would."""
        compiled = self.compiled(connection)
        with connection.cursor() as cursor:
            cursor.execute(compiled.sql, compiled.bind(values, connection))
            rows = cursor.fetchall()
        compiler = compiled.query.get_compiler(connection=connection)
        converters = compiler.get_converters(compiled.columns)
        return [tuple(row) for row in compiler.apply_converters(rows, converters)]

    def _compile(
        self, built: QuerySet[Any, Any], connection: BaseDatabaseWrapper
    ) -> Compiled:
        compiler = built.query.get_compiler(connection=connection)
        sql, parameters = compiler.as_sql()
        columns = tuple(column for column, _, _ in compiler.select)
        return Compiled(sql, tuple(parameters), built.query, columns)


class Probe(Select):
    """Fails at once if another transaction has a row; see PROBED."""

    # It keeps no row: a worker that is stopped before its UPDATE would keep the lock.

    def __call__(self, connection: BaseDatabaseWrapper, /, **values: Any) -> Any:
        """Execute it where it is needed; fetch nothing."""
        if connection.vendor in PROBED:
            compiled = self.compiled(connection)
            with connection.cursor() as cursor:
                cursor.execute(compiled.sql, compiled.bind(values, connection))

    def _compile(self, built: Any, connection: BaseDatabaseWrapper) -> Compiled:
        compiled = super()._compile(built, connection)
        nowait = connection.ops.for_update_sql(nowait=True)
        return replace(compiled, sql=f"{compiled.sql} {nowait}")


class Insert(Statement[tuple[type[Model], dict[str, Any]]]):
    """An INSERT: what is built is the model, and the columns that are given."""

    def __call__(self, connection: BaseDatabaseWrapper, /, **values: Any) -> int | None:
        """Execute it; return the key that the database made, if it tells."""
        compiled = self.compiled(connection)
        with connection.cursor() as cursor:
            cursor.execute(compiled.sql, compiled.bind(values, connection))
            key = compiled.key
            if key is None:
                return None
            if connection.features.can_return_columns_from_insert:
                return int(cursor.fetchone()[0])
            table = key.model._meta.db_table
            return connection.ops.last_insert_id(cursor, table, key.column)

    def _compile(
        self,
        built: tuple[type[Model], dict[str, Any]],
        connection: BaseDatabaseWrapper,
    ) -> Compiled:
        model, columns = built
        key = model._meta.auto_field
        query = InsertQuery(model)
        fields: Any = [model._meta.get_field(column) for column in columns]
        query.insert_values(fields, [model(**columns)])
        compiler = query.get_compiler(connection=connection)
        if key and connection.features.can_return_columns_from_insert:
            compiler.returning_fields = [key]
        ((sql, parameters),) = compiler.as_sql()
        return Compiled(sql, tuple(parameters), key=key)
