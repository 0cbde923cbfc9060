"""Acquire a lock: one conditional UPDATE, and what to do where it does not match."""

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import product
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F, Q
from django.db.models.functions import Coalesce, Least
from django.db.models.lookups import LessThan

from django_shedlock.clocks import aware
from django_shedlock.fields import DatabaseNow, UTCDateTimeField
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.states import CONTENDED, LockHolder, LockStatus, UnreadHolder
from django_shedlock.models import LockRecord, LockRecordQuerySet
from django_shedlock.models.records import held, not_running
from django_shedlock.providers.database import statements as sql
from django_shedlock.providers.database.compound import can_ride, together
from django_shedlock.providers.database.connections import (
    HAS_SEARCH_PATH,
    SHARES_ONE_WRITER,
    address,
    in_callers_transaction,
    is_of_a_test,
)
from django_shedlock.providers.database.reading import read
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import Trigger

DECISIONS = 5
"""How often a start is decided anew at the most, if the record changes meanwhile."""
NEVER = datetime(1970, 1, 1, tzinfo=UTC)
"""The lease of a record whose lock nobody ever held."""
RECENT = 5.0
"""Seconds for which a record that was read is taken to exist."""
MOST_NAMES = 1000
UNKNOWN = LockHolder("another worker, which has released it since")


class Acquiring(sql.Statement[Any]):
    """A statement that tells where it found the table: see Note [Search paths]."""

    def __init__(self, statement: sql.Statement[Any]):
        super().__init__(lambda: statement)

    def fetch(self, cursor: Any) -> Any:
        """Return a row of what it tells; ``None`` if it did not write the record."""
        if cursor.db.vendor in HAS_SEARCH_PATH:
            return cursor.fetchone()
        return (None,) if cursor.rowcount else None

    def _compile(self, built: Any, connection: BaseDatabaseWrapper) -> sql.Compiled:
        compiled: sql.Compiled = built.compiled(connection)
        if connection.vendor not in HAS_SEARCH_PATH:
            return compiled
        told = " RETURNING current_setting('search_path'), fencing_token"
        return replace(compiled, sql=compiled.sql + told)


def acquire(
    lock: Lock,
    recent: dict[object, float],
    look: Callable[[str], LockStatus | None],
    connection: BaseDatabaseWrapper,
    is_again: bool,
) -> LockHolder | None:
    """
    Acquire the lock on this connection; return ``None``, or the holder.

    ``recent`` has when this process read the record of each name and database last.
    """
    schedule = lock.configuration.schedule
    if schedule is not None:
        return _acquire_for_tick(lock, schedule, connection)
    by_operator = lock.configuration.start.trigger is Trigger.OPERATOR
    key = lock.name, *address(connection)
    is_recent = time.monotonic() < recent.get(key, -RECENT) + RECENT
    may_look = is_recent and not is_again and not by_operator
    # Most likely it is refused again, and a look costs less than an UPDATE. If there is
    # no record, it was deleted, or was another tenant's.
    seen = LOOK(connection, name=lock.name) if may_look else None
    is_held = seen is not None and seen[0]
    if not is_held and _write(ACQUIRE[by_operator], lock, connection):
        recent.pop(key, None)
        return None
    if seen is not None:
        # Only who asks for the holder needs to read it.
        return UnreadHolder(
            lambda: UNKNOWN if (now := look(lock.name)) is None else now.holder()
        )
    status = read(connection, lock.name)
    if status is None:
        _write(CREATE, lock, connection)
        return None
    if status.locked_by == lock.locked_by:  # by our own first try
        return None
    # Not if a test's rollback removes the record, nor on SQLite, where a read is cheap.
    is_of_test = connection.in_atomic_block or is_of_a_test(connection)
    if not is_of_test and connection.vendor not in SHARES_ONE_WRITER:
        if len(recent) >= MOST_NAMES:
            recent.clear()
        recent[key] = time.monotonic()
    return status.holder()


# Note [The decision is in Python]
# Read the record and the store's clock, and let ScheduleState decide. The UPDATE
# matches only while the decision holds: until an instant of the store's clock, and
# unless somebody acquired the lock meanwhile. If it does not match, decide anew.
def _acquire_for_tick(
    lock: Lock, schedule: Schedule, connection: BaseDatabaseWrapper
) -> LockHolder | None:
    start, grace = lock.configuration.start, lock.configuration.grace
    become_writer(connection)
    for _ in range(DECISIONS):
        status = read(connection, lock.name)
        if status is None:
            CREATE_FREE(connection, name=lock.name)
            continue
        if status.locked_by == lock.locked_by:  # by our own first try
            lock.tick = status.schedule_state.tick
            return None
        decision = status.schedule_state.decide(
            start, schedule, grace, aware(status.clock)
        )
        if (holder := status.refusal(start, decision)) is not None:
            return holder
        begin = BEGIN_TICK[start.trigger is Trigger.OPERATOR, decision.is_new]
        if _write(
            begin,
            lock,
            connection,
            schedule=str(decision.state.schedule),
            tick=decision.tick,
            caught_up_tick=decision.state.caught_up,
            holds_until=decision.holds_until,
            fencing_token=status.fencing_token,
        ):
            lock.tick = decision.tick
            return None
    return CONTENDED


