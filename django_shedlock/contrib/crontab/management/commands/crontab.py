"""The command ``crontab``, which runs the entries of ``CRONJOBS`` under locks."""

import sys
from typing import Any

from django_crontab.crontab import Crontab
from django_crontab.management.commands import crontab

from django_shedlock.contrib.crontab.entries import CrontabEntry
from django_shedlock.signals import logger


class Command(crontab.Command):
    """
    Add, show and remove the crontab's lines as django-crontab does; run under locks.

    A skip prints nothing and exits with 0. A run that fails exits with 1.
    """

    def execute(self, *args: Any, **options: Any) -> Any:
        """Run no system checks at each tick: cron would mail their warnings."""
        if options["subcommand"] == "run":
            options["skip_checks"] = True
        return super().execute(*args, **options)

    def handle(self, *args: Any, subcommand: str, **options: Any) -> None:
        """Run the entry, or leave the subcommand to django-crontab."""
        if subcommand != "run":
            super().handle(*args, subcommand=subcommand, **options)
            return
        # Only django-crontab knows how it makes the hashes in the crontab.
        line = Crontab()._Crontab__get_job_by_hash(options["jobhash"])
        try:
            CrontabEntry.parse(line).run()
        except Exception:
            logger.exception("The entry %r of CRONJOBS failed.", line)
            sys.exit(1)
