"""The table of runs: the history."""

from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Self, TypeVar

from django.db import models
from django.utils.translation import pgettext_lazy

from django_shedlock.sql import fields

if TYPE_CHECKING:  # Django itself has no such type
    from django_stubs_ext import StrOrPromise

M = TypeVar("M", bound=models.Model, covariant=True)


class PastRowsQuerySet(models.QuerySet[M]):
    """Rows of what has ended, by age; an index on their column ``ended`` finds them."""

    def older_than(self, age: timedelta) -> Self:
        """Only rows that ended longer ago than this."""
        return self.filter(ended__lt=fields.StatementNow() - age)


class LockRunQuerySet(PastRowsQuerySet["LockRun"]):
    """Runs by lock and by age."""

    def of_lock(self, name: str, provider: str) -> Self:
        """Only the runs of this lock."""
        return self.filter(name=name, provider=provider)

    def since(self, age: timedelta) -> Self:
        """Only runs that ended since then, found by an index."""
        return self.filter(ended__gte=fields.StatementNow() - age)


class LockRun(models.Model):
    """
    One run of a job under its lock: a row of the table ``shedlock_run``.

    It is written once, when the run is over. A run that loses its lock is written at
    once, and completed when its body ends. Of an *abandoned* run only the record is
    known; if its body ends after all, its own words replace that.

    ``started`` and ``ended`` are by the database's clock, ``duration`` by the worker's
    monotonic clock. ``trigger`` is a ``Trigger``; ``operator`` and ``reason`` say who
    started the run and why, if a person did.
    """

    name: fields.LockNameField = fields.LockNameField(
        pgettext_lazy("shedlock", "name"), max_length=255
    )
    provider: fields.Text = fields.Text(
        pgettext_lazy("shedlock", "provider"), max_length=100
    )
    locked_by: fields.LockNameField = fields.LockNameField(
        pgettext_lazy("shedlock", "locked by"), max_length=255, unique=True
    )
    host: fields.Text = fields.Text(pgettext_lazy("shedlock", "host"), max_length=255)
    pid: fields.OptionalNumber = fields.OptionalNumber(
        pgettext_lazy("shedlock", "process"), null=True
    )
    fencing_token: fields.OptionalNumber = fields.OptionalNumber(
        pgettext_lazy("shedlock", "fencing token"), null=True
    )
    started: fields.UTCDateTimeField = fields.UTCDateTimeField(
        pgettext_lazy("shedlock", "started"), null=True
    )
    ended: fields.UTCDateTimeField = fields.UTCDateTimeField(
        pgettext_lazy("shedlock", "ended")
    )
    duration: fields.OptionalDuration = fields.OptionalDuration(
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
    lost_at: fields.UTCDateTimeField = fields.UTCDateTimeField(
        pgettext_lazy("shedlock", "lost at"), null=True
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
        db_table: ClassVar[str] = "shedlock_run"
        verbose_name: ClassVar["StrOrPromise"] = pgettext_lazy("shedlock", "run")
        verbose_name_plural: ClassVar["StrOrPromise"] = pgettext_lazy(
            "shedlock", "runs"
        )
        default_permissions: ClassVar[tuple[str, ...]] = ("view",)
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["name", "provider", "id"], name="shedlock_run_name"),
            models.Index(fields=["outcome", "id"], name="shedlock_run_outcome"),
            models.Index(fields=["host", "id"], name="shedlock_run_host"),
            models.Index(fields=["ended"], name="shedlock_run_ended"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.outcome})"
