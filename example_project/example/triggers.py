"""What starts the jobs: a call, a command, or an entry of CRONJOBS."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass

from django.conf import settings
from django.core.management import call_command

from example import jobs, shop


@dataclass(frozen=True)
class Trigger:
    """One way to start one job."""

    job: str
    kind: str
    fire: Callable[[], None]


def run_command(name: str) -> None:
    """Run a management command without its output."""
    call_command(name, stdout=io.StringIO())


def run_cronjob(path: str) -> None:
    """Run an entry as cron does: by the hash that ``crontab add`` writes."""
    entry = next(entry for entry in settings.CRONJOBS if entry[1] == path)
    call_command("crontab", "run", cron_hash(entry))


def cron_hash(entry: tuple[object, ...]) -> str:
    """Return django-crontab's name of an entry."""
    return hashlib.md5(json.dumps(entry, sort_keys=True).encode()).hexdigest()


TRIGGERS = {
    "report": Trigger("report:acme", "function", lambda: jobs.send_report("acme")),
    "digest": Trigger(
        "billing.send_digest", "command", lambda: run_command("send_digest")
    ),
    "rates": Trigger(
        "rates.refresh", "CRONJOBS", lambda: run_cronjob("example.jobs.refresh_rates")
    ),
    "cleanup": Trigger(
        "cron:example.jobs.clean_up",
        "CRONJOBS",
        lambda: run_cronjob("example.jobs.clean_up"),
    ),
    "backup": Trigger("backup", "function", jobs.back_up),
    "endless-backup": Trigger("backup", "function", lambda: jobs.back_up(3600)),
    **{name: Trigger(name, "function", job) for name, job in shop.JOBS.items()},
}
