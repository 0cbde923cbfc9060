"""Jobs and commands that entries of ``CRONJOBS`` name, and how cron would run them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from unittest.mock import patch

from django.core.management import BaseCommand, get_commands

from django_shedlock import LockConfiguration, assert_locked, current_lock
from django_shedlock.providers import get_provider
from tests.documents import ROOT

CRONTAB_SETTINGS = {
    "CRONTAB_DJANGO_MANAGE_PATH": str(ROOT / "example_project" / "manage.py")
}

calls: list[tuple[Any, ...]] = []
"""What ran, and with what."""


class Report(BaseCommand):
    """A command of somebody else's, which knows of no lock."""

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("groups", nargs="*")
        parser.add_argument("--format", default="text")

    def handle(self, *args: Any, groups: list[str], **options: Any) -> None:
        assert_locked()
        calls.append((current_lock(), groups, options["format"]))
        print("done")


@contextmanager
def command(name: str, instance: BaseCommand) -> Iterator[None]:
    """Make the command known."""
    with patch.dict(get_commands(), {name: instance}):
        yield


def take(name: str) -> None:
    """Hold the lock as another host would."""
    get_provider("default").acquire(LockConfiguration(name, timedelta(hours=1)))
