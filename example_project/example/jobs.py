"""Three jobs that must not run twice, each decorated in its own way."""

from __future__ import annotations

import os
import time

from django_shedlock import scheduler_lock
from example.models import JobRun

WORK = 0.3
"""Seconds that a job takes, so that the workers really meet."""


def work(job: str) -> None:
    """Do what a job does, and leave a trace of it."""
    JobRun.objects.create(
        job=job,
        tick=os.environ.get("EXAMPLE_TICK", ""),
        worker=os.environ.get("EXAMPLE_WORKER", "by hand"),
    )
    time.sleep(WORK)


@scheduler_lock("rates.refresh", lock_at_most_for="4m", lock_at_least_for="1s")
def refresh_rates() -> str:
    """Fetch the exchange rates: named in CRONJOBS of the settings."""
    work("rates.refresh")
    return "refreshed"


@scheduler_lock("report:{tenant}", lock_at_most_for="10m")
def send_report(tenant: str) -> str:
    """Send one tenant's report: each tenant has a lock of its own."""
    work(f"report:{tenant}")
    return "sent"


@scheduler_lock("backup", lock_at_most_for="2s")
def back_up() -> str:
    """Take very long: its worker dies in the demo, and the lease frees the lock."""
    work("backup")
    time.sleep(60 if os.environ.get("EXAMPLE_TICK") == "crash" else 0)
    return "backed up"
