"""``manage.py shedlock catch-up``."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from django_shedlock.clocks import local_text
from django_shedlock.console.cli.base import ExitStatus, Subcommand, operator
from django_shedlock.console.cli.terminal import printable
from django_shedlock.console.operators import OperatorAction
from django_shedlock.console.operators.requests import (
    carry_out_requests,
    jobs_by_name,
    open_requests,
)
from django_shedlock.exceptions import described
from django_shedlock.jobs.catch_up import CaughtUp, Result, catch_up
from django_shedlock.locks.states import LockStatus
from django_shedlock.patterns import matches_any
from django_shedlock.providers.base import LockProvider


class CatchUp(Subcommand):
    """Runs overdue jobs, and those that an operator asked for."""

    name = "catch-up"
    help = (
        "run the jobs that operators asked for in the admin, and each overdue job "
        "once, under its lock, for its newest tick only"
    )

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
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="run nothing, and say what would run",
        )

    def run(
        self,
        provider: LockProvider,
        *,
        include_expired: list[str],
        dry_run: bool,
        verbosity: int,
        **options: Any,
    ) -> None:
        """Run them, print a line for each, and exit with 1 if one failed."""

        def release_expired(status: LockStatus) -> bool:
            if not matches_any(status.name, include_expired):
                return False
            if not dry_run:
                reason = (
                    "its job is overdue, and catch-up is told to include this expired "
                    "lock"
                )
                acquisition = (status.name, status.locked_by)
                OperatorAction(provider, *acquisition, operator(), reason).release(
                    running=True
                )
            return True

        overdue = 0
        failed = self._carry_out_requests(provider, verbosity, dry_run=dry_run)
        for caught_up in catch_up(
            provider, release_expired=release_expired, dry_run=dry_run
        ):
            overdue += 1
            if verbosity:
                self.stdout.write(_line(caught_up))
            failed += caught_up.result is Result.FAILED
        if dry_run and not overdue:
            self.stdout.write(
                "No job is overdue."
                if provider.keeps_ticks
                else f"The provider {provider.alias!r} keeps no ticks: nobody knows "
                "what is overdue."
            )
        if failed:
            message = f"Jobs that failed: {failed}."
            raise CommandError(message, returncode=ExitStatus.FAILED)

    def _carry_out_requests(
        self, provider: LockProvider, verbosity: int, *, dry_run: bool
    ) -> int:
        failed = 0
        if dry_run:
            known = jobs_by_name(provider)
            for name, request in open_requests(provider).items():
                if name in known:
                    asked = f"{request.operator} asked for a run: {request.reason}"
                    self.stdout.write(printable(f"Lock {name!r}: {asked}"))
            return 0
        for carried_out in carry_out_requests(provider):
            if verbosity:
                request = carried_out.request
                by = f"{request.operator} asked for it: {request.reason}"
                self.stdout.write(printable(f"{carried_out.answer.detail} {by}"))
            failed += carried_out.error is not None
        return failed


def _line(caught_up: CaughtUp) -> str:
    since = local_text(caught_up.overdue_since)
    line = f"Lock {caught_up.name!r}, overdue since {since}: {caught_up.result.value}"
    if caught_up.error is None:
        return f"{line}."
    return f"{line} with {printable(described(caught_up.error))}"
