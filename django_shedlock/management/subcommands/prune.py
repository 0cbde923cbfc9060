"""``manage.py shedlock prune``."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django_shedlock import conf
from django_shedlock.configuration import ZERO
from django_shedlock.durations import parse_duration
from django_shedlock.exceptions import InvalidLockConfiguration
from django_shedlock.management.subcommands.base import Subcommand, history_database
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
            help="delete runs that began so long ago; if not given, what "
            "SHEDLOCK_HISTORY_RETENTION says",
        )
        parser.add_argument(
            "--unused-for",
            metavar="DURATION",
            help="also delete records of locks whose last lease ended so long ago, "
            "but for those of decorated jobs with a fixed name",
        )

    def run(
        self,
        provider: LockProvider,
        *,
        older_than: str | None,
        unused_for: str | None,
        **options: Any,
    ) -> None:
        """Delete, and tell how many."""
        using = history_database(provider)
        retention = conf.HISTORY_RETENTION.value if older_than is None else older_than
        age = _age("--older-than", retention)
        unused = None if unused_for is None else _age("--unused-for", unused_for)
        if unused is not None:
            locks = prune_locks(using, unused)
            self.stdout.write(f"Deleted records of unused locks: {locks}.")
        runs = prune_runs(using, age)
        self.stdout.write(f"Deleted runs: {runs}.")


def _age(option: str, value: timedelta | float | str) -> timedelta:
    try:
        age = parse_duration(value)
    except ValueError as error:
        raise InvalidLockConfiguration(f"{option}: {error}.") from error
    if age < ZERO:
        raise InvalidLockConfiguration(f"{option}: {value!r} must not be negative.")
    return age
