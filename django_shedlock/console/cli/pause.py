"""``manage.py shedlock pause`` and ``resume``."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError

from django_shedlock.console.cli.base import (
    ExitStatus,
    Subcommand,
    add_reason,
    duration,
    failure,
    find_status,
    operator,
)
from django_shedlock.console.cli.terminal import printable
from django_shedlock.console.operators import OperatorAction
from django_shedlock.jobs.named import named_jobs
from django_shedlock.locks.configuration import ZERO, check_durations, full_name
from django_shedlock.locks.pauses import FOREVER
from django_shedlock.providers.base import LockProvider


class PauseJob(Subcommand):
    """Pauses a job."""

    name = "pause"
    help = "keep a job from running, by an acquisition of your own, until resume"

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """Add the lock, why, for how long, and whether to wait for a running job."""
        parser.add_argument("name", help="of the job's lock")
        parser.add_argument(
            "--reason", required=True, help="why; each skip of the job tells it"
        )
        parser.add_argument(
            "--for",
            dest="lasting",
            metavar="DURATION",
            type=duration,
            default=FOREVER,
            help='the pause ends by itself after so long, as in "2h"; without it, '
            "by `shedlock resume` only",
        )
        parser.add_argument(
            "--wait",
            metavar="DURATION",
            type=duration,
            default=ZERO,
            help="wait so long for a running job to end; without it, refuse",
        )

    def run(
        self,
        provider: LockProvider,
        *,
        name: str,
        reason: str,
        lasting: timedelta,
        wait: timedelta,
        **options: Any,
    ) -> None:
        """Pause the job, or say why not."""
        name = _known_name(provider, name)
        check_durations(name, lasting)
        action = OperatorAction(provider, name, operator=operator(), reason=reason)
        answer = action.pause(lasting, wait=wait)
        if answer:
            self.stdout.write(printable(answer.detail))
            return
        exit_status = failure(answer)
        advice = WHEN_RUNNING if exit_status is ExitStatus.RUNNING else ""
        told = f"{printable(answer.detail)}{advice}"
        raise CommandError(told, returncode=exit_status)


WHEN_RUNNING = (
    " With --wait 10m the pause begins when the job has ended. If its worker is dead, "
    "release the lock first."
)


class ResumeJob(Subcommand):
    """Resumes a paused job."""

    name = "resume"
    help = "end the pause of a job"

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """Add the lock, and why."""
        parser.add_argument("name", help="of the job's lock")
        add_reason(parser)

    def run(
        self, provider: LockProvider, *, name: str, reason: str, **options: Any
    ) -> None:
        """End the pause, or say why not."""
        status = find_status(provider, name)
        by = {"operator": operator(), "reason": reason}
        answer = OperatorAction(provider, name, status.locked_by, **by).resume()
        if not answer:
            raise CommandError(printable(answer.detail), returncode=failure(answer))
        self.stdout.write(printable(answer.detail))


def _known_name(provider: LockProvider, name: str) -> str:
    # A typo must not make a record.
    if not provider.statuses(name):
        for job in named_jobs(provider.alias):
            if job.name in {name, full_name(name)}:
                return job.name
        find_status(provider, name)
    return name