def become_writer(connection: BaseDatabaseWrapper) -> None:
    """
    Wait in the caller's transaction for SQLite's one writer, before it reads.

    Two transactions that both read before they write would wait for each other.
    """
    if connection.vendor in SHARES_ONE_WRITER and in_callers_transaction(connection):
        WRITE_NOTHING(connection)


def _write(
    statement: Acquiring, lock: Lock, connection: BaseDatabaseWrapper, **ticks: Any
) -> bool:
    # With its run, if there is one: see Note [A run rides with its lock].
    values = {
        "name": lock.name,
        "locked_by": lock.locked_by,
        "at_most": lock.configuration.lock_at_most_for,
        "at_least": lock.configuration.lock_at_least_for,
        **ticks,
    }
    run = lock.begin_run() if can_ride(connection) else None
    if run is None or (beginning := run.beginning()) is None:
        written = statement(connection, **values)
    else:
        insert, columns = beginning
        values |= columns
        written = together(statement, insert)(connection, **values)
        run.row = written and written[1]
    if written is not None:
        lock.search_path = written[0]
    return written is not None


def _lease() -> dict[str, Any]:
    return {
        "lock_until": DatabaseNow() + sql.duration("at_most"),
        "lock_at_least_until": DatabaseNow() + sql.duration("at_least"),
        "locked_at": DatabaseNow(),
        "locked_by": sql.text("locked_by"),
        "released_at": None,
        "extended_at": None,
    }


def next_acquisition() -> dict[str, Any]:
    """Return the columns of the acquisition that follows that of the record."""
    return {**_lease(), "fencing_token": F("fencing_token") + 1}


def _acquire(by_operator: bool) -> tuple[LockRecordQuerySet, dict[str, Any]]:
    records = LockRecord.objects.filter(name=sql.text("name"))
    free = records.filter(not_running()) if by_operator else records.acquirable()
    return free, next_acquisition()


def _begin_tick(
    by_operator: bool, is_new: bool
) -> tuple[LockRecordQuerySet, dict[str, Any]]:
    # See Note [The decision is in Python].
    records, columns = _acquire(by_operator)
    now = DatabaseNow(output_field=UTCDateTimeField())
    # Computed from the record: a late release may have changed it since it was read.
    due_at = Coalesce(F("due_at"), sql.instant("tick"))
    return records.filter(
        LessThan(now, sql.instant("holds_until")),
        fencing_token=sql.number("fencing_token"),
    ), {
        **columns,
        "schedule": sql.text("schedule"),
        "tick": sql.instant("tick"),
        "caught_up_tick": sql.instant("caught_up_tick"),
        "due_at": Least(due_at, sql.instant("tick")) if is_new else due_at,
    }


BOTH = (False, True)
ACQUIRE = {each: Acquiring(sql.Update(partial(_acquire, each))) for each in BOTH}
"""By whether an operator starts the job."""
BEGIN_TICK = {
    each: Acquiring(sql.Update(partial(_begin_tick, *each)))
    for each in product(BOTH, BOTH)
}
"""By whether an operator starts the job, and whether its tick is new."""
FIRST: dict[str, Any] = {"name": sql.text("name"), "fencing_token": 1}
CREATE = Acquiring(sql.Insert(lambda: (LockRecord, {**FIRST, **_lease()})))
CREATE_FREE = sql.Insert(
    lambda: (
        LockRecord,
        {
            "name": sql.text("name"),
            "lock_until": NEVER,
            "locked_by": "",
            "locked_at": DatabaseNow(),
            # See Note [A clock that was set back].
            "released_at": DatabaseNow(),
        },
    )
)
LOOK = sql.Look(
    lambda: (
        LockRecord.objects.filter(name=sql.text("name"))
        .annotate(is_held=held())
        .values_list("is_held")
    )
)
"""Tells whether the lock is held, if there is a record."""
WRITE_NOTHING = sql.Update(
    lambda: (LockRecord.objects.filter(name=""), {"locked_by": ""})
)


def register(connection: BaseDatabaseWrapper, name: str, schedule: Schedule) -> None:
    """See ``LockProvider.register()``."""
    become_writer(connection)
    status = read(connection, name)
    if status is None:
        CREATE_FREE(connection, name=name)
        status = read(connection, name)
    if status is None:  # pruned at once
        return
    state = status.registered(schedule)
    # Of a job that runs nothing changes, nor of one that has this schedule.
    unlike = Q(schedule=None) | ~Q(schedule=str(schedule))
    records = LockRecord.objects.filter(
        unlike, name=name, fencing_token=status.fencing_token
    )
    columns = {
        "schedule": str(schedule),
        "tick": state.tick,
        "caught_up_tick": state.caught_up,
    }
    # A late release may have changed it since it was read, so it is not written again.
    if state.due_at != status.schedule_state.due_at:
        columns["due_at"] = state.due_at
    sql.Update(lambda: (records.filter(not_running()), columns))(connection)
