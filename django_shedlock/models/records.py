"""The table of locks."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Self

from django.db import models
from django.db.models import Case, F, Max, Q, Value, When
from django.db.models.functions import Coalesce
from django.utils.translation import gettext_lazy as _

from django_shedlock.clocks import aware
from django_shedlock.fields import (
    DatabaseNow,
    LockNameField,
    TimeUntil,
    UTCDateTimeField,
)
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.states import LockState, LockStatus
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import ScheduleState

RELEASED = Q(released_at__gte=F("locked_at"))
"""Whether the holder, or an operator, released the lock since it was acquired."""
# Note [Records of ShedLock]
# ShedLock releases by lock_until alone, so of its own acquisitions nobody can tell
# whether they were released: when the lease is over, the lock is free. It writes the
# host's name into locked_by, where this package writes host:pid:random.
UNRELEASED = Q(locked_by__contains=":") & ~RELEASED
"""Whether this package acquired the lock, and nobody has released it since."""

# Note [A clock that was set back]
# A release ends the lease at the instant at which it began. So a released lock is free,
# whatever the clock says later; for Java's ShedLock, once the clock is past that.
OVER = Q(lock_until=F("locked_at"))
"""Whether the lease is over by whatever clock."""


def _held() -> Q:
    return Q(lock_until__gt=DatabaseNow()) & ~OVER


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

    def not_running(self) -> Self:
        """Only locks that are not held, or that only ``lock_at_least_for`` keeps."""
        return self.filter(Q(lock_until__lte=DatabaseNow()) | RELEASED)

    def held(self) -> Self:
        """Only locks that nobody can acquire now."""
        return self.filter(_held())

    def held_at_least(self) -> Self:
        """Only released locks that ``lock_at_least_for`` keeps."""
        return self.held().filter(RELEASED)

    def held_or_expired(self) -> Self:
        """Only locks that are held, or whose lease is over without a release."""
        return self.filter(_held() | UNRELEASED)

    def overdue(self, grace: timedelta) -> Self:
        """Only locks with a tick that has not succeeded ``grace`` after it."""
        return self.not_running().filter(due_at__lte=DatabaseNow() - grace)

    def unused(self, duration: timedelta) -> Self:
        """Only locks whose last lease ended longer ago than this."""
        then = DatabaseNow() - duration
        return self.filter(lock_until__lt=then).exclude(released_at__gte=then)

    def with_status(self) -> Self:
        """Add ``state`` and ``remaining``, both by the database's clock."""
        held = _held()
        return self.annotate(
            state=Case(
                When(held & RELEASED, then=Value(LockState.HELD_AT_LEAST.value)),
                When(held, then=Value(LockState.RUNNING.value)),
                When(UNRELEASED, then=Value(LockState.EXPIRED.value)),
                default=Value(LockState.FREE.value),
                output_field=models.CharField(),
            ),
            remaining=TimeUntil(F("lock_until"), DatabaseNow()),
        )

    def with_clock(self) -> Self:
        """Add ``clock``, the database's now."""
        return self.annotate(clock=DatabaseNow(output_field=UTCDateTimeField()))

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


class LockRecord(models.Model):
    """
    One lock: a row of the table ``shedlock``.

    The first four columns are those of ShedLock, with their meaning; all others have
    database defaults, so a Java service can insert only these four. ``tick`` is the
    newest one with a run, ``due_at`` the first one that has not succeeded, and
    ``caught_up_tick`` the newest one that ran because it was overdue.
    """

    name = LockNameField(_("name"), max_length=255, primary_key=True)
    lock_until = UTCDateTimeField(_("lock until"))
    locked_at = UTCDateTimeField(_("locked at"))
    locked_by = models.CharField(_("locked by"), max_length=255)
    lock_at_least_until = UTCDateTimeField(
        _("lock at least until"), null=True, db_default=None
    )
    released_at = UTCDateTimeField(_("released at"), null=True, db_default=None)
    fencing_token = models.BigIntegerField(_("fencing token"), db_default=0)
    schedule = models.CharField(  # noqa: DJ001
        _("schedule"), max_length=255, null=True, db_default=None
    )
    tick = UTCDateTimeField(_("tick"), null=True, db_default=None)
    due_at = UTCDateTimeField(_("due at"), null=True, db_default=None)
    caught_up_tick = UTCDateTimeField(_("caught up tick"), null=True, db_default=None)

    objects = LockRecordQuerySet.as_manager()

    class Meta:
        db_table = "shedlock"
        verbose_name = _("lock")
        verbose_name_plural = _("locks")
        default_permissions = ("view", "delete")
        permissions = [
            ("release_lockrecord", "Can release lock"),
            ("extend_lockrecord", "Can extend lock"),
        ]

    def __str__(self) -> str:
        return str(self.name)

    @property
    def schedule_state(self) -> ScheduleState:
        """What is known of the ticks of the schedule."""
        return ScheduleState(
            schedule=_parsed(self.schedule),
            tick=self.tick and aware(self.tick),
            due_at=self.due_at and aware(self.due_at),
            caught_up=self.caught_up_tick and aware(self.caught_up_tick),
        )

    @property
    def status(self) -> LockStatus:
        """The lock when it was read; needs ``with_status()`` and ``with_clock()``."""
        record: Any = self
        return LockStatus(
            name=record.name,
            state=LockState(record.state),
            locked_by=record.locked_by,
            locked_at=record.locked_at,
            lock_until=record.lock_until,
            remaining=left(record.state, record.remaining),
            clock=record.clock,
            schedule_state=record.schedule_state,
            fencing_token=record.fencing_token,
        )


def _parsed(schedule: str | None) -> Schedule | None:
    # Without cronsim nobody can read it, nor what another version or program wrote.
    with suppress(ImportError, ValueError):
        return Schedule.parse(schedule) if schedule else None
    return None
