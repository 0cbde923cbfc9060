"""APScheduler: every host has a scheduler, and one host runs each tick."""

from __future__ import annotations

import logging
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from example.jobs import refresh_rates


class Command(BaseCommand):
    """Start the job at each tick, and log whether it was skipped."""

    help = "Runs APScheduler with a job that is decorated."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the option for the second of each minute at which a tick is due."""
        parser.add_argument("--second", default="0", help="APScheduler's field")

    def handle(self, *args: Any, second: str, **options: Any) -> None:
        """Run until the process ends."""
        from apscheduler.schedulers.blocking import BlockingScheduler

        logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
        scheduler = BlockingScheduler()
        # A cron trigger: an interval would count from the start of this process.
        scheduler.add_job(refresh_rates, "cron", second=second)
        try:
            scheduler.start()
        except KeyboardInterrupt:
            scheduler.shutdown(wait=False)
