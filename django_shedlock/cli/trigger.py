"""``manage.py shedlock trigger``."""

from argparse import ArgumentParser

from django.core.management.base import CommandError

from django_shedlock.cli import base, operators, terminal
from django_shedlock.execution.executor import SKIPPED_EXIT_STATUS
from django_shedlock.execution.operators import OperatorAction
from django_shedlock.locks.configuration import full_name
from django_shedlock.locks.status import LockState
from django_shedlock.providers.base import LockProvider
from django_shedlock.registry.requests import jobs_by_name
from django_shedlock.registry.trigger import TriggeredRun, trigger


class TriggerJob(base.Subcommand):
    """Runs a job now."""

    name = "trigger"
    group = base.Group.ACT
    example = 'trigger nightly --reason "the server is back"'
    help = (
        "run a job now, under its lock, even if its tick has been run, or if "
        "lock_at_least_for keeps the lock"
    )

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="of the job's lock")
        base.add_reason(parser)

    def run(
        self, provider: LockProvider, *, name: str, reason: str, **options: object
    ) -> None:
        known = jobs_by_name(provider)
        job = known.get(name) or known.get(full_name(name))
        if job is None:
            names = sorted(known)
            raise CommandError(
                f"No job with a lock {name!r} is known here."
                f"{base.nearest(name, names)} There are "
                f"{', '.join(map(repr, names)) or 'none'}. Known are "
                "decorated jobs whose locks have fixed names, commands of "
                "SHEDLOCK_COMMANDS and, with the app django_shedlock.contrib.crontab, "
                "entries of CRONJOBS.",
                returncode=base.ExitStatus.UNKNOWN,
            )
        if job.needs_arguments:
            raise CommandError(
                f"The job of lock {name!r} needs arguments, so it can't be started by "
                "name.",
                returncode=base.ExitStatus.UNKNOWN,
            )
        action = OperatorAction(
            provider, job.full_name, operator=base.operator(), reason=reason
        )
        triggered = trigger(action, job)
        self.record(action, triggered)
        text = terminal.printable(str(triggered))
        if triggered.has_failed and _has_own_status(triggered.error):
            raise CommandError(text, returncode=base.ExitStatus.FAILED)
        if triggered.error is not None and triggered.has_failed:
            raise triggered.error
        if not triggered.was_executed:
            status = operators.status_of_refusal(triggered.status)
            if status is base.ExitStatus.NOT_HELD:
                status = base.ExitStatus.RUNNING
            if triggered.status and triggered.status.state is LockState.EXPIRED:
                text += f" {operators.release_advice(provider, triggered.status)}"
            raise CommandError(text, returncode=status)
        self.stdout.write(text)

    def record(self, action: OperatorAction, triggered: TriggeredRun) -> None:
        """Record the operator's action. The console writes it to the audit log."""


def _has_own_status(error: BaseException | None) -> bool:
    """Return whether the job's exit status would have another meaning here."""
    if isinstance(error, CommandError):
        return error.returncode != SKIPPED_EXIT_STATUS
    return isinstance(error, SystemExit)
