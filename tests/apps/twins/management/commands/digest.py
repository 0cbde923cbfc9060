"""A command whose lock has the name of somebody else's."""

from typing import Any

from django.core.management.base import BaseCommand

from django_shedlock import scheduler_lock


@scheduler_lock("twins.digest")
class Command(BaseCommand):
    """One of two jobs with one name."""

    def handle(self, *args: Any, **options: Any) -> None:
        """Do nothing."""
