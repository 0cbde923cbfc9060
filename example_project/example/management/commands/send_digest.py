"""A management command that runs on one host at a time."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from django_shedlock import scheduler_lock
from example.jobs import work


@scheduler_lock("billing.send_digest", lock_at_most_for="9m", lock_at_least_for="30s")
class Command(BaseCommand):
    """Send the digest of the day."""

    help = "Sends the digest of the day, once."

    def handle(self, *args: Any, **options: Any) -> str:
        """Send the digest; skipped while another worker sends it."""
        work("billing.send_digest")
        return "sent"
