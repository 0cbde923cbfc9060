"""One of the demo's workers."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand

from example import jobs


def send_digest() -> str | None:
    """Run the command, and return what it printed."""
    printed = io.StringIO()
    call_command("send_digest", stdout=printed)
    return printed.getvalue().strip() or None


JOBS: dict[str, Callable[[], str | None]] = {
    "rates.refresh": jobs.refresh_rates,
    "billing.send_digest": send_digest,
    "report:acme": lambda: jobs.send_report("acme"),
    "backup": jobs.back_up,
}


class Command(BaseCommand):
    """Run the jobs that standard input names, until it ends."""

    help = "Runs jobs for the demo."
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Answer each line of a job and a tick with the outcome."""
        self.say("ready")
        for line in sys.stdin:
            job, os.environ["EXAMPLE_TICK"] = line.split()
            self.say(JOBS[job]() or "skipped")

    def say(self, word: str) -> None:
        """Write a line at once."""
        self.stdout.write(word)
        self.stdout.flush()
