"""``manage.py shedlock catch-up``."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from django_shedlock.jobs.catch_up import CaughtUp, Result, catch_up
from django_shedlock.management.subcommands.base import (
    FAILED,
    Subcommand,
    local,
    operator,
    printable,
)
from django_shedlock.providers.base import LockProvider


class CatchUp(Subcommand):
    """Runs overdue jobs."""

    name = "catch-up"
    help = "run each overdue job once, under its lock, for its newest tick only"

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """Add which jobs may run next to one that overruns its lease."""
        parser.add_argument(
            "--include-expired",
            metavar="PATTERN",
            action="append",
            default=[],
            help="also run jobs whose lock has expired without a release, if its name "
            'matches, as in "import:*"; their last run may still go on, so make sure '
            "that its worker is dead; may be repeated",
        )

    def run(
        self,
        provider: LockProvider,
        *,
        include_expired: list[str],
        verbosity: int,
        **options: Any,
    ) -> None:
        """Run them, print a line for each, and exit with 1 if one failed."""
        failed = 0
        for caught_up in catch_up(
            provider, include_expired=include_expired, operator=operator()
        ):
            if verbosity:
                self.stdout.write(_line(caught_up))
            failed += caught_up.result is Result.FAILED
        if failed:
            message = f"Overdue jobs that failed: {failed}."
            raise CommandError(message, returncode=FAILED)


def _line(caught_up: CaughtUp) -> str:
    since = local(caught_up.overdue_since)
    line = f"Lock {caught_up.name!r}, overdue since {since}: {caught_up.result.value}"
    if caught_up.error is None:
        return f"{line}."
    error = f"{type(caught_up.error).__name__}: {caught_up.error}"
    return f"{line} with {printable(error)}"
