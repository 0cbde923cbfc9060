"""The tables of a project that writes its locks by hand."""

from __future__ import annotations

from django.db import models


class HandWrittenLock(models.Model):
    """One lock, with the four columns that a lock needs."""

    name = models.CharField(max_length=255, primary_key=True)
    lock_until = models.DateTimeField()
    locked_at = models.DateTimeField()
    locked_by = models.CharField(max_length=255)

    class Meta:
        db_table = "hand_written_lock"

    def __str__(self) -> str:
        return self.name


class HandWrittenRun(models.Model):
    """One run of a job."""

    name = models.CharField(max_length=255)
    locked_by = models.CharField(max_length=255)
    started = models.DateTimeField()
    finished = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=20, default="running")

    class Meta:
        db_table = "hand_written_run"

    def __str__(self) -> str:
        return f"{self.name} {self.started}"
