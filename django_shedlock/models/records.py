"""The table of locks."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Self

from django.db import models
from django.db.models import (
    Case,
    DurationField,
    ExpressionWrapper,
    F,
    Max,
    Q,
    Value,
    When,
)
from django.db.models.functions import Coalesce
from django.utils.translation import gettext_lazy as _

from django_shedlock.clocks import aware
from django_shedlock.configuration import ZERO
from django_shedlock.fields import LockNameField, UTCDateTimeField
from django_shedlock.functions import DatabaseNow
from django_shedlock.progress import Progress
from django_shedlock.schedules import Schedule
from django_shedlock.states import LockState, LockStatus

RELEASED = Q(released_at__gte=F("locked_at"))
"""Whether the holder, or an operator, gave the lock back since it was taken."""


class LockRecordQuerySet(models.QuerySet["LockRecord"]):
    """Records by what the database's clock says of them."""

    def clock(self) -> datetime:
        """Return the database's now, with one statement."""
        now = DatabaseNow(output_field=UTCDateTimeField())
        # An aggregate gives a row even of no record, and no lock has this name.
        nothing = self.filter(name="")
        answer: datetime = nothing.aggregate(now=Coalesce(Max(now), now))["now"]
        return answer

    def acquirable(self) -> Self:
        """Only locks that can be taken now."""
        return self.filter(lock_until__lte=DatabaseNow())

    def not_running(self) -> Self:
        """Only locks that can be taken now, or are only kept by lock_at_least_for."""
        return self.filter(Q(lock_until__lte=DatabaseNow()) | RELEASED)

    def held(self) -> Self:
        """Only locks that nobody can take now."""
        return self.filter(lock_until__gt=DatabaseNow())

    def running(self) -> Self:
        """Only held locks that their holder did not give back."""
        return self.held().exclude(RELEASED)

    def held_at_least(self) -> Self:
        """Only locks that were given back and are kept by ``lock_at_least_for``."""
        return self.held().filter(RELEASED)

    def unlike(self, schedule: str) -> Self:
        """Only locks that have another schedule, or none."""
        return self.filter(Q(schedule=None) | ~Q(schedule=schedule))

    def create_free(self, name: str, **columns: Any) -> LockRecord:
        """Create the record of a lock that nobody ever held."""
        lease = dict.fromkeys(("lock_until", "locked_at", "released_at"), DatabaseNow())
        return self.create(name=name, locked_by="", **lease, **columns)

    def unused(self, duration: timedelta) -> Self:
        """Only locks whose last lease ended longer ago than ``duration``."""
        return self.filter(lock_until__lt=DatabaseNow() - duration)

    def held_by(self, locked_by: str) -> Self:
        """Only locks that this acquisition took and did not give back."""
        return self.filter(locked_by=locked_by, released_at=None)

    def with_status(self) -> Self:
        """Add ``state`` and ``remaining``, both by the database's clock."""
        held = Q(lock_until__gt=DatabaseNow())
        return self.annotate(
            state=Case(
                When(held & RELEASED, then=Value(LockState.HELD_AT_LEAST.value)),
                When(held, then=Value(LockState.RUNNING.value)),
                When(RELEASED, then=Value(LockState.FREE.value)),
                default=Value(LockState.EXPIRED.value),
                output_field=models.CharField(),
            ),
            remaining=ExpressionWrapper(
                F("lock_until") - DatabaseNow(), output_field=DurationField()
            ),
        )

    def with_clock(self) -> Self:
        """Add ``clock``, the database's now."""
        return self.annotate(clock=DatabaseNow(output_field=UTCDateTimeField()))

    def delete_at_once(self) -> int:
        """
        Delete the records with one statement, and return how many.

        Django's ``delete()`` reads them first if the project listens to deletions, and
        then deletes also what was taken in between.
        """
        return self._raw_delete(self.db) or 0  # None, if none can match


class LockRecord(models.Model):
    """
    One lock: a row of the table ``shedlock``.

    The first four columns are those of ShedLock, with its meaning; all others have
    database defaults, so that a Java service can insert only the four. ``tick`` is the
    newest one that was run, ``succeeded_tick`` the newest one of which that succeeded
    (until one has, a second before the first that counts), ``caught_up_tick`` the
    newest one that was run because it was overdue.
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
    succeeded_tick = UTCDateTimeField(_("succeeded tick"), null=True, db_default=None)
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
    def progress(self) -> Progress:
        """How far the ticks of the schedule have been run."""
        return Progress(
            schedule=_parsed(self.schedule),
            tick=_aware(self.tick),
            succeeded=_aware(self.succeeded_tick),
            caught_up=_aware(self.caught_up_tick),
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
            remaining=max(record.remaining, ZERO),
            clock=record.clock,
            progress=record.progress,
        )


def _parsed(schedule: str | None) -> Schedule | None:
    # Without cronsim nobody can tell; nor of what another version or program wrote.
    with suppress(ImportError, ValueError):
        return Schedule.parse(schedule) if schedule else None
    return None


def _aware(moment: datetime | None) -> datetime | None:
    return None if moment is None else aware(moment)
