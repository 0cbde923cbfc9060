"""The subcommands of operators: one for each action of their table, and ``trigger``."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser
from typing import Any, ClassVar

from django.core.management.base import CommandError

from django_shedlock.console.cli.base import (
    ExitStatus,
    Subcommand,
    add_reason,
    duration,
    find_status,
    nearest,
    operator,
)
from django_shedlock.console.cli.terminal import printable
from django_shedlock.console.operators import ACTIONS, Answer, OperatorAction
from django_shedlock.console.operators.acting import Action
from django_shedlock.console.operators.requests import jobs_by_name, run_now
from django_shedlock.locks.configuration import check_durations, full_name
from django_shedlock.locks.states import LockStatus
from django_shedlock.models.console import ActionResult
from django_shedlock.providers.base import LockProvider


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
                how = {"metavar": "DURATION", "type": duration}
            if option.flag:
                how |= {"dest": option.name, "default": option.default}
            parser.add_argument(option.flag or option.name, help=option.help, **how)
        add_reason(parser, is_required=cls.action.needs_reason)

    def run(
        self, provider: LockProvider, *, name: str, reason: str, **options: Any
    ) -> None:
        chosen = {option.name: options[option.name] for option in self.action.options}
        for option in self.action.options:
            if option.label:
                check_durations(name, chosen[option.name])
        name, seen = self._find(provider, name)
        locked_by = seen.locked_by if seen else None
        asked = OperatorAction(provider, name, locked_by, operator(), reason)
        answer = self.action.carry_out(asked, seen, **chosen)
        told = printable(answer.detail)
        if answer:
            self.stdout.write(told)
            return
        if answer.result is ActionResult.REFUSED and answer.status:
            advice = self.action.advice.get(answer.status.state, "")
            told = f"{told} {advice.format(name=shlex.quote(name))}".strip()
        raise CommandError(told, returncode=_status_of(answer))

    def _find(self, provider: LockProvider, name: str) -> tuple[str, LockStatus | None]:
        if self.action.makes and provider.status(name) is None:
            # A known job may have no record yet; a typo must not make one.
            for known in (name, full_name(name)):
                if known in jobs_by_name(provider):
                    return known, None
        return name, find_status(provider, name)


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
        add_reason(parser)

    def run(
        self, provider: LockProvider, *, name: str, reason: str, **options: Any
    ) -> None:
        """Run the job here, or say why not; pass on what it raises."""
        known = jobs_by_name(provider)
        job = known.get(name) or known.get(full_name(name))
        if job is None:
            names = sorted(known)
            raise CommandError(
                f"No job with a lock {name!r} is known here.{nearest(name, names)} "
                f"There are {', '.join(map(repr, names)) or 'none'}. Known are "
                "decorated jobs whose locks have fixed names and, with the app "
                "django_shedlock.contrib.crontab, entries of CRONJOBS.",
                returncode=ExitStatus.UNKNOWN,
            )
        if job.start is None:
            raise CommandError(
                f"The job of lock {name!r} needs arguments, so it can't be started by "
                "name.",
                returncode=ExitStatus.UNKNOWN,
            )
        by = {"operator": operator(), "reason": reason}
        answer = run_now(OperatorAction(provider, job.name, **by), job.start)
        told = printable(answer.detail)
        if not answer:
            status = _status_of(answer)
            if status is ExitStatus.NOT_HELD:
                status = ExitStatus.RUNNING
            raise CommandError(told, returncode=status)
        self.stdout.write(told)


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
