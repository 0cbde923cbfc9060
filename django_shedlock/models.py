"""The table of locks."""

from __future__ import annotations

from typing import Self

from django.db import models
from django.db.models import Case, DurationField, ExpressionWrapper, F, Q, Value, When
from django.utils.translation import gettext_lazy as _

from django_shedlock.fields import LockNameField, UTCDateTimeField
from django_shedlock.functions import DatabaseNow
from django_shedlock.states import LockState

RELEASED = Q(released_at__gte=F("locked_at"))
"""Whether the holder, or an operator, gave the lock back since it was taken."""


class LockRecordQuerySet(models.QuerySet["LockRecord"]):
    """Records by what the database's clock says of them."""

    def acquirable(self) -> Self:
        """Only locks that can be taken now."""
        return self.filter(lock_until__lte=DatabaseNow())

    def held(self) -> Self:
        """Only locks that nobody can take now."""
        return self.filter(lock_until__gt=DatabaseNow())

    def running(self) -> Self:
        """Only held locks that their holder did not give back."""
        return self.held().exclude(RELEASED)

    def held_at_least(self) -> Self:
        """Only locks that were given back and are kept by ``lock_at_least_for``."""
        return self.held().filter(RELEASED)

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


class LockRecord(models.Model):
    """
    One lock: a row of the table ``shedlock``.

    The first four columns are those of ShedLock, with its meaning; all others have
    database defaults, so that a Java service can insert only the four.
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

    objects = LockRecordQuerySet.as_manager()

    class Meta:
        db_table = "shedlock"
        verbose_name = _("lock")
        verbose_name_plural = _("locks")
        default_permissions = ("view", "delete")
        permissions = [("release_lockrecord", "Can release lock")]

    def __str__(self) -> str:
        return str(self.name)
