"""The subcommands of operators: one for each of their actions, trigger, catch-up."""

from argparse import ArgumentParser
from typing import Any, ClassVar

from django.core.management.base import CommandError

from django_shedlock.clocks import local_text
from django_shedlock.console.cli import base
from django_shedlock.console.cli.base import ExitStatus, Subcommand
from django_shedlock.console.cli.terminal import printable
from django_shedlock.console.links import command
from django_shedlock.console.operators import (
    ACTIONS,
    RELEASE,
    Answer,
    OperatorAction,
    requests,
)
from django_shedlock.console.operators.acting import Action
from django_shedlock.exceptions import described
from django_shedlock.locks.configuration import check_durations, full_name
from django_shedlock.locks.status import LockStatus
from django_shedlock.models.console import ActionResult
from django_shedlock.providers.base import LockProvider, matches_any
from django_shedlock.registry.catch_up import Result, catch_up


class ActionCommand(Subcommand):
    """Does an operator's action to a lock."""

    action: ClassVar[Action]

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="of the job's lock")
        for option in cls.action.options:
            if option.default is False:
                how: dict[str, Any] = {"action": "store_true"}
            else:
                how = {"metavar": "DURATION", "type": base.duration}
            if option.flag:
                how |= {"dest": option.name, "default": option.default}
            parser.add_argument(option.flag or option.name, help=option.help, **how)
        base.add_reason(parser, is_required=cls.action.needs_reason)

    def run(
        self, provider: LockProvider, *, name: str, reason: str, **options: Any
    ) -> None:
        if not provider.is_shared:
            raise base.WrongCall(
                f"The provider {provider.alias!r} keeps its locks in the memory of "
                f"each process: `shedlock {self.name}` finds none of another process, "
                "and changes nothing. Keep them in a store that all processes share."
            )
        chosen = {option.name: options[option.name] for option in self.action.options}
        for option in self.action.options:
            if option.label:
                check_durations(name, chosen[option.name])
        name, seen = self._find(provider, name)
        locked_by = seen.locked_by if seen else None
        asked = OperatorAction(provider, name, locked_by, base.operator(), reason)
        answer = self.action.carry_out(asked, seen, **chosen)
        told = printable(answer.detail)
        if answer:
            self.stdout.write(told)
            return
        if answer.result is ActionResult.REFUSED and answer.status:
            advice = self.action.advice.get(answer.status.state, "")
            resume = command(provider, "resume", name)
            told = f"{told} {advice.format(resume=resume)}".strip()
        raise CommandError(told, returncode=_status_of(answer))

    def _find(self, provider: LockProvider, name: str) -> tuple[str, LockStatus | None]:
        if self.action.makes and provider.status(name) is None:
            # A known job may have no record yet; a typo must not make one.
            for known in (name, full_name(name)):
                if known in requests.jobs_by_name(provider):
                    return known, None
        return name, base.find_status(provider, name)


ACTION_COMMANDS: list[type[Subcommand]] = [
    type(
        action.kind.name,
        (ActionCommand,),
        {"action": action, "name": action.kind.value, "help": action.help},
    )
    for action in ACTIONS.values()
    if action.help
]


class TriggerJob(Subcommand):
    """Runs a job now."""

    name = "trigger"
    help = (
        "run a job now, under its lock, even if its tick has been run, or if "
        "lock_at_least_for keeps the lock"
    )

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="of the job's lock")
        base.add_reason(parser)

    def run(
        self, provider: LockProvider, *, name: str, reason: str, **options: Any
    ) -> None:
        known = requests.jobs_by_name(provider)
        job = known.get(name) or known.get(full_name(name))
        if job is None:
            names = sorted(known)
            raise CommandError(
                f"No job with a lock {name!r} is known here."
                f"{base.nearest(name, names)} There are "
                f"{', '.join(map(repr, names)) or 'none'}. Known are "
                "decorated jobs whose locks have fixed names and, with the app "
                "django_shedlock.contrib.crontab, entries of CRONJOBS.",
                returncode=ExitStatus.UNKNOWN,
            )
        if job.needs_arguments:
            raise CommandError(
                f"The job of lock {name!r} needs arguments, so it can't be started by "
                "name.",
                returncode=ExitStatus.UNKNOWN,
            )
        by: Any = {"operator": base.operator(), "reason": reason}
        answer = requests.run_now(OperatorAction(provider, job.full_name, **by), job)
        told = printable(answer.detail)
        if not answer:
            status = _status_of(answer)
            if status is ExitStatus.NOT_HELD:
                status = ExitStatus.RUNNING
            raise CommandError(told, returncode=status)
        self.stdout.write(told)


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
        base.add_switch(parser, "--dry-run", "run nothing, and say what would run")

    def run(
        self,
        provider: LockProvider,
        *,
        include_expired: list[str],
        dry_run: bool,
        verbosity: int,
        **options: Any,
    ) -> None:
        overdue = failed = 0
        if dry_run:
            known = requests.jobs_by_name(provider)
            for status in filter(requests.has_request, requests.find(provider)):
                if status.name in known:
                    job = status.job
                    asked = f"{job.asked_by} asked for a run: {job.asked_why}"
                    self.stdout.write(printable(f"Lock {status.name!r}: {asked}"))
        else:
            for status, answer in requests.carry_out_requests(provider):
                by = f"{status.job.asked_by} asked for it: {status.job.asked_why}"
                if verbosity:
                    self.stdout.write(printable(f"{answer.detail} {by}"))
                failed += answer.result is ActionResult.FAILED

        def release_expired(status: LockStatus) -> bool:
            is_included = matches_any(status.name, include_expired)
            if is_included and not dry_run:
                why = "its job is overdue, and catch-up is told to include this lock"
                acquisition = (status.name, status.locked_by)
                asked = OperatorAction(provider, *acquisition, base.operator(), why)
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


def _status_of(answer: Answer) -> ExitStatus:
    """Return the exit status for an action that was not done."""
    if answer.result is not ActionResult.REFUSED:
        return ExitStatus.FAILED
    if answer.status is None:
        return ExitStatus.NOT_HELD
    if answer.status.pause is not None:
        return ExitStatus.PAUSED
    is_running = answer.status.state.may_run
    return ExitStatus.RUNNING if is_running else ExitStatus.NOT_HELD
