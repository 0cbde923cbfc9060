"""The command ``crontab``, which runs the entries of ``CRONJOBS`` under locks."""

import sys

from django_crontab.crontab import Crontab
from django_crontab.management.commands import crontab

from django_shedlock.contrib.crontab.entries import CrontabEntry
from django_shedlock.scrubbing import scrubbed
from django_shedlock.signals import logger


class Command(crontab.Command):
    """
    Add, show and remove the crontab's lines as django-crontab does; run under locks.

    A skip prints nothing and exits with 0. A run that fails exits with 1.
    """

    def execute(self, *args: object, **options: object) -> object:
        """Run the command; for ``run`` without system checks, which cron would mail."""
        if options["subcommand"] == "run":
            options["skip_checks"] = True
        return super().execute(*args, **options)

    def handle(self, *args: object, subcommand: str, **options: object) -> None:
        """Run the entry, or leave other subcommands to django-crontab."""
        if subcommand != "run":
            super().handle(*args, subcommand=subcommand, **options)
            return
        # django-crontab has no public way from a hash in the crontab to its entry.
        try:
            line = Crontab()._Crontab__get_job_by_hash(options["jobhash"])
        except RuntimeError:
            logger.error(
                "No entry of CRONJOBS has the hash %s, so nothing is run: CRONJOBS has "
                "changed since `crontab add`. Run `python manage.py crontab add "
                "--verbosity 0` again on this host. If it changes each day, a part of "
                "an entry is today's date: `python manage.py check` finds it.",
                options["jobhash"],
            )
            sys.exit(1)
        try:
            CrontabEntry.parse(line).run()
        except Exception:
            logger.exception("The entry %s of CRONJOBS failed.", scrubbed(repr(line)))
            sys.exit(1)
