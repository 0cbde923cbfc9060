"""Acquire a lock: one conditional UPDATE, and what to do where it does not match."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Coalesce, Least
from django.db.models.lookups import LessThan

from django_shedlock.clocks import aware
from django_shedlock.fields import DatabaseNow, UTCDateTimeField
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.states import (
    CONTENDED,
    LockHolder,
    LockState,
    LockStatus,
    UnreadHolder,
)
from django_shedlock.models import LockRecord, LockRecordQuerySet
from django_shedlock.models.records import left
from django_shedlock.providers.database.connections import (
    SHARES_ONE_WRITER,
    address,
    in_callers_transaction,
    is_of_a_test,
)
from django_shedlock.providers.database.statements import (
    Insert,
    Select,
    Update,
    duration,
    instant,
    number,
    text,
)
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import (
    Decision,
    ScheduleState,
    Trigger,
    parse_known,
)

DECISIONS = 5
"""How often a start is decided anew at the most, if the record changes meanwhile."""
LATELY = 5.0
"""Seconds for which a record that was read is taken to exist."""
MOST_NAMES = 1000

NEVER = datetime(1970, 1, 1, tzinfo=UTC)
"""The lease of a record whose lock nobody ever held."""
UNKNOWN = LockHolder("another worker, which has released it since")
Read = Callable[[str], "LockStatus | None"]


class Acquisition:
    """Acquires one lock on the connection that it is given, or returns the holder."""

    def __init__(self, lock: Lock, recent: RecentNames, read: Read):
        self._lock = lock
        self._recent = recent
        self._read = read
        self._start = lock.configuration.start
        self._schedule = lock.configuration.schedule
        self._is_by_operator = self._start.trigger is Trigger.OPERATOR
        self._lease = _lease_of(lock)

    def __call__(
        self, connection: BaseDatabaseWrapper, is_again: bool
    ) -> LockHolder | None:
        """Return ``None`` if the lock is acquired."""
        if self._schedule is not None:
            return self._acquire_for_tick(connection, self._schedule)
        acquire = acquire_statement(by_operator=self._is_by_operator)
        if acquire(connection, **self._lease):
            self._recent.discard(connection, self._lock.name)
            return None
        if self._recent.has(connection, self._lock.name) and not is_again:
            return UnreadHolder(self._read_holder)
        return self._create_unless_held(connection)

    def _create_unless_held(self, connection: BaseDatabaseWrapper) -> LockHolder | None:
        record = read(connection, self._lock.name)
        if record is None:
            CREATE(connection, **self._lease)
            return None
        if record.locked_by == self._lock.locked_by:
            return None
        if _may_be_remembered(connection):
            self._recent.add(connection, self._lock.name)
        return record.holder()

    # Note [The decision is in Python]
    # Read the record and the store's clock, and let ScheduleState decide. The UPDATE
    # matches only while the decision holds: until an instant of the store's clock, and
    # unless somebody acquired the lock meanwhile. If it does not match, decide anew.
    def _acquire_for_tick(
        self, connection: BaseDatabaseWrapper, schedule: Schedule
    ) -> LockHolder | None:
        grace = self._lock.configuration.grace
        become_writer(connection)
        for _ in range(DECISIONS):
            record = read(connection, self._lock.name)
            if record is None:
                CREATE_FREE(connection, name=self._lock.name)
                continue
            if record.locked_by == self._lock.locked_by:
                self._lock.tick = record.schedule_state.tick
                return None
            decision = record.schedule_state.decide(
                self._start, schedule, grace, aware(record.clock)
            )
            if (holder := record.refusal(self._start, decision)) is not None:
                return holder
            if self._begin(connection, record, decision):
                self._lock.tick = decision.tick
                return None
        return CONTENDED

    def _begin(
        self, connection: BaseDatabaseWrapper, record: LockStatus, decision: Decision
    ) -> int:
        begin = tick_statement(by_operator=self._is_by_operator, is_new=decision.is_new)
        return begin(
            connection,
            **self._lease,
            schedule=str(decision.state.schedule),
            tick=decision.tick,
            caught_up_tick=decision.state.caught_up,
            holds_until=decision.holds_until,
            fencing_token=record.fencing_token,
        )

    def _read_holder(self) -> LockHolder:
        record = self._read(self._lock.name)
        return UNKNOWN if record is None else record.holder()


def _lease_of(lock: Lock) -> dict[str, Any]:
    """Return the parameters of a statement that acquires the lock."""
    return {
        "name": lock.name,
        "locked_by": lock.locked_by,
        "at_most": lock.configuration.lock_at_most_for,
        "at_least": lock.configuration.lock_at_least_for,
    }


def read(
    connection: BaseDatabaseWrapper, name: str, *, is_whole: bool = False
) -> LockStatus | None:
    """Return the lock of this name; unless it ``is_whole``, without its schedule."""
    for row in READ(connection, name=name):
        locked_by, locked_at, lock_until, state, remaining, clock, *others = row
        token, extended_at, schedule, *ticks = others
        known = parse_known(schedule) if is_whole else None
        return LockStatus(
            name,
            LockState(state),
            locked_by,
            locked_at,
            lock_until,
            left(state, remaining),
            clock,
            ScheduleState(known, *(tick and aware(tick) for tick in ticks)),
            token,
            # Java's ShedLock acquires locks, and does not clear our column.
            heartbeat_at=extended_at
            if extended_at and extended_at >= locked_at
            else None,
        )
    return None


def become_writer(connection: BaseDatabaseWrapper) -> None:
    """
    Wait in the caller's transaction for SQLite's one writer, before it reads.

    Two transactions that both read before they write would wait for each other.
    """
    if connection.vendor in SHARES_ONE_WRITER and in_callers_transaction(connection):
        WRITE_NOTHING(connection)


def _may_be_remembered(connection: BaseDatabaseWrapper) -> bool:
    # Not if a test's rollback removes the record, nor on SQLite, where a read is cheap.
    is_of_test = connection.in_atomic_block or is_of_a_test(connection)
    return connection.vendor not in SHARES_ONE_WRITER and not is_of_test


class RecentNames:
    """
    The names whose records this process has read ``LATELY``, in each database.

    If such a record is deleted, its lock counts as held until that time is over.
    """

    def __init__(self) -> None:
        self._names: dict[tuple[object, ...], float] = {}

    def add(self, connection: BaseDatabaseWrapper, name: str) -> None:
        """Remember the name."""
        if len(self._names) >= MOST_NAMES:
            self._names.clear()
        self._names[_key(connection, name)] = time.monotonic()

    def discard(self, connection: BaseDatabaseWrapper, name: str) -> None:
        """Forget the name."""
        self._names.pop(_key(connection, name), None)

    def has(self, connection: BaseDatabaseWrapper, name: str) -> bool:
        """Whether the name's record was read lately, in this database."""
        read_at = self._names.get(_key(connection, name), -LATELY)
        return time.monotonic() < read_at + LATELY


