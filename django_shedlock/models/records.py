"""The table of locks."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Self

from django.db import models
from django.db.models import Case, F, Max, Q, Value, When
from django.db.models.functions import Coalesce
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from django_shedlock import conf
from django_shedlock.clocks import aware
from django_shedlock.fields import (
    DatabaseNow,
    Kept,
    LockNameField,
    TimeUntil,
    UTCDateTimeField,
)
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.pauses import PAUSED_BY
from django_shedlock.locks.states import LockState, LockStatus
from django_shedlock.schedules.state import ScheduleState, parse_known

RELEASED = Q(released_at__gte=F("locked_at"))
"""Whether the holder, or an operator, released the lock since it was acquired."""
# Note [Records of ShedLock]
# ShedLock releases by lock_until alone, so of its own acquisitions nobody can tell
# whether they were released: when the lease is over, the lock is free. It writes the
# host's name into locked_by, where this package writes host:pid:random.
PAUSED = Q(locked_by__startswith=PAUSED_BY)
"""Whether an operator acquired the lock to pause its job."""
UNRELEASED = ~RELEASED & Q(locked_by__contains=":") & ~PAUSED
"""Whether a job of this package acquired the lock, and nobody has released it since."""

# Note [A clock that was set back]
# A release ends the lease at the instant at which it began. So a released lock is free,
# whatever the clock says later; for Java's ShedLock, once the clock is past that.
OVER = Q(lock_until=F("locked_at"))
"""Whether the lease is over by whatever clock."""


def held() -> Q:
    """Whether nobody can acquire the lock now."""
    return Q(lock_until__gt=DatabaseNow()) & ~OVER


def not_running() -> Q:
    """Whether the lock is not held, or only ``lock_at_least_for`` keeps it."""
    return Q(lock_until__lte=DatabaseNow()) | RELEASED


def overdue(grace: timedelta) -> Q:
    """Whether a tick has not succeeded ``grace`` after it, and no job runs now."""
    return not_running() & Q(due_at__lte=DatabaseNow() - grace)


class LockRecordQuerySet(models.QuerySet["LockRecord"]):
    """Records, filtered by the database's clock."""

    def clock(self) -> datetime:
        """Return the database's now, with one statement."""
        now = DatabaseNow(output_field=UTCDateTimeField())
        # No lock has this name, but an aggregate of no records still returns a row.
        nothing = self.filter(name="")
        answer: datetime = nothing.aggregate(now=Coalesce(Max(now), now))["now"]
        return answer

    def acquirable(self) -> Self:
        """Only locks that can be acquired now."""
        return self.filter(Q(lock_until__lte=DatabaseNow()) | OVER)

    def held(self) -> Self:
        """Only locks that nobody can acquire now."""
        return self.filter(held())

    def by_urgency(self, grace: timedelta | None) -> Self:
        """The overdue ones first, then the expired ones; each the oldest first."""
        is_overdue = [] if grace is None else [When(overdue(grace), then=0)]
        is_expired = When(~held() & UNRELEASED, then=1)
        is_running = When(~RELEASED & ~PAUSED, then=2)
        rank = Case(*is_overdue, is_expired, is_running, default=3)
        return self.order_by(rank, "locked_at", "name")

    def unused(self, duration: timedelta) -> Self:
        """Only locks whose last lease ended longer ago than this."""
        then = DatabaseNow() - duration
        return self.filter(lock_until__lt=then).exclude(released_at__gte=then)

    def with_status(self) -> Self:
        """Add ``state``, ``remaining`` and ``clock``, all by the database's clock."""
        is_held = held()
        return self.annotate(
            state=Kept(
                Case(
                    When(is_held & RELEASED, then=Value(LockState.HELD_AT_LEAST.value)),
                    When(is_held & PAUSED, then=Value(LockState.PAUSED.value)),
                    When(is_held, then=Value(LockState.RUNNING.value)),
                    When(UNRELEASED, then=Value(LockState.EXPIRED.value)),
                    default=Value(LockState.FREE.value),
                    output_field=models.CharField(),
                ),
            ),
            remaining=TimeUntil(F("lock_until"), DatabaseNow()),
            clock=DatabaseNow(output_field=UTCDateTimeField()),
        )

    def delete_at_once(self) -> int:
        """
        Delete the records with one statement; return their number.

        If the project listens to deletions, Django's ``delete()`` reads the records
        first, and then also deletes a lock that was acquired since.
        """
        return self._raw_delete(self.db) or 0  # None if no record can match


