"""The table of runs."""

from datetime import timedelta
from typing import Any, ClassVar, Self

from django.db import models
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.utils.translation import pgettext_lazy

from django_shedlock import fields
from django_shedlock.locks.states import RunOutcome
from django_shedlock.models.records import RELEASED, LockRecord, LockRecordQuerySet

BAD = [outcome for outcome in RunOutcome if outcome.is_bad]
BAD_OR_RUNNING = [*BAD, RunOutcome.RUNNING]
NEWS = timedelta(days=1)
"""For so long a loss is told of, however later runs ended."""
SAMPLE = 100
"""Old runs that are looked at to find out whether anybody prunes."""


class LockRunQuerySet(models.QuerySet["LockRun"]):
    """Runs by how they ended."""

    def of_lock(self, name: str, provider: str) -> Self:
        """Only the runs of this lock."""
        return self.filter(name=name, provider=provider)

    def with_outcome(self) -> Self:
        """
        Add ``current_outcome``, by the database's clock.

        A run is abandoned if it reported no end, and does not hold its lock any more.
        Of a lock that is not in this database, only the lock's next run can tell.
        """
        abandoned = models.Value(RunOutcome.ABANDONED.value)
        case = models.When(self._abandoned(), then=abandoned)
        text = models.CharField()
        outcome = models.Case(case, default=F("outcome"), output_field=text)
        return self.annotate(current_outcome=outcome)

    def with_elapsed(self) -> Self:
        """Add what ``elapsed`` needs, by the database's clock."""
        until_start = fields.TimeUntil(F("started"), fields.DatabaseNow())
        return self.annotate(until_start=until_start)

    def of_outcome(self, *outcomes: RunOutcome) -> Self:
        """Only runs with one of these as ``current_outcome``, found by an index."""
        is_one = Q(outcome__in=outcomes)
        if RunOutcome.ABANDONED in outcomes:
            is_one |= self._abandoned()
        elif RunOutcome.RUNNING in outcomes:
            is_one &= ~self._abandoned()
        return self.filter(is_one)

    def ended(self) -> Self:
        """Only runs that ended or are abandoned; adds ``current_outcome``."""
        has_ended = ~Q(outcome=RunOutcome.RUNNING)
        return self.with_outcome().filter(has_ended | self._abandoned())

    def last_bad(self, provider: str) -> "QuerySet[LockRun, Any]":
        """
        Only the ``name`` of each lock of the provider whose last ended run was bad.

        And of each that was lost not long ago, as jobs may have overlapped. ``newest``
        is the key of its last run with one bad outcome; the newest of all comes first.
        A lock is there once for each outcome since its last success, and for a loss.
        """
        successes = LockRun.objects.using(self.db).filter(
            name=OuterRef("name"), provider=provider, outcome=RunOutcome.SUCCEEDED
        )
        # MAX, because MariaDB merges two indexes and sorts for an order and a limit. It
        # is inside, so that it is asked once for each name, not for each run.
        key = models.BigIntegerField()
        newest: Any = models.Func(F("pk"), function="MAX", output_field=key)
        keys = successes.annotate(newest=Coalesce(newest, 0)).values("newest")
        success = Subquery(keys)
        parts: list[Any] = []
        # Each by itself: then every database reads only its part of an index.
        for outcome in BAD_OR_RUNNING:
            runs = self.filter(outcome=outcome, provider=provider)
            if outcome is RunOutcome.RUNNING:
                runs = runs.filter(self._abandoned())
            names: Any = runs.order_by().values("name")
            names = names.annotate(newest=models.Max("pk")).alias(success=success)
            parts.append(names.filter(newest__gt=F("success")))
        since = fields.StatementNow() - NEWS
        lost = self.filter(Q(finished__gte=since) | Q(lost_at__gte=since))
        lost = lost.filter(outcome=RunOutcome.LOST, provider=provider).order_by()
        parts.append(lost.values("name").annotate(newest=models.Max("pk")))
        found: QuerySet[LockRun, Any] = parts[0].union(*parts[1:], all=True)
        return found.order_by("-newest")  # type: ignore[misc]

    def since(self, age: timedelta) -> Self:
        """Only runs that began since then, found by an index."""
        return self.filter(started__gte=fields.StatementNow() - age)

    def totals(self) -> "QuerySet[LockRun, Any]":
        """Return the runs, skips and duration of each ``name`` and ``outcome``."""
        grouped: Any = self.order_by().values("name", "outcome")
        return grouped.annotate(  # type: ignore[no-any-return]
            runs=models.Count("pk"),
            skips=models.Sum("skips"),
            duration=Coalesce(models.Sum("duration"), timedelta(0)),
        )

    def outgrown(self, age: timedelta) -> "QuerySet[LockRun]":
        """Return some runs that began longer ago than this, and that nobody needs."""
        # The newest of the old ones are enough: where nobody prunes, nearly all can go.
        old = self.filter(started__lt=fields.StatementNow() - age).order_by("-started")
        keys = list(old.values_list("pk", flat=True)[:SAMPLE])
        return self.filter(pk__in=keys).prunable(age)

    def record_abandoned(self) -> int:
        """Record which runs are abandoned; return their number."""
        abandoned = self.filter(self._unheld())  # MySQL reads no table that it updates
        return abandoned.update(outcome=RunOutcome.ABANDONED)

    def prunable(
        self, older_than: timedelta, records: LockRecordQuerySet | None = None
    ) -> Self:
        """
        Only runs that began longer ago than this, and that nobody needs any more.

        Needed are the runs that still run, and the last run and the last success of
        each lock that has a record, or one of these ``records``.
        """
        kept = LockRecord.objects.using(self.db) if records is None else records
        record = kept.filter(name=OuterRef("name"))
        later = self._later()
        later_end = Exists(later.exclude(outcome=RunOutcome.RUNNING))
        later_success = Exists(later.filter(outcome=RunOutcome.SUCCEEDED))
        is_success = Q(outcome=RunOutcome.SUCCEEDED)
        is_superseded = Q(later_end) & (~is_success | Q(later_success))
        old = self.filter(started__lt=fields.StatementNow() - older_than)
        return old.ended().filter(~Exists(record) | is_superseded)

    def _abandoned(self) -> Q:
        elsewhere = Q(outcome=RunOutcome.RUNNING, fencing_token=None)
        return self._unheld() | (Q(Exists(self._later())) & elsewhere)

    def _later(self) -> "LockRunQuerySet":
        return LockRun.objects.using(self.db).filter(
            name=OuterRef("name"), provider=OuterRef("provider"), pk__gt=OuterRef("pk")
        )

    def _unheld(self) -> Q:
        record = LockRecord.objects.using(self.db).filter(name=OuterRef("name"))
        is_running = Q(lock_until__gt=fields.DatabaseNow()) & ~RELEASED
        other = record.exclude(is_running & Q(locked_by=OuterRef("locked_by")))
        # Without a token the lock is in another store: a record here is another lock's.
        here = Q(outcome=RunOutcome.RUNNING, fencing_token__isnull=False)
        return Q(Exists(other)) & here


