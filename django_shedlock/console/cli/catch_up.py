"""``manage.py shedlock catch-up``."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from django_shedlock.clocks import local_text
from django_shedlock.console.cli.base import ExitStatus, Subcommand, operator
from django_shedlock.console.cli.terminal import printable
from django_shedlock.console.operators import RELEASE, OperatorAction
from django_shedlock.console.operators.requests import carry_out_requests, jobs_by_name
from django_shedlock.console.operators.trail import Trail
from django_shedlock.exceptions import described
from django_shedlock.jobs.catch_up import Result, catch_up
from django_shedlock.locks.states import LockStatus
from django_shedlock.models.console import ActionResult
from django_shedlock.providers.base import LockProvider, matches_any


class CatchUp(Subcommand):
    """Runs overdue jobs, and those that an operator asked for."""

    name = "catch-up"
    help = (
        "run the jobs that operators asked for in the admin, and each overdue job "
        "once, under its lock, for its newest tick only"
    )

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
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
        overdue = failed = 0
        if dry_run:
            self._tell_requests(provider)
        else:
            for request, answer in carry_out_requests(provider):
                by = f"{request.operator} asked for it: {request.reason}"
                if verbosity:
                    self.stdout.write(printable(f"{answer.detail} {by}"))
                failed += answer.result is ActionResult.FAILED

        def release_expired(status: LockStatus) -> bool:
            is_included = matches_any(status.name, include_expired)
            if is_included and not dry_run:
                why = "its job is overdue, and catch-up is told to include this lock"
                acquisition = (status.name, status.locked_by)
                asked = OperatorAction(provider, *acquisition, operator(), why)
                RELEASE.carry_out(asked, status, running=True)
            return is_included

        for caught_up in catch_up(
            provider, release_expired=release_expired, dry_run=dry_run
        ):
            overdue += 1
            failed += caught_up.result is Result.FAILED
            if verbosity:
                since = local_text(caught_up.overdue_since)
                told = f"Lock {caught_up.name!r}, overdue since {since}: "
                told += caught_up.result.value
                if caught_up.error is not None:
                    told += f" with {printable(described(caught_up.error))}"
                self.stdout.write(told if caught_up.error else f"{told}.")
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

    def _tell_requests(self, provider: LockProvider) -> None:
        known = jobs_by_name(provider)
        for request in Trail(provider).requests():
            if request.name in known:
                asked = f"{request.operator} asked for a run: {request.reason}"
                self.stdout.write(printable(f"Lock {request.name!r}: {asked}"))
