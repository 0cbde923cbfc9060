"""A statement of the lock and one of the history, together or not at all."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from django_shedlock.providers.database.statements import Compiled, Insert, Statement

# Note [A run rides with its lock]
# Written after the acquisition, a run would cost a statement more, and for a moment the
# lock would be held without it. So PostgreSQL gets one statement for both,
# MariaDB one compound statement, and SQLite one transaction. Other databases, and
# stores that are no database, get the run by a statement of its own.
INSERT = (
    "WITH acquired AS ({first}) {insert} SELECT {row} FROM acquired "
    "RETURNING current_setting('search_path'), {key}"
)
UPDATE = (
    "WITH released AS ({first} RETURNING 1), run AS ({second} AND EXISTS "
    "(SELECT FROM released)) SELECT NULL, NULL FROM released"
)
MARIADB = (
    "BEGIN NOT ATOMIC DECLARE matched INT; "
    "DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END; "
    "START TRANSACTION; {first}; SET matched = ROW_COUNT(); "
    "IF matched > 0 THEN {second}; END IF; COMMIT; "
    "SELECT NULL, LAST_INSERT_ID() FROM DUAL WHERE matched > 0; END"
)


def can_ride(connection: BaseDatabaseWrapper) -> bool:
    """Return whether two statements can be one here; see the Note."""
    is_mariadb = getattr(connection, "mysql_is_mariadb", False)
    return connection.vendor in {"postgresql", "sqlite"} or is_mariadb


class Compound(Statement[tuple[Any, ...] | None]):
    """
    Two statements, of which the second is carried out only if the first matched.

    Both are one transaction. Calling it returns the search path that the first one
    tells, if any, and the key of the row that the second one inserts; ``None`` if
    nothing matched.
    """

    def __init__(self, first: Statement[Any], second: Statement[Any]):
        super().__init__(lambda: (first, second))

    @staticmethod
    def fetch(cursor: Any) -> tuple[Any, ...] | None:
        """Return the row; read all of MariaDB's reply, lest the next one meet it."""
        row: tuple[Any, ...] | None = cursor.fetchone()
        while cursor.db.vendor == "mysql" and cursor.nextset():
            pass
        return row

    def __call__(
        self, connection: BaseDatabaseWrapper, /, **values: Any
    ) -> tuple[Any, ...] | None:
        """Execute both; ``values`` are those of both."""
        is_alone = not connection.in_atomic_block
        if connection.vendor == "postgresql" or (
            connection.vendor == "mysql" and is_alone
        ):
            return super().__call__(connection, **values)
        with connection.cursor() as cursor:
            try:
                if is_alone:  # on SQLite, where the first one waits for the writer
                    cursor.execute("BEGIN")
                first, second = self._build()
                matched = first(connection, **values)
                key = second(connection, **values) if matched else None
                if is_alone:
                    cursor.execute("COMMIT")
            finally:
                if is_alone and connection.connection.in_transaction:
                    cursor.execute("ROLLBACK")
        return (None, key) if matched else None

    def _compile(self, built: Any, connection: BaseDatabaseWrapper) -> Compiled:
        compiled: list[Compiled] = [part.compiled(connection) for part in built]
        first, second = compiled
        texts = {"first": first.sql, "second": second.sql}
        if connection.vendor == "mysql":
            form = MARIADB  # it tells the key, and nothing before that
            texts["second"], _, _ = second.sql.partition(" RETURNING ")
        elif isinstance(built[1], Insert):
            form = INSERT
            texts["insert"], _, row = second.sql.partition(" VALUES (")
            texts["row"], _, texts["key"] = row.rpartition(") RETURNING ")
        else:
            form = UPDATE
        sources = (*first.sources, *second.sources)
        return replace(first, sql=form.format(**texts), sources=sources)


together: Callable[..., Compound] = cache(Compound)
"""Returns the compound of two statements, always the same one."""
