"""The statements that extend, release and fence a lock that is held."""

from functools import partial
from itertools import product
from typing import Any

from django.db.models import Case, Expression, F, When
from django.db.models.functions import Greatest, Least
from django.db.models.lookups import GreaterThan

from django_shedlock.fields import DatabaseNow
from django_shedlock.models import LockRecord, LockRecordQuerySet
from django_shedlock.models.records import UNRELEASED, held
from django_shedlock.providers.database import statements as sql
from django_shedlock.providers.database.acquisition import next_acquisition


def _of(locked_by: str) -> LockRecordQuerySet:
    return LockRecord.objects.filter(
        name=sql.text("name"), locked_by=sql.text(locked_by)
    )


def _ours() -> LockRecordQuerySet:
    return _of("locked_by").held().filter(released_at=None)


def _longer() -> dict[str, Any]:
    return {
        "lock_until": Greatest(F("lock_until"), DatabaseNow() + sql.duration("at_most"))
    }


def _released_now() -> Expression:
    # Never before it was acquired: that tells a released lock from a running one.
    return Greatest(DatabaseNow(), F("locked_at"))


def _extend(has_both: bool) -> tuple[LockRecordQuerySet, dict[str, Any]]:
    columns = {**_longer(), "extended_at": DatabaseNow()}
    if has_both:
        columns["lock_at_least_until"] = DatabaseNow() + sql.duration("at_least")
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
        longest = DatabaseNow() + sql.duration("at_least")
        kept_until = Least(F("lock_at_least_until"), longest)
        is_kept = GreaterThan(kept_until, DatabaseNow())
        columns["lock_until"] = Case(
            When(is_kept, then=kept_until), default=F("locked_at")
        )
    records = _of("locked_by")
    # Sent again after a lost reply, our own first try may have released it.
    records = records if is_again else records.filter(released_at=None)
    if has_success:
        return records, {**columns, "due_at": sql.instant("due_at")}
    # If a crash of the server loses it, the lease ends by itself.
    return records.filter(sql.ASYNCHRONOUS_COMMIT), columns


BOTH = (False, True)
EXTEND = {
    (is_beat, has_both): sql.Update(
        partial(_extend, has_both), wait="10ms" if is_beat else "1s"
    )
    for is_beat, has_both in product(BOTH, BOTH)
}
"""By whether it is a beat, and whether ``lock_at_least_for`` changes, too."""
PROBE = sql.Probe(
    lambda: LockRecord.objects.filter(name=sql.text("name")).values_list("name")
)
RELEASE = {
    each: sql.Update(partial(_release, *each)) for each in product(BOTH, BOTH, BOTH)
}
"""By whether it is sent again, a tick has succeeded, and the lock may be kept."""
FENCE = sql.Update(lambda: (_ours(), {"locked_by": F("locked_by")}))
"""Writes the row as it is, so that nobody else can before the commit."""
FORCE_RELEASE = sql.Update(
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
FORCE_EXTEND = sql.Update(lambda: (_of("before").held(), _longer()))
PAUSE_AGAIN = sql.Update(lambda: (_of("before").held(), next_acquisition()))
