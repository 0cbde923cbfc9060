"""``manage.py shedlock trigger``."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from django_shedlock.console.cli.base import (
    ExitStatus,
    Subcommand,
    add_reason,
    failure,
    nearest,
    operator,
)
from django_shedlock.console.cli.terminal import printable
from django_shedlock.console.operators import OperatorAction
from django_shedlock.console.operators.requests import best_of, run_now
from django_shedlock.jobs.named import NamedJob, named_jobs
from django_shedlock.locks.configuration import full_name
from django_shedlock.providers.base import LockProvider


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
        job = _find(provider, name)
        if job.start is None:
            raise CommandError(
                f"The job of lock {name!r} needs arguments, so it can't be started by "
                "name.",
                returncode=ExitStatus.UNKNOWN,
            )
        by = {"operator": operator(), "reason": reason}
        answer = run_now(OperatorAction(provider, job.name, **by), job.start)
        if not answer:
            status = failure(answer)
            raise CommandError(
                printable(answer.detail),
                returncode=ExitStatus.RUNNING
                if status is ExitStatus.NOT_HELD
                else status,
            )
        self.stdout.write(printable(answer.detail))


def _find(provider: LockProvider, name: str) -> NamedJob:
    known = list(named_jobs(provider.alias))
    jobs = [job for job in known if job.name in {name, full_name(name)}]
    if not jobs:
        names = sorted({job.name for job in known})
        raise CommandError(
            f"No job with a lock {name!r} is known here.{nearest(name, names)} There "
            f"are {', '.join(map(repr, names)) or 'none'}. Known are decorated jobs "
            "whose locks have fixed names and, with the app "
            "django_shedlock.contrib.crontab, entries of CRONJOBS.",
            returncode=ExitStatus.UNKNOWN,
        )
    return best_of(jobs)
