"""Extend, release and fence an acquired lock, by its holder or by an operator."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from itertools import product
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Case, Expression, F, When
from django.db.models.functions import Greatest, Least
from django.db.models.lookups import GreaterThan

from django_shedlock.fields import DatabaseNow
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.states import LockStatus
from django_shedlock.models import LockRecord, LockRecordQuerySet
from django_shedlock.models.records import UNRELEASED, held
from django_shedlock.providers.database.acquisition import next_acquisition
from django_shedlock.providers.database.compound import can_ride, together
from django_shedlock.providers.database.reading import read
from django_shedlock.providers.database.statements import (
    ASYNCHRONOUS_COMMIT,
    Probe,
    Update,
    duration,
    instant,
    text,
)


def extend(
    lock: Lock,
    lock_at_most_for: timedelta,
    lock_at_least_for: timedelta | None,
    is_beat: bool,
    connection: BaseDatabaseWrapper,
    is_again: bool,
) -> bool:
    """See ``LockProvider.extend()``."""
    if is_beat:
        PROBE(connection, name=lock.name)
    statement = EXTEND[is_beat, lock_at_least_for is not None]
    durations = {"at_most": lock_at_most_for, "at_least": lock_at_least_for}
    values = {"name": lock.name, "locked_by": lock.locked_by, **durations}
    return statement(connection, **values) > 0


def release(
    lock: Lock, succeeded: bool, connection: BaseDatabaseWrapper, is_again: bool
) -> bool:
    """See ``LockProvider.release()``."""
    schedule, tick, due_at = lock.configuration.schedule, lock.tick, None
    if succeeded and schedule is not None and tick is not None:
        _, due_at = schedule.around(tick)
    at_least, is_again = lock.lock_at_least_for, is_again or lock.was_release_tried
    statement = RELEASE[is_again, due_at is not None, at_least > ZERO]
    values: dict[str, Any] = {"at_least": at_least, "due_at": due_at}
    values |= {"name": lock.name, "locked_by": lock.locked_by}
    # See Note [A run rides with its lock].
    run = lock.run if can_ride(connection) else None
    if run is None or (ending := run.ending()) is None:
        return statement(connection, **values) > 0
    update, columns = ending
    written = together(statement, update)(connection, **values | columns)
    run.has_ended = written is not None
    return written is not None


def replace(
    status: LockStatus,
    lasting: timedelta,
    locked_by: str | None,
    connection: BaseDatabaseWrapper,
    is_again: bool,
) -> bool:
    """See ``LockProvider.replace()``."""
    statement = FORCE_RELEASE if not lasting else FORCE_EXTEND
    if lasting and locked_by is not None:
        statement = PAUSE_AGAIN
    owner = {"name": status.name, "before": status.locked_by, "locked_by": locked_by}
    if statement(connection, **owner, at_most=lasting, at_least=ZERO):
        return True
    # Sent again after a lost reply, our own first try may have done it.
    after = read(connection, status.name) if is_again else None
    if after is None:
        return False
    if not lasting:
        is_over = after.lock_until == after.locked_at
        return is_over and after.locked_by == status.locked_by
    return after.locked_by == locked_by


def _of(locked_by: str) -> LockRecordQuerySet:
    return LockRecord.objects.filter(name=text("name"), locked_by=text(locked_by))


def _ours() -> LockRecordQuerySet:
    return _of("locked_by").held().filter(released_at=None)


def _longer() -> dict[str, Any]:
    return {
        "lock_until": Greatest(F("lock_until"), DatabaseNow() + duration("at_most"))
    }


def _released_now() -> Expression:
    # Never before it was acquired: that tells a released lock from a running one.
    return Greatest(DatabaseNow(), F("locked_at"))


def _extend(has_both: bool) -> tuple[LockRecordQuerySet, dict[str, Any]]:
    columns = {**_longer(), "extended_at": DatabaseNow()}
    if has_both:
        columns["lock_at_least_until"] = DatabaseNow() + duration("at_least")
    return _ours(), columns


def _release(
    is_again: bool, has_success: bool, may_keep: bool
) -> tuple[LockRecordQuerySet, dict[str, Any]]:
    # See Note [A clock that was set back].
    columns: dict[str, Any] = {
        "lock_until": F("locked_at"),
        "released_at": _released_now(),
    }
    if may_keep:
        # If the clock was set back, keep the lock no longer than if acquired now.
        longest = DatabaseNow() + duration("at_least")
        kept_until = Least(F("lock_at_least_until"), longest)
        is_kept = GreaterThan(kept_until, DatabaseNow())
        columns["lock_until"] = Case(
            When(is_kept, then=kept_until), default=F("locked_at")
        )
    records = _of("locked_by")
    # Sent again after a lost reply, our own first try may have released it.
    records = records if is_again else records.filter(released_at=None)
    if has_success:
        return records, {**columns, "due_at": instant("due_at")}
    # If a crash of the server loses it, the lease ends by itself.
    return records.filter(ASYNCHRONOUS_COMMIT), columns


BOTH = (False, True)
EXTEND = {
    (is_beat, has_both): Update(
        partial(_extend, has_both), wait="10ms" if is_beat else "1s"
    )
    for is_beat, has_both in product(BOTH, BOTH)
}
"""By whether it is a beat, and whether ``lock_at_least_for`` changes, too."""
PROBE = Probe(lambda: LockRecord.objects.filter(name=text("name")).values_list("name"))
RELEASE = {each: Update(partial(_release, *each)) for each in product(BOTH, BOTH, BOTH)}
"""By whether it is sent again, a tick has succeeded, and the lock may be kept."""
FENCE = Update(lambda: (_ours(), {"locked_by": F("locked_by")}))
"""Writes the row as it is, so that nobody else can before the commit."""
FORCE_RELEASE = Update(
    lambda: (
        _of("before").filter(held() | UNRELEASED),
        {
            "lock_until": F("locked_at"),
            # So the holder's own release keeps nothing.
            "lock_at_least_until": F("locked_at"),
            "released_at": _released_now(),
        },
    )
)
FORCE_EXTEND = Update(lambda: (_of("before").held(), _longer()))
PAUSE_AGAIN = Update(lambda: (_of("before").held(), next_acquisition()))
