"""``manage.py shedlock trigger``."""

from __future__ import annotations

import logging
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from django_shedlock.known_jobs import KnownJob, known_jobs
from django_shedlock.management.subcommands.base import FAILED, RUNNING, Subcommand
from django_shedlock.management.subcommands.operators import add_reason, operator
from django_shedlock.options import full_name
from django_shedlock.providers.base import LockProvider
from django_shedlock.triggers import Trigger

logger = logging.getLogger("django_shedlock")


class TriggerJob(Subcommand):
    """Runs a job of the project now."""

    name = "trigger"
    help = (
        "run a job now, under its lock: whether or not its tick has been run, and also "
        "while lock_at_least_for keeps the lock"
    )

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """Which job, and why."""
        parser.add_argument("name", help="of the job's lock")
        add_reason(parser)

    def run(
        self, provider: LockProvider, *, name: str, reason: str, **options: Any
    ) -> None:
        """Run the job here, or say why not. What it raises is raised."""
        start = _find(provider, name).start
        if start is None:
            raise CommandError(
                f"The job of lock {name!r} needs arguments, so it can't be started by "
                "its name.",
                returncode=FAILED,
            )
        why = f"because: {reason!r}" if reason else "without a reason"
        logger.warning("Lock %r: %s runs its job now, %s.", name, operator(), why)
        if not start(Trigger.OPERATOR):
            raise CommandError(
                f"The job of lock {name!r} was not started: it is running.",
                returncode=RUNNING,
            )
        self.stdout.write(f"The job of lock {name!r} has run.")


def _find(provider: LockProvider, name: str) -> KnownJob:
    known = list(known_jobs(provider.alias))
    jobs = [job for job in known if job.name in {name, full_name(name)}]
    if not jobs:
        names = ", ".join(sorted({repr(job.name) for job in known})) or "none"
        raise CommandError(
            f"No job with a lock {name!r} is known here. There are {names}: decorated "
            "jobs whose locks have a fixed name and, with the app "
            "django_shedlock.contrib.crontab, entries of CRONJOBS.",
            returncode=FAILED,
        )
    # An entry of CRONJOBS may give a schedule to a job that has none of its own.
    return max(jobs, key=lambda job: (job.start is not None, job.schedule is not None))
