"""The tables of locks and of their runs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Self

from django.db import models
from django.db.models import (
    Case,
    DurationField,
    Exists,
    ExpressionWrapper,
    F,
    Func,
    Max,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
)
from django.db.models.functions import Coalesce
from django.utils.translation import gettext_lazy as _

from django_shedlock.fields import LockNameField, UTCDateTimeField
from django_shedlock.functions import DatabaseNow
from django_shedlock.outcomes import RunOutcome
from django_shedlock.states import LockState

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

    def held(self) -> Self:
        """Only locks that nobody can take now."""
        return self.filter(lock_until__gt=DatabaseNow())

    def running(self) -> Self:
        """Only held locks that their holder did not give back."""
        return self.held().exclude(RELEASED)

    def held_at_least(self) -> Self:
        """Only locks that were given back and are kept by ``lock_at_least_for``."""
        return self.held().filter(RELEASED)

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

    def delete_at_once(self) -> int:
        """
        Delete the records with one statement, and return how many.

        Django's ``delete()`` reads them first if the project listens to deletions, and
        then deletes also what was taken in between.
        """
        return self._raw_delete(self.db) or 0  # None, if none can match

    def with_last_run(self, provider: str) -> Self:
        """
        Add what the provider's last ended run of each lock was like.

        ``usual_duration`` is that of the last one that succeeded.
        """
        runs = LockRun.objects.using(self.db).filter(
            name=OuterRef("name"), provider=provider
        )
        last: QuerySet[Any] = runs.ended().order_by("-pk")
        # MAX, since for an order and a limit MariaDB merges two indexes and sorts.
        success = runs.filter(outcome=RunOutcome.SUCCEEDED).annotate(
            newest=Func(F("pk"), function="MAX", output_field=models.BigIntegerField())
        )
        usual = LockRun.objects.using(self.db).filter(pk=OuterRef("last_success"))
        return self.alias(last_success=Subquery(success.values("newest"))).annotate(
            last_outcome=Subquery(last.values("current_outcome")[:1]),
            last_duration=Subquery(last.values("duration")[:1]),
            usual_duration=Subquery(usual.values("duration")[:1]),
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
        permissions = [
            ("release_lockrecord", "Can release lock"),
            ("extend_lockrecord", "Can extend lock"),
        ]

    def __str__(self) -> str:
        return str(self.name)


class LockRunQuerySet(models.QuerySet["LockRun"]):
    """Runs by how they ended."""

    def of_lock(self, name: str, provider: str) -> Self:
        """Only the runs of this lock."""
        return self.filter(name=name, provider=provider)

    def with_outcome(self) -> Self:
        """
        Add ``current_outcome``, by the database's clock.

        A run that has told of no end, and whose lock is not its own any more, is
        abandoned; the next run to end will record that.
        """
        return self.annotate(
            current_outcome=Case(
                When(self._deserted(), then=Value(RunOutcome.ABANDONED.value)),
                default=F("outcome"),
                output_field=models.CharField(),
            )
        )

    def of_outcome(self, outcome: RunOutcome) -> Self:
        """Only runs whose ``current_outcome`` this is, found by an index."""
        if outcome is RunOutcome.RUNNING:
            return self.filter(outcome=outcome).exclude(self._deserted())
        if outcome is RunOutcome.ABANDONED:
            return self.filter(Q(outcome=outcome) | self._deserted())
        return self.filter(outcome=outcome)

    def ended(self) -> Self:
        """Only runs that ended or were abandoned; adds ``current_outcome``."""
        return self.with_outcome().filter(
            ~Q(outcome=RunOutcome.RUNNING) | self._deserted()
        )

    def record_deserted(self) -> int:
        """Record that runs are abandoned which told of no end; return how many."""
        deserted = self.filter(self._deserted())
        return deserted.update(outcome=RunOutcome.ABANDONED)

    def prunable(self, older_than: timedelta) -> Self:
        """
        Only runs that began longer ago than that, and that nobody asks for any more.

        That leaves runs that go on, and the last run and the last success of each lock
        that has a record.
        """
        record = LockRecord.objects.using(self.db).filter(name=OuterRef("name"))
        later = LockRun.objects.using(self.db).filter(
            name=OuterRef("name"), provider=OuterRef("provider"), pk__gt=OuterRef("pk")
        )
        later_end = Exists(later.exclude(outcome=RunOutcome.RUNNING))
        later_success = Exists(later.filter(outcome=RunOutcome.SUCCEEDED))
        is_superseded = Q(later_end) & (
            ~Q(outcome=RunOutcome.SUCCEEDED) | Q(later_success)
        )
        old = self.filter(started__lt=DatabaseNow() - older_than)
        return old.ended().filter(~Exists(record) | is_superseded)

    def _deserted(self) -> Q:
        return Q(Exists(_not_held_by_run(self)), outcome=RunOutcome.RUNNING)

    def create_running(
        self, *, name: str, provider: str, locked_by: str, skips: int = 0
    ) -> LockRun:
        """Record with one statement that a run begins."""
        host, pid = split_holder(locked_by)
        record = LockRecord.objects.using(self.db).filter(
            name=name, locked_by=locked_by
        )
        return self.create(
            name=name,
            provider=provider,
            locked_by=locked_by,
            host=host,
            pid=pid,
            fencing_token=Subquery(record.values("fencing_token")[:1]),
            started=DatabaseNow(),
            outcome=RunOutcome.RUNNING,
            skips=skips,
        )


class LockRun(models.Model):
    """
    One run of a job under its lock: a row of the table ``shedlock_run``.

    ``started`` and ``finished`` are the database's clock; ``duration`` is what the
    worker's own monotonic clock says. ``skips`` is how often the worker's process
    skipped the job since its own run before.
    """

    name = LockNameField(_("name"), max_length=255)
    provider = models.CharField(_("provider"), max_length=100)
    locked_by = models.CharField(_("locked by"), max_length=255)
    host = models.CharField(_("host"), max_length=255)
    pid = models.BigIntegerField(_("process"), null=True)
    fencing_token = models.BigIntegerField(_("fencing token"), null=True)
    started = UTCDateTimeField(_("started"))
    finished = UTCDateTimeField(_("finished"), null=True)
    duration = models.DurationField(_("duration"), null=True)
    outcome = models.CharField(_("outcome"), max_length=20)
    exception_type = models.CharField(_("exception"), max_length=255, blank=True)
    exception_message = models.TextField(_("message"), blank=True)
    skips = models.PositiveIntegerField(_("skips"), default=0)

    objects = LockRunQuerySet.as_manager()

    class Meta:
        db_table = "shedlock_run"
        verbose_name = _("run")
        verbose_name_plural = _("runs")
        default_permissions = ("view",)
        indexes = [
            models.Index(fields=["name", "provider", "id"], name="shedlock_run_name"),
            models.Index(
                fields=["outcome", "name", "provider", "id"],
                name="shedlock_run_outcome",
            ),
            models.Index(fields=["host", "id"], name="shedlock_run_host"),
            models.Index(fields=["started"], name="shedlock_run_started"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.outcome})"


def split_holder(locked_by: str) -> tuple[str, int | None]:
    """Return host and process of a ``host:pid:random``; others are taken for a host."""
    host, *rest = locked_by.rsplit(":", 2)
    if len(rest) == 2 and rest[0].isdecimal():
        return host, int(rest[0])
    return locked_by, None


def _not_held_by_run(runs: QuerySet[LockRun]) -> QuerySet[LockRecord]:
    record = LockRecord.objects.using(runs.db).filter(name=OuterRef("name"))
    running = Q(lock_until__gt=DatabaseNow()) & ~RELEASED
    return record.exclude(running & Q(locked_by=OuterRef("locked_by")))
