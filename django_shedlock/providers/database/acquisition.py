"""Acquire a lock: one conditional UPDATE, and what to do where it does not match."""

from __future__ import annotations

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
from django_shedlock.models.records import not_running
from django_shedlock.providers.database.compound import can_ride, together
from django_shedlock.providers.database.connections import (
    HAS_SEARCH_PATH,
    SHARES_ONE_WRITER,
    in_callers_transaction,
    is_of_a_test,
)
from django_shedlock.providers.database.reading import RecentNames, read
from django_shedlock.providers.database.statements import (
    Compiled,
    Insert,
    Look,
    Statement,
    Update,
    duration,
    instant,
    number,
    text,
)
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import Trigger

DECISIONS = 5
"""How often a start is decided anew at the most, if the record changes meanwhile."""
NEVER = datetime(1970, 1, 1, tzinfo=UTC)
"""The lease of a record whose lock nobody ever held."""
UNKNOWN = LockHolder("another worker, which has released it since")


class Acquiring(Statement[Any, Any]):
    """A statement that tells where it found the table: see Note [Search paths]."""

    def fetch(self, cursor: Any) -> Any:
        """Return a row of what it tells; ``None`` if it did not write the record."""
        if cursor.db.vendor in HAS_SEARCH_PATH:
            return cursor.fetchone()
        return (None,) if cursor.rowcount else None

    def _compile(self, built: Any, connection: BaseDatabaseWrapper) -> Compiled:
        compiled = super()._compile(built, connection)  # type: ignore[safe-super]
        if connection.vendor not in HAS_SEARCH_PATH:
            return compiled
        told = " RETURNING current_setting('search_path'), fencing_token"
        return replace(compiled, sql=compiled.sql + told)


class Acquire(Acquiring, Update):
    """See ``Update``."""


class Create(Acquiring, Insert):
    """See ``Insert``."""


def acquire(
    lock: Lock,
    recent: RecentNames,
    look: Callable[[str], LockStatus | None],
    connection: BaseDatabaseWrapper,
    is_again: bool,
) -> LockHolder | None:
    """Acquire the lock on this connection; return ``None``, or the holder."""
    schedule = lock.configuration.schedule
    if schedule is not None:
        return _acquire_for_tick(lock, schedule, connection)
    by_operator = lock.configuration.start.trigger is Trigger.OPERATOR
    was_refused = not is_again and not by_operator and recent.has(connection, lock.name)
    # Most likely it is refused again, and a look costs less than an UPDATE.
    may_get_it = not was_refused or LOOK(connection, name=lock.name)
    if may_get_it and _write(ACQUIRE[by_operator], lock, connection):
        recent.discard(connection, lock.name)
        return None
    if was_refused:
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
        recent.add(connection, lock.name)
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
        "lock_until": DatabaseNow() + duration("at_most"),
        "lock_at_least_until": DatabaseNow() + duration("at_least"),
        "locked_at": DatabaseNow(),
        "locked_by": text("locked_by"),
        "released_at": None,
        "extended_at": None,
    }


def next_acquisition() -> dict[str, Any]:
    """Return the columns of the acquisition that follows that of the record."""
    return {**_lease(), "fencing_token": F("fencing_token") + 1}


def _acquire(by_operator: bool) -> tuple[LockRecordQuerySet, dict[str, Any]]:
    records = LockRecord.objects.filter(name=text("name"))
    free = records.filter(not_running()) if by_operator else records.acquirable()
    return free, next_acquisition()


def _begin_tick(
    by_operator: bool, is_new: bool
) -> tuple[LockRecordQuerySet, dict[str, Any]]:
    # See Note [The decision is in Python].
    records, columns = _acquire(by_operator)
    now = DatabaseNow(output_field=UTCDateTimeField())
    # Computed from the record: a late release may have changed it since it was read.
    due_at = Coalesce(F("due_at"), instant("tick"))
    return records.filter(
        LessThan(now, instant("holds_until")), fencing_token=number("fencing_token")
    ), {
        **columns,
        "schedule": text("schedule"),
        "tick": instant("tick"),
        "caught_up_tick": instant("caught_up_tick"),
        "due_at": Least(due_at, instant("tick")) if is_new else due_at,
    }


BOTH = (False, True)
ACQUIRE = {by_operator: Acquire(partial(_acquire, by_operator)) for by_operator in BOTH}
"""By whether an operator starts the job."""
BEGIN_TICK = {
    each: Acquire(partial(_begin_tick, *each)) for each in product(BOTH, BOTH)
}
"""By whether an operator starts the job, and whether its tick is new."""
CREATE = Create(
    lambda: (LockRecord, {"name": text("name"), **_lease(), "fencing_token": 1})
)
CREATE_FREE = Insert(
    lambda: (
        LockRecord,
        {
            "name": text("name"),
            "lock_until": NEVER,
            "locked_by": "",
            "locked_at": DatabaseNow(),
            # See Note [A clock that was set back].
            "released_at": DatabaseNow(),
        },
    )
)
LOOK = Look(
    lambda: (
        LockRecord.objects.filter(name=text("name")).acquirable().values_list("name")
    )
)
WRITE_NOTHING = Update(lambda: (LockRecord.objects.filter(name=""), {"locked_by": ""}))


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
    Update(lambda: (records.filter(not_running()), columns))(connection)
