"""Acquire a lock: one conditional UPDATE, and what to do where it does not match."""

from datetime import datetime

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Q

from django_shedlock.in_tests import is_only_connection
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import CONTENDED, AbandonedRun, LockHolder, RunOutcome
from django_shedlock.models import LockRecord
from django_shedlock.models.records import not_in_use
from django_shedlock.providers.database import statements
from django_shedlock.providers.database.reading import read
from django_shedlock.providers.database.statements import Acquisition
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import Start, Trigger
from django_shedlock.sql.compiling import Changes, Columns, Update, UpdateReturning
from django_shedlock.sql.connections import ONE_WRITER_VENDORS, in_callers_transaction

DECISION_LIMIT = 5
"""So often at the most a start is decided anew, if the record changes meanwhile."""


def acquire(lock: Lock, connection: BaseDatabaseWrapper) -> LockHolder | None:
    """Acquire the lock on this connection; return ``None``, or the holder."""
    schedule = lock.configuration.schedule
    if schedule is not None:
        return _acquire_for_tick(lock, schedule, connection)
    statement, _ = _statements_for(lock.configuration.start)
    if _write(statement.usual, lock, connection):
        return None
    for _ in range(DECISION_LIMIT):
        found = statements.holder(connection, name=lock.name)
        if not found:
            if lock.configuration.start.request is not None:
                return CONTENDED  # the request is gone with the record
            lock.known_token = statements.create(connection, **_values(lock))
            return None
        [(locked_by, remaining, open_run, locked_at, lock_until)] = found
        if locked_by == lock.locked_by:  # by our own first try
            _find_abandoned(lock, connection)
            return None
        is_over = remaining <= ZERO or lock_until == locked_at
        is_refused = open_run is None and lock.configuration.start.request is not None
        if not is_over or is_refused:  # perhaps since nobody asks for a run any more
            has_ended = open_run is None
            return LockHolder(locked_by, max(remaining, ZERO), has_ended=has_ended)
        if open_run is None:  # it was released, or accounted for, since the UPDATE
            if _write(statement.usual, lock, connection):
                return None
            continue
        # A worker died. Unless somebody else accounts for its run first, we do.
        over = statement.over_open_run
        if _write(over, lock, connection, former_run=open_run):
            started_at = locked_at if open_run == locked_by else None
            lock.abandoned = AbandonedRun(open_run, started_at, lock_until)
            return None
    return CONTENDED


# Note [The decision is in Python]
# Read the record and the store's clock, and let ScheduleState decide. The UPDATE
# matches only while the decision holds: until an instant of the store's clock, and
# unless somebody acquired the lock meanwhile. If it does not match, decide anew.
def _acquire_for_tick(
    lock: Lock, schedule: Schedule, connection: BaseDatabaseWrapper
) -> LockHolder | None:
    start, grace = lock.configuration.start, lock.configuration.grace
    _, statement = _statements_for(start)
    wait_for_writer(connection)
    for _ in range(DECISION_LIMIT):
        status = read(connection, lock.name)
        if status is None:
            statements.create_free(connection, name=lock.name)
            continue
        if status.locked_by == lock.locked_by:  # by our own first try
            lock.tick = status.schedule_state.tick
            _find_abandoned(lock, connection)
            return None
        decision = status.decide(start, schedule, grace)
        if (holder := status.refusal(start, decision)) is not None:
            return holder
        former_run = status.job.open_run
        if _write(
            statement.usual if former_run is None else statement.over_open_run,
            lock,
            connection,
            former_run=former_run,
            schedule=str(decision.state.schedule),
            tick=decision.tick,
            former_tick=decision.state.former_tick,
            due_at=decision.state.due_at,
            holds_until=decision.holds_until,
            fencing_token=status.fencing_token,
        ):
            lock.tick = decision.tick
            lock.former_tick = status.schedule_state.tick
            if former_run is not None:
                is_holder = former_run == status.locked_by
                started_at = status.locked_at if is_holder else None
                lock.abandoned = AbandonedRun(former_run, started_at, status.lock_until)
            return None
    return CONTENDED


def _statements_for(start: Start) -> tuple[Acquisition, Acquisition]:
    """Return the statement for a lock without a schedule, and that for a tick."""
    if start.request is not None:
        return statements.acquire_for_request, statements.begin_tick_for_request
    if start.trigger is Trigger.OPERATOR:
        return statements.acquire_for_operator, statements.begin_tick_for_operator
    return statements.acquire, statements.begin_tick


def wait_for_writer(connection: BaseDatabaseWrapper) -> None:
    """
    Wait in the caller's transaction for SQLite's one writer, before it reads.

    Two transactions that both read before they write would wait for each other.
    """
    if connection.vendor not in ONE_WRITER_VENDORS or is_only_connection(connection):
        return  # no other connection waits for what this one reads
    if in_callers_transaction(connection):
        statements.become_writer(connection)


def _values(lock: Lock) -> dict[str, object]:
    return {
        "name": lock.name,
        "locked_by": lock.locked_by,
        "open_run": lock.locked_by if lock.opens_run else None,
        "at_most": lock.configuration.lock_at_most_for,
        "at_least": lock.configuration.lock_at_least_for,
        "asked_at": lock.configuration.start.request,
    }


def _write(
    statement: UpdateReturning,
    lock: Lock,
    connection: BaseDatabaseWrapper,
    **more: object,
) -> bool:
    answer = statement(connection, **_values(lock), **more)
    if answer is None:
        return False
    [lock.known_token] = answer
    return True


def _find_abandoned(lock: Lock, connection: BaseDatabaseWrapper) -> None:
    # The answer to the acquisition was lost, so nobody knows whether it has accounted
    # for a run. If that has its row in the history already, a second one is refused.
    for locked_by, outcome, started_at, ended_at in statements.last_run(
        connection, name=lock.name
    ):
        if outcome == RunOutcome.ABANDONED:
            lock.abandoned = AbandonedRun(locked_by, started_at, ended_at)


def register(
    connection: BaseDatabaseWrapper,
    name: str,
    schedule: Schedule,
    since: datetime | None,
) -> None:
    """See ``LockProvider.register()``."""
    wait_for_writer(connection)
    status = read(connection, name)
    if status is None:
        statements.create_free(connection, name=name)
        status = read(connection, name)
    if status is None:  # pruned at once
        return
    state = status.registered(schedule, since)
    # Leave running jobs and unchanged schedules alone.
    unlike = Q(schedule=None) | ~Q(schedule=str(schedule))
    records = LockRecord.objects.filter(
        unlike, name=name, fencing_token=status.fencing_token
    )
    columns: Columns = {
        "schedule": str(schedule),
        "tick": state.tick,
        "former_tick": state.former_tick,
    }
    # A late release may have changed it since it was read, so it is not written again.
    if state.due_at != status.schedule_state.due_at:
        columns["due_at"] = state.due_at

    def build() -> Changes:
        return records.filter(not_in_use()), columns

    Update(build)(connection)
