"""The table of runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Self

from django.db import models
from django.db.models import Case, Exists, F, Func, OuterRef, Q, Subquery, Value, When
from django.utils.translation import gettext_lazy as _

from django_shedlock.fields import DatabaseNow, LockNameField, UTCDateTimeField
from django_shedlock.locks.states import RunOutcome
from django_shedlock.models.records import RELEASED, LockRecord, LockRecordQuerySet


class LockRunQuerySet(models.QuerySet["LockRun"]):
    """Runs by how they ended."""

    def of_lock(self, name: str, provider: str) -> Self:
        """Only the runs of this lock."""
        return self.filter(name=name, provider=provider)

    def with_outcome(self) -> Self:
        """
        Add ``current_outcome``, by the database's clock.

        A run is abandoned if it reported no end, and does not hold its lock any more.
        """
        return self.annotate(
            current_outcome=Case(
                When(self._abandoned(), then=Value(RunOutcome.ABANDONED.value)),
                default=F("outcome"),
                output_field=models.CharField(),
            )
        )

    def of_outcome(self, outcome: RunOutcome) -> Self:
        """Only runs with this ``current_outcome``, found by an index."""
        if outcome is RunOutcome.RUNNING:
            return self.filter(outcome=outcome).exclude(self._abandoned())
        if outcome is RunOutcome.ABANDONED:
            return self.filter(Q(outcome=outcome) | self._abandoned())
        return self.filter(outcome=outcome)

    def ended(self) -> Self:
        """Only runs that ended or are abandoned; adds ``current_outcome``."""
        return self.with_outcome().filter(
            ~Q(outcome=RunOutcome.RUNNING) | self._abandoned()
        )

    def record_abandoned(self) -> int:
        """Record which runs are abandoned; return their number."""
        abandoned = self.filter(self._abandoned())
        return abandoned.update(outcome=RunOutcome.ABANDONED)

    def prunable(self, older_than: timedelta) -> Self:
        """
        Only runs that began longer ago than this, and that nobody needs any more.

        Needed are the runs that still run, and the last run and the last success of
        each lock that has a record.
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

    def _abandoned(self) -> Q:
        return Q(Exists(_not_held_by_run(self)), outcome=RunOutcome.RUNNING)


class LockRun(models.Model):
    """
    One run of a job under its lock: a row of the table ``shedlock_run``.

    ``started`` and ``finished`` are by the database's clock, ``duration`` by the
    worker's monotonic clock. ``skips`` is how often the worker's process has skipped
    the job since its own previous run.
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


def with_last_run(records: LockRecordQuerySet, provider: str) -> LockRecordQuerySet:
    """
    Add the outcome and the duration of the provider's last ended run of each lock.

    ``usual_duration`` is that of the last run that succeeded.
    """
    all_runs = LockRun.objects.using(records.db)
    runs = all_runs.filter(name=OuterRef("name"), provider=provider)
    last: models.QuerySet[Any] = runs.ended().order_by("-pk")
    # MAX, because MariaDB merges two indexes and sorts for an order and a limit.
    success = runs.filter(outcome=RunOutcome.SUCCEEDED).annotate(
        newest=Func(F("pk"), function="MAX", output_field=models.BigIntegerField())
    )
    usual = all_runs.filter(pk=OuterRef("last_success"))
    return records.alias(last_success=Subquery(success.values("newest"))).annotate(
        last_outcome=Subquery(last.values("current_outcome")[:1]),
        last_duration=Subquery(last.values("duration")[:1]),
        usual_duration=Subquery(usual.values("duration")[:1]),
    )


def _not_held_by_run(runs: models.QuerySet[LockRun]) -> models.QuerySet[LockRecord]:
    record = LockRecord.objects.using(runs.db).filter(name=OuterRef("name"))
    running = Q(lock_until__gt=DatabaseNow()) & ~RELEASED
    return record.exclude(running & Q(locked_by=OuterRef("locked_by")))
