"""The command ``crontab`` of django-crontab, which runs its entries under locks."""

from __future__ import annotations

from typing import Any

from django_crontab.crontab import Crontab
from django_crontab.management.commands import crontab

from django_shedlock.contrib.crontab.runs import run_or_exit


class Command(crontab.Command):
    """
    Add, show and remove the crontab's lines as django-crontab does; run under locks.

    A run that is skipped prints nothing and exits with 0, one that fails exits with 1.
    """

    def execute(self, *args: Any, **options: Any) -> Any:
        """Leave out the system checks at each tick: a warning would be cron's mail."""
        if options["subcommand"] == "run":
            options["skip_checks"] = True
        return super().execute(*args, **options)

    def handle(self, *args: Any, subcommand: str, **options: Any) -> None:
        """Run the entry, or leave the subcommand to django-crontab."""
        if subcommand == "run":
            run_or_exit(_job(options["jobhash"]))
        else:
            super().handle(*args, subcommand=subcommand, **options)


def _job(job_hash: str) -> Any:
    # Only it knows how it makes the hashes that it writes into the crontab.
    return Crontab()._Crontab__get_job_by_hash(job_hash)
