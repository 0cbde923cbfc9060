"""The ledger: which jobs really ran."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class JobRun(models.Model):
    """One run of a job, written by the job itself."""

    job = models.CharField(max_length=100)
    tick = models.CharField(max_length=100)
    worker = models.CharField(max_length=100)
    began_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True)

    objects = models.Manager["JobRun"]()

    def __str__(self) -> str:
        return f"{self.job} on {self.worker}"
