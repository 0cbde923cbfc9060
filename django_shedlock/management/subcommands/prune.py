"""``manage.py shedlock prune``."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django_shedlock import conf
from django_shedlock.configuration import ZERO
from django_shedlock.exceptions import InvalidLockConfiguration
from django_shedlock.management.subcommands.arguments import duration
from django_shedlock.management.subcommands.base import Subcommand, history_database
from django_shedlock.options import default_duration
from django_shedlock.providers.base import LockProvider
from django_shedlock.pruning import prune_locks, prune_runs


class Prune(Subcommand):
    """Clears old rows away."""

    name = "prune"
    help = "delete old runs, and on request records of locks that nobody uses"

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """How old, and what."""
        parser.add_argument(
            "--older-than",
            metavar="DURATION",
            type=duration,
            help="delete runs that began so long ago; if not given, what "
            "SHEDLOCK_HISTORY_RETENTION says",
        )
        parser.add_argument(
            "--unused-for",
            metavar="DURATION",
            type=duration,
            help="also delete records of locks whose last lease ended so long ago, "
            "but for those of decorated jobs with a fixed name",
        )

    def run(
        self,
        provider: LockProvider,
        *,
        older_than: timedelta | None,
        unused_for: timedelta | None,
        **options: Any,
    ) -> None:
        """Delete, and tell how many."""
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
