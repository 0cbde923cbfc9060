"""A lock of the database itself, which stands in while the table is missing."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import Error, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_shedlock.models import LockRecord
from django_shedlock.signals import logger
from django_shedlock.sql.connections import (
    close,
    copy_of,
    in_callers_transaction,
    run_here,
)
from django_shedlock.sql.errors import is_missing_table

# Note [Before the first migrate]
# The first deploy starts `migrate` in each pod, and that makes the table of locks. So a
# process that finds no table acquires a lock that the database has anyway, on a
# connection of its own, and looks again: if the table is there by now, the record
# decides. A process that finds the table asks whether that lock is free: its holder may
# have made the table, and may still be at work. Once there is a table, nobody starts a
# body under the other lock any more, so these looks, in this order, are enough.
#
# On PostgreSQL the lock belongs to a transaction that stays open, so a pooler that
# lends connections for a transaction lends this one for as long. It has no snapshot,
# and holds up neither VACUUM nor an index that is made concurrently.
ACQUIRE_QUERIES = {
    "postgresql": "SELECT pg_try_advisory_xact_lock(%s)",
    "mysql": "SELECT GET_LOCK(%s, 0)",
}
IS_FREE_QUERIES = {
    "postgresql": "SELECT pg_try_advisory_xact_lock_shared(%s)",
    "mysql": "SELECT IS_FREE_LOCK(%s)",
}
"""PostgreSQL gives it in autocommit, so it ends at once, and refuses no other."""


@contextmanager
def stand_in(using: str, name: str) -> Iterator[bool | None]:
    """See ``LockProvider.stand_in()``, and Note [Before the first migrate]."""
    caller = connections[using]
    if in_callers_transaction(caller):
        yield None  # a look without a table would break the transaction
        return
    if has_table(using):
        yield None if ask(caller, IS_FREE_QUERIES, name) else False
        return
    what = "the database's own lock stands in"
    if caller.vendor not in ACQUIRE_QUERIES:
        what = "it is not locked: this database has no lock that could stand in"
    connection = copy_of(caller)
    try:
        if caller.vendor in ACQUIRE_QUERIES:
            _open(connection)
        is_ours = ask(connection, ACQUIRE_QUERIES, name)
        if is_ours and not has_table(using):
            logger.warning("Lock %r: its table is missing, so %s.", name, what)
            yield True
            return
    finally:
        close(connection)
    yield None if is_ours else False


def _open(connection: BaseDatabaseWrapper) -> None:
    # Nobody uses the connection while the body runs, and it must stay.
    if connection.vendor == "mysql":
        connection.set_autocommit(True)
        statements = ["SET SESSION wait_timeout = 604800"]
    else:
        # Within the transaction: other levels would keep a snapshot, and the session of
        # a pooler belongs to nobody.
        connection.set_autocommit(False)
        statements = [
            "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
            "SELECT set_config(name, '0', true) FROM pg_settings WHERE name IN "
            "('idle_in_transaction_session_timeout', 'transaction_timeout')",
        ]
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def has_table(using: str) -> bool:
    """Return whether the table of locks is there."""
    records = LockRecord.objects.using(using).filter(pk="")
    try:
        run_here(records.exists, using)
    except Error as error:
        if is_missing_table(error):
            return False
        raise
    return True


def ask(connection: BaseDatabaseWrapper, queries: dict[str, str], name: str) -> bool:
    """Return the answer about the lock that stands in; true if there is none."""
    if connection.vendor not in queries:
        return True
    # MySQL's locks are the server's, and have short names; PostgreSQL's are numbers.
    database = connection.settings_dict["NAME"]
    text = f"{database}:{LockRecord._meta.db_table}:{name}"
    digest = hashlib.sha256(text.encode())
    key: str | int = f"shedlock:{digest.hexdigest()[:40]}"
    if connection.vendor == "postgresql":
        key = int.from_bytes(digest.digest()[:8], signed=True)
    with connection.cursor() as cursor:
        cursor.execute(queries[connection.vendor], [key])
        return bool(cursor.fetchone()[0])
