"""What the jobs leave behind."""

from django.db import models


class JobRun(models.Model):
    """One run of a job, written by its body: what really happened."""

    job = models.CharField(max_length=100)
    tick = models.CharField(max_length=100)
    worker = models.CharField(max_length=100)

    def __str__(self) -> str:
        return f"{self.job} on {self.worker}"
