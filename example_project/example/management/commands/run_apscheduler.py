"""APScheduler: every host has a scheduler, and one of them runs each tick."""

from __future__ import annotations

import logging
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from example.jobs import refresh_rates


class Command(BaseCommand):
    """Start the job at each tick, and show who ran it and who skipped."""

    help = "Runs APScheduler with a job that is decorated."

    def add_arguments(self, parser: CommandParser) -> None:
        """Let the seconds of a tick be given."""
        parser.add_argument("--second", default="0", help="APScheduler's field")

    def handle(self, *args: Any, second: str, **options: Any) -> None:
        """Run until the process is ended."""
        from apscheduler.schedulers.blocking import BlockingScheduler

        logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
        scheduler = BlockingScheduler()
        # At a second of the clock: an interval would begin when this process began.
        scheduler.add_job(refresh_rates, "cron", second=second)
        try:
            scheduler.start()
        except KeyboardInterrupt:
            scheduler.shutdown(wait=False)