def _key(connection: BaseDatabaseWrapper, name: str) -> tuple[object, ...]:
    return (*address(connection), name)


def _named() -> LockRecordQuerySet:
    return LockRecord.objects.filter(name=text("name"))


def _lease() -> dict[str, Any]:
    return {
        "lock_until": DatabaseNow() + duration("at_most"),
        "lock_at_least_until": DatabaseNow() + duration("at_least"),
        "locked_at": DatabaseNow(),
        "locked_by": text("locked_by"),
        "released_at": None,
        "extended_at": None,
    }


def acquired_columns() -> dict[str, Any]:
    """Return the columns of the acquisition that follows that of the record."""
    return {**_lease(), "fencing_token": F("fencing_token") + 1}


def _acquire(*, by_operator: bool) -> tuple[LockRecordQuerySet, dict[str, Any]]:
    records = _named().not_running() if by_operator else _named().acquirable()
    return records, acquired_columns()


def _acquire_for_tick(
    *, by_operator: bool, is_new: bool
) -> tuple[LockRecordQuerySet, dict[str, Any]]:
    # See Note [The decision is in Python].
    records, columns = _acquire(by_operator=by_operator)
    now = DatabaseNow(output_field=UTCDateTimeField())
    return records.filter(
        LessThan(now, instant("holds_until")), fencing_token=number("fencing_token")
    ), {
        **columns,
        "schedule": text("schedule"),
        "tick": instant("tick"),
        "caught_up_tick": instant("caught_up_tick"),
        "due_at": _due_at(is_new=is_new),
    }


def _due_at(*, is_new: bool) -> Any:
    # Computed from the record: a late release may have changed it since it was read.
    due_at = Coalesce(F("due_at"), instant("tick"))
    return Least(due_at, instant("tick")) if is_new else due_at


def _create() -> tuple[type[LockRecord], dict[str, Any]]:
    return LockRecord, {"name": text("name"), **_lease(), "fencing_token": 1}


def _create_free() -> tuple[type[LockRecord], dict[str, Any]]:
    # See Note [A clock that was set back].
    created = dict.fromkeys(("locked_at", "released_at"), DatabaseNow())
    lease = {"lock_until": NEVER, "locked_by": "", **created}
    return LockRecord, {"name": text("name"), **lease}


def _read() -> QuerySet[Any, Any]:
    records: Any = _named().with_status().with_clock()
    found: QuerySet[Any, Any] = records.values_list(
        *("locked_by", "locked_at", "lock_until", "state", "remaining", "clock"),
        *("fencing_token", "extended_at", "schedule"),
        *("tick", "due_at", "caught_up_tick"),
    )
    return found


@cache
def acquire_statement(*, by_operator: bool) -> Update:
    """Return the statement that acquires a lock."""
    return Update(partial(_acquire, by_operator=by_operator))


@cache
def tick_statement(*, by_operator: bool, is_new: bool) -> Update:
    """Return the statement that acquires a lock for a tick, which may be new."""
    return Update(partial(_acquire_for_tick, by_operator=by_operator, is_new=is_new))


CREATE = Insert(_create)
CREATE_FREE = Insert(_create_free)
READ = Select(_read)
WRITE_NOTHING = Update(lambda: (LockRecord.objects.filter(name=""), {"locked_by": ""}))


def register(connection: BaseDatabaseWrapper, name: str, schedule: Schedule) -> None:
    """See ``LockProvider.register()``."""
    become_writer(connection)
    record = read(connection, name)
    if record is None:
        CREATE_FREE(connection, name=name)
        record = read(connection, name)
    if record is None:  # pruned at once
        return
    state = record.registered(schedule)
    # Of a job that runs nothing changes, nor of one that has this schedule.
    unlike = Q(schedule=None) | ~Q(schedule=str(schedule))
    records = LockRecord.objects.filter(
        unlike, name=name, fencing_token=record.fencing_token
    )
    columns = {
        "schedule": str(schedule),
        "tick": state.tick,
        "caught_up_tick": state.caught_up,
    }
    # A late release may have changed it since it was read, so it is not written again.
    if state.due_at != record.schedule_state.due_at:
        columns["due_at"] = state.due_at
    Update(lambda: (records.not_running(), columns))(connection)
