"""``manage.py shedlock trigger``."""

from __future__ import annotations

import logging
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from django_shedlock.jobs.named import NamedJob, named_jobs
from django_shedlock.locks.configuration import full_name
from django_shedlock.management.subcommands.base import (
    FAILED,
    RUNNING,
    Subcommand,
    add_reason,
    operator,
)
from django_shedlock.providers.base import LockProvider
from django_shedlock.schedules.starts import Trigger

logger = logging.getLogger("django_shedlock")


class TriggerJob(Subcommand):
    """Runs a job now."""

    name = "trigger"
    help = (
        "run a job now, under its lock, even if its tick has been run, or if "
        "lock_at_least_for keeps the lock"
    )

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """Add the lock's name, and the reason."""
        parser.add_argument("name", help="of the job's lock")
        add_reason(parser)

    def run(
        self, provider: LockProvider, *, name: str, reason: str, **options: Any
    ) -> None:
        """Run the job here, or say why not; pass on what it raises."""
        start = _find(provider, name).start
        if start is None:
            raise CommandError(
                f"The job of lock {name!r} needs arguments, so it can't be started by "
                "name.",
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


def _find(provider: LockProvider, name: str) -> NamedJob:
    known = list(named_jobs(provider.alias))
    jobs = [job for job in known if job.name in {name, full_name(name)}]
    if not jobs:
        names = ", ".join(sorted({repr(job.name) for job in known})) or "none"
        raise CommandError(
            f"No job with a lock {name!r} is known here. There are {names}. Known are "
            "decorated jobs whose locks have fixed names and, with the app "
            "django_shedlock.contrib.crontab, entries of CRONJOBS.",
            returncode=FAILED,
        )
    # An entry of CRONJOBS may give a schedule to a job that has none of its own.
    return max(jobs, key=lambda job: (job.start is not None, job.schedule is not None))
