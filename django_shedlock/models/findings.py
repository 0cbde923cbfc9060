"""The table of findings that somebody has been told."""

from __future__ import annotations

from typing import Any, Self

from django.db import models
from django.db.models import Q
from django.utils.translation import pgettext_lazy

from django_shedlock.fields import DatabaseNow, LockNameField, UTCDateTimeField


class ReportedFindingQuerySet(models.QuerySet["ReportedFinding"]):
    """Reported findings, filtered by the database's clock."""

    def gone_for(self, duration: Any) -> Self:
        """Only findings that nobody has seen for this time."""
        return self.filter(gone_at__lte=DatabaseNow() - duration)

    def untold(self, patience: Any) -> Self:
        """Only findings whose reporter died before it could tell them."""
        then = DatabaseNow() - patience
        return self.filter(Q(told_at=None) & Q(found_at__lte=then))


class ReportedFinding(models.Model):
    """
    One finding of one lock: a row of the table ``shedlock_finding``.

    Whoever inserts the row tells the finding, and whoever deletes it tells that it is
    gone, so that of several hosts one does. ``lock`` is empty if the finding is about
    the store. ``gone_at`` is when the finding was first missing.
    """

    provider = models.CharField(pgettext_lazy("shedlock", "provider"), max_length=100)
    lock = LockNameField(pgettext_lazy("shedlock", "name"), max_length=255, blank=True)
    kind = models.CharField(pgettext_lazy("shedlock", "finding"), max_length=20)
    text = models.TextField(pgettext_lazy("shedlock", "text"))
    found_at = UTCDateTimeField(pgettext_lazy("shedlock", "found at"))
    told_at = UTCDateTimeField(pgettext_lazy("shedlock", "told at"), null=True)
    gone_at = UTCDateTimeField(pgettext_lazy("shedlock", "gone at"), null=True)

    objects = ReportedFindingQuerySet.as_manager()

    class Meta:
        db_table = "shedlock_finding"
        verbose_name = pgettext_lazy("shedlock", "reported finding")
        verbose_name_plural = pgettext_lazy("shedlock", "reported findings")
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(
                fields=["provider", "lock", "kind"], name="shedlock_finding_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.lock or self.provider} ({self.kind})"
