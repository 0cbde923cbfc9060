"""Run one lock statement, whatever the caller's connection is going through."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, TypeVar

from django.db import Error, InterfaceError, OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_shedlock.providers.database_errors import is_conflict, is_lock_timeout

T = TypeVar("T")

ATTEMPTS = 6
PATIENCE = 1.0
"""Seconds after which a conflict of one writer is final: it has waited by itself."""
SHORTEST_PAUSE = 0.005
LONGEST_PAUSE = 0.03

# Note [A connection of its own]
# Inside the caller's transaction a lock would be invisible to other workers, would
# make them block instead of skip, and would vanish with a rollback. So there the
# statement gets a copy of the connection, which takes its place for this moment. The
# pool is left out: with every pooled connection in a caller's transaction each of them
# would wait for another one. The copy may meet a row lock of the caller's own
# transaction, which waits for us: hence the timeout. SET LOCAL leaves nothing behind
# at a pooler. SQLite has one writer, so there the caller's connection has to do.
SHARES_ONE_WRITER = {"sqlite"}
LOCK_TIMEOUT = {
    "postgresql": "SET LOCAL lock_timeout = '1s'",
    "mysql": "SET SESSION innodb_lock_wait_timeout = 1",
}


def run(statement: Callable[[], T], using: str, *, is_urgent: bool = False) -> T:
    """
    Return what ``statement`` returns, once it got through.

    An urgent one gives up soon if somebody else has the row.

    Conflicts with other statements are retried for a moment, and a lost connection
    once, on a fresh one: so ``statement`` must bear being run twice. Raises the
    ``django.db.Error`` that remains.
    """
    own = _in_callers_transaction(connections[using])
    may_reconnect = True
    give_up_at = time.monotonic() + _patience(connections[using])
    for attempts_left in reversed(range(ATTEMPTS)):
        try:
            with _copied(using) if own else _here(using, is_urgent=is_urgent):
                return statement()
        except Error as error:
            if not attempts_left:
                raise
            if is_conflict(error):
                if time.monotonic() > give_up_at:
                    raise
                time.sleep(random.uniform(SHORTEST_PAUSE, LONGEST_PAUSE))
            elif may_reconnect and _may_be_lost_connection(error):
                may_reconnect = False
                _close_if_dead(connections[using])
                own = not _shares_one_writer(connections[using])
            else:
                raise
    raise AssertionError("the last attempt returns or raises")


def _in_callers_transaction(connection: BaseDatabaseWrapper) -> bool:
    if _shares_one_writer(connection):
        return False
    if not connection.in_atomic_block:
        return not connection.get_autocommit()
    # TestCase's own blocks are no transaction of the user's.
    blocks: list[Any] = connection.atomic_blocks
    return not any(block._from_testcase for block in blocks)


def _shares_one_writer(connection: BaseDatabaseWrapper) -> bool:
    return connection.vendor in SHARES_ONE_WRITER


def _patience(connection: BaseDatabaseWrapper) -> float:
    # A server tells of a conflict only after a wait for the row, or for a deadlock.
    return PATIENCE if _shares_one_writer(connection) else math.inf


def _close_if_dead(connection: BaseDatabaseWrapper) -> None:
    # So that the caller does not meet it; in its transaction it has to.
    is_open = connection.connection and not connection.in_atomic_block
    if is_open and not connection.is_usable():
        connection.close()


def _may_be_lost_connection(error: Error) -> bool:
    # Drivers name a lost connection in dozens of ways, but all of these classes.
    return isinstance(error, OperationalError | InterfaceError) and not is_lock_timeout(
        error
    )


def savepoint(using: str) -> AbstractContextManager[None]:
    """Keep a statement that fails from breaking the transaction it is in, if any."""
    in_transaction = connections[using].in_atomic_block
    return transaction.atomic(using) if in_transaction else nullcontext()


def _here(using: str, *, is_urgent: bool) -> AbstractContextManager[None]:
    return _impatient(using) if is_urgent else savepoint(using)


@contextmanager
def _impatient(using: str) -> Iterator[None]:
    connection = connections[using]
    with transaction.atomic(using):
        if connection.vendor in LOCK_TIMEOUT:
            with connection.cursor() as cursor:
                cursor.execute(LOCK_TIMEOUT[connection.vendor])
        yield


@contextmanager
def _copied(using: str) -> Iterator[None]:
    # See Note [A connection of its own].
    original = connections[using]
    copy = original.copy()
    copy.settings_dict["AUTOCOMMIT"] = True
    copy.settings_dict["OPTIONS"].pop("pool", None)
    connections[using] = copy
    try:
        with _impatient(using):
            yield
    finally:
        connections[using] = original
        with suppress(Error):
            copy.close()