class LockRun(models.Model):
    """
    One run of a job under its lock: a row of the table ``shedlock_run``.

    ``started`` and ``finished`` are by the database's clock, ``duration`` by the
    worker's monotonic clock. A worker that notices its loss writes ``lost_at``, and
    outcome ``LOST``, at once; until the run is ``finished`` its job still runs, unless
    the worker died after that. ``skips`` is how often the worker's process has skipped
    the job since its own previous run. ``trigger`` is a ``Trigger``; ``operator`` and
    ``reason`` tell who started the run and why, if a person did.
    """

    name: Any = fields.LockNameField(pgettext_lazy("shedlock", "name"), max_length=255)
    provider: fields.Text = fields.Text(
        pgettext_lazy("shedlock", "provider"), max_length=100
    )
    locked_by: fields.Text = fields.Text(
        pgettext_lazy("shedlock", "locked by"), max_length=255
    )
    host: fields.Text = fields.Text(pgettext_lazy("shedlock", "host"), max_length=255)
    pid: fields.Number = fields.Number(pgettext_lazy("shedlock", "process"), null=True)
    fencing_token: fields.Number = fields.Number(
        pgettext_lazy("shedlock", "fencing token"), null=True
    )
    started: Any = fields.UTCDateTimeField(pgettext_lazy("shedlock", "started"))
    finished: Any = fields.UTCDateTimeField(
        pgettext_lazy("shedlock", "finished"), null=True
    )
    duration: Any = models.DurationField(
        pgettext_lazy("shedlock", "duration"), null=True
    )
    outcome: fields.Text = fields.Text(
        pgettext_lazy("shedlock", "outcome"), max_length=20
    )
    exception_type: fields.Text = fields.Text(
        pgettext_lazy("shedlock", "exception"), max_length=255, blank=True
    )
    exception_message: fields.LongText = fields.LongText(
        pgettext_lazy("shedlock", "message"), blank=True
    )
    exception_traceback: fields.LongText = fields.LongText(
        pgettext_lazy("shedlock", "traceback"), blank=True
    )
    lost_at: Any = fields.UTCDateTimeField(
        pgettext_lazy("shedlock", "lost at"), null=True
    )
    skips: Any = models.PositiveIntegerField(
        pgettext_lazy("shedlock", "skips"), default=0
    )
    trigger: fields.Text = fields.Text(
        pgettext_lazy("shedlock", "started by"), max_length=20, blank=True
    )
    operator: fields.Text = fields.Text(
        pgettext_lazy("shedlock", "operator"), max_length=255, blank=True
    )
    reason: fields.LongText = fields.LongText(
        pgettext_lazy("shedlock", "reason"), blank=True
    )

    objects = LockRunQuerySet.as_manager()

    class Meta:
        db_table: ClassVar[Any] = "shedlock_run"
        verbose_name: ClassVar[Any] = pgettext_lazy("shedlock", "run")
        verbose_name_plural: ClassVar[Any] = pgettext_lazy("shedlock", "runs")
        default_permissions: ClassVar[Any] = ("view",)
        indexes: ClassVar[Any] = [
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

    @property
    def elapsed(self) -> timedelta:
        """How long ago the run began; needs ``with_elapsed()``."""
        until_start: timedelta = vars(self)["until_start"]
        return max(-until_start, timedelta(0))
