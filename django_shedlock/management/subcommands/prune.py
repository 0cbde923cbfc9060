"""``manage.py shedlock prune``."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django_shedlock import conf
from django_shedlock.exceptions import InvalidLockConfiguration
from django_shedlock.history.pruning import prune_locks, prune_runs
from django_shedlock.locks.configuration import ZERO, default_duration
from django_shedlock.management.subcommands.base import (
    Subcommand,
    duration,
    history_database,
)
from django_shedlock.providers.base import LockProvider


class Prune(Subcommand):
    """Deletes old rows."""

    name = "prune"
    help = "delete old runs and, with --unused-for, records of unused locks"

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """Add what to delete, and how old it must be."""
        parser.add_argument(
            "--older-than",
            metavar="DURATION",
            type=duration,
            help="delete runs that began longer ago than this; "
            "SHEDLOCK_HISTORY_RETENTION by default",
        )
        parser.add_argument(
            "--unused-for",
            metavar="DURATION",
            type=duration,
            help="also delete records of locks whose last lease ended longer ago than "
            "this, but not of decorated jobs with fixed names",
        )

    def run(
        self,
        provider: LockProvider,
        *,
        older_than: timedelta | None,
        unused_for: timedelta | None,
        **options: Any,
    ) -> None:
        """Delete the rows, and print how many."""
        using = history_database(provider)
        if older_than is None:
            older_than = default_duration(conf.HISTORY_RETENTION)
        if older_than < ZERO:
            raise InvalidLockConfiguration(
                f"{conf.HISTORY_RETENTION.name} must not be negative."
            )
        if unused_for is not None:
            locks = prune_locks(using, unused_for)
            self.stdout.write(f"Deleted records of unused locks: {locks}.")
        runs = prune_runs(using, older_than)
        self.stdout.write(f"Deleted runs: {runs}.")
