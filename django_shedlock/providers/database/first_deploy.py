"""A lock of the database itself, which stands in while the table is missing."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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
# The first deploy starts `migrate` in each pod, and that makes the table of locks. So
# whoever finds no table acquires a lock that the database has anyway, on a connection
# of its own, and looks again: if the table has come meanwhile, the record decides.
# Whoever finds the table asks whether that lock is free: its holder may have made the
# table, and be still at work. Once there is a table, nobody starts a body under the
# other lock any more, so these looks, in this order, are enough.
#
# On PostgreSQL the lock belongs to a transaction that stays open, so a pooler that
# lends connections for a transaction lends this one for as long. It has no snapshot,
# and holds up neither VACUUM nor an index that is made concurrently.
ACQUIRE = {
    "postgresql": "SELECT pg_try_advisory_xact_lock(%s)",
    "mysql": "SELECT GET_LOCK(%s, 0)",
}
IS_FREE = {
    "postgresql": "SELECT pg_try_advisory_xact_lock_shared(%s)",
    "mysql": "SELECT IS_FREE_LOCK(%s)",
}
"""On PostgreSQL in autocommit, so it goes with the statement, and refuses no other."""
AT_OPENING: dict[str, Any] = {
    "postgresql": (
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
        "SELECT set_config(name, '0', true) FROM pg_settings WHERE name IN "
        "('idle_in_transaction_session_timeout', 'transaction_timeout')",
    ),
    "mysql": ("SET SESSION wait_timeout = 604800",),
}
"""
Nobody uses the connection while the body runs, and it must stay. On PostgreSQL within
the transaction: other levels would keep a snapshot, and a pooler's session is no one's.
"""


@contextmanager
def stand_in(using: str, name: str) -> Iterator[bool | None]:
    """See ``LockProvider.stand_in()``, and Note [Before the first migrate]."""
    caller = connections[using]
    if caller.in_atomic_block or in_callers_transaction(caller):
        yield None  # a look without a table would break the transaction
        return
    if has_table(using):
        yield None if ask(caller, IS_FREE, name) else False
        return
    what = "the database's own lock stands in"
    if caller.vendor not in ACQUIRE:
        what = "it is not locked: this database has no lock that could stand in"
    connection = copy_of(caller)
    try:
        if caller.vendor in ACQUIRE:
            connection.set_autocommit(caller.vendor == "mysql")
            with connection.cursor() as cursor:
                for statement in AT_OPENING[caller.vendor]:
                    cursor.execute(statement)
        is_ours = ask(connection, ACQUIRE, name)
        if is_ours and not has_table(using):
            logger.warning("Lock %r: its table is missing, so %s.", name, what)
            yield True
            return
    finally:
        close(connection)
    yield None if is_ours else False


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


def ask(connection: BaseDatabaseWrapper, how: dict[str, str], name: str) -> bool:
    """Return the answer about the lock that stands in; true if there is none."""
    if connection.vendor not in how:
        return True
    # MySQL's locks are the server's, and have short names; PostgreSQL's are numbers.
    database = connection.settings_dict["NAME"]
    text = f"{database}:{LockRecord._meta.db_table}:{name}"
    digest = hashlib.sha256(text.encode())
    key: str | int = f"shedlock:{digest.hexdigest()[:40]}"
    if connection.vendor == "postgresql":
        key = int.from_bytes(digest.digest()[:8], signed=True)
    with connection.cursor() as cursor:
        cursor.execute(how[connection.vendor], [key])
        return bool(cursor.fetchone()[0])