def left(state: str, remaining: timedelta) -> timedelta:
    """Return what is left of a lease; zero if the lock is not held."""
    return max(remaining, ZERO) if LockState(state).is_held else ZERO


def heartbeat_of(extended_at: datetime | None, locked_at: datetime) -> datetime | None:
    """Return when the holder extended its lease last, if it did."""
    # Java's ShedLock acquires locks, and does not clear our column.
    return extended_at if extended_at and extended_at >= locked_at else None


class LockRecord(models.Model):
    """
    One lock: a row of the table ``shedlock``.

    The first four columns are those of ShedLock, with their meaning; all others have
    database defaults, so a Java service can insert only these four. ``extended_at`` is
    when the holder itself extended its lease last, ``tick`` the newest one with a run,
    ``due_at`` the first one that has not succeeded, and ``caught_up_tick`` the newest
    one that ran because it was overdue.
    """

    name = LockNameField(
        pgettext_lazy("shedlock", "name"), max_length=255, primary_key=True
    )
    lock_until = UTCDateTimeField(pgettext_lazy("shedlock", "lock until"))
    locked_at = UTCDateTimeField(pgettext_lazy("shedlock", "locked at"))
    locked_by = models.CharField(pgettext_lazy("shedlock", "locked by"), max_length=255)
    lock_at_least_until = UTCDateTimeField(
        _("lock at least until"), null=True, db_default=None
    )
    released_at = UTCDateTimeField(
        pgettext_lazy("shedlock", "released at"), null=True, db_default=None
    )
    extended_at = UTCDateTimeField(
        pgettext_lazy("shedlock", "extended at"), null=True, db_default=None
    )
    fencing_token = models.BigIntegerField(
        pgettext_lazy("shedlock", "fencing token"), db_default=0
    )
    schedule = models.CharField(  # noqa: DJ001
        pgettext_lazy("shedlock", "schedule"),
        max_length=255,
        null=True,
        db_default=None,
    )
    tick = UTCDateTimeField(
        pgettext_lazy("shedlock", "tick"), null=True, db_default=None
    )
    due_at = UTCDateTimeField(
        pgettext_lazy("shedlock", "due at"), null=True, db_default=None
    )
    caught_up_tick = UTCDateTimeField(_("caught up tick"), null=True, db_default=None)

    objects = LockRecordQuerySet.as_manager()

    class Meta:
        db_table = conf.TABLE.value  # its migration reads the setting, too
        verbose_name = pgettext_lazy("shedlock", "lock")
        verbose_name_plural = pgettext_lazy("shedlock", "locks")
        default_permissions = ("view",)
        permissions = [
            ("release_lockrecord", "Can release lock"),
            ("extend_lockrecord", "Can extend lock"),
            ("pause_lockrecord", "Can pause and resume job of lock"),
            ("acknowledge_lockrecord", "Can acknowledge findings of lock"),
            ("run_lockrecord", "Can run job of lock"),
        ]

    def __str__(self) -> str:
        return str(self.name)

    @property
    def heartbeat_at(self) -> datetime | None:
        """When the holder extended its lease last, if it did."""
        return heartbeat_of(self.extended_at, self.locked_at)

    @property
    def lease_used(self) -> float:
        """
        The used part of a held lock's lease, from 0 to 1, by the database's clock.

        It counts from the last extension, so a healthy job with ``keep_alive`` uses
        little of it. Needs ``with_status()``.
        """
        record: Any = self
        whole = record.lock_until - (self.heartbeat_at or record.locked_at)
        if whole <= ZERO:
            return 1.0
        used: float = 1 - record.remaining / whole
        return min(max(used, 0.0), 1.0)

    @cached_property
    def status(self) -> LockStatus:
        """The lock when it was read; needs ``with_status()``."""
        record: Any = self
        ticks = (record.tick, record.due_at, record.caught_up_tick)
        return LockStatus(
            name=record.name,
            state=LockState(record.state),
            locked_by=record.locked_by,
            locked_at=record.locked_at,
            lock_until=record.lock_until,
            remaining=left(record.state, record.remaining),
            clock=record.clock,
            schedule_state=ScheduleState(
                parse_known(record.schedule), *(tick and aware(tick) for tick in ticks)
            ),
            fencing_token=record.fencing_token,
            heartbeat_at=record.heartbeat_at,
        ).checked()
