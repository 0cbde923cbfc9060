"""Jobs that must not run twice. The command send_digest is another one."""

from __future__ import annotations

import os
import time

from django.db.models.functions import Now

from django_shedlock import scheduler_lock
from example.models import JobRun

WORK = 0.3
"""Seconds that a job runs, so that the workers really meet."""
LEASE = os.environ.get("EXAMPLE_LEASE", "10s")
"""How long a dead worker keeps the lock of the backup."""


def work(job: str, seconds: float = WORK) -> None:
    """Stand for a job's work, and write its begin and its end into the ledger."""
    run = JobRun.objects.create(
        job=job,
        tick=os.environ.get("EXAMPLE_TICK", ""),
        worker=os.environ.get("EXAMPLE_WORKER", "by hand"),
    )
    time.sleep(seconds)
    JobRun.objects.filter(pk=run.pk).update(ended_at=Now())


@scheduler_lock("rates.refresh", lock_at_most_for="4m", lock_at_least_for="45s")
def refresh_rates() -> None:
    """Fetch the exchange rates: named in CRONJOBS of the settings."""
    work("rates.refresh")


@scheduler_lock("report:{tenant}", lock_at_most_for="10m", lock_at_least_for="30s")
def send_report(tenant: str) -> None:
    """Send one tenant's report: each tenant has a lock of its own."""
    work(f"report:{tenant}")


def clean_up() -> None:
    """Delete old rows: not decorated, it gets a lock as an entry of CRONJOBS."""
    work("cron:example.jobs.clean_up")


@scheduler_lock("backup", lock_at_most_for=LEASE)
def back_up(seconds: float = WORK) -> None:
    """Copy everything. The lease is short, so a dead worker is soon replaced."""
    work("backup", seconds)
