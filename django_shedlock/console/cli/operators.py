"""The subcommands of operators: one for each of their actions, and trigger."""

from argparse import ArgumentParser
from typing import Any, ClassVar

from django.core.management.base import CommandError

from django_shedlock.cli import base
from django_shedlock.cli.operators import status_of_refusal
from django_shedlock.cli.terminal import printable
from django_shedlock.cli.trigger import TriggerJob
from django_shedlock.console.models import ActionKind, ActionResult
from django_shedlock.console.operators import ACTIONS, Answer
from django_shedlock.console.operators.acting import Action
from django_shedlock.console.operators.audit import AuditedAction, write_action
from django_shedlock.execution.operators import OperatorAction
from django_shedlock.locks.configuration import check_durations, full_name
from django_shedlock.locks.status import LockStatus
from django_shedlock.providers.base import LockProvider
from django_shedlock.registry.requests import jobs_by_name
from django_shedlock.registry.trigger import TriggeredRun


class ActionCommand(base.Subcommand):
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
        base.refuse_own_memory(provider, self.name)
        chosen = {option.name: options[option.name] for option in self.action.options}
        for option in self.action.options:
            if option.label:
                check_durations(name, chosen[option.name])
        name, seen = self._find(provider, name)
        locked_by = seen.locked_by if seen else None
        asked = AuditedAction(provider, name, locked_by, base.operator(), reason)
        answer = self.action.carry_out(asked, seen, **chosen)
        told = printable(answer.detail)
        if answer:
            self.stdout.write(told)
            return
        if answer.result is ActionResult.REFUSED and answer.status:
            advice = self.action.advice.get(answer.status.state, "")
            resume = base.command(provider, "resume", name)
            told = f"{told} {advice.format(resume=resume)}".strip()
        raise CommandError(told, returncode=_status_of(answer))

    def _find(self, provider: LockProvider, name: str) -> tuple[str, LockStatus | None]:
        if self.action.makes and provider.status(name) is None:
            # A known job may have no record yet; a typo must not make one.
            for known in (name, full_name(name)):
                if known in jobs_by_name(provider):
                    return known, None
        return name, base.find_status(provider, name)


def action_commands() -> list[type[base.Subcommand]]:
    """Return one subcommand for each action that has a ``help``."""
    return [
        type(
            action.kind.name,
            (ActionCommand,),
            {"action": action, "name": action.kind.value, "help": action.help},
        )
        for action in ACTIONS.values()
        if action.help
    ]


class AuditedTrigger(TriggerJob):
    """Runs a job now, and writes that to the audit log."""

    def record(self, action: OperatorAction, triggered: TriggeredRun) -> None:
        """Write the result of the run to the audit log."""
        result = ActionResult.DONE if triggered else ActionResult.FAILED
        if not triggered.was_executed:
            result = ActionResult.REFUSED
        audited = AuditedAction(
            action.provider, action.name, None, action.operator, action.reason
        )
        text = str(triggered)
        write_action(audited, ActionKind.RUN, result, text, took=triggered.took)


def _status_of(answer: Answer) -> base.ExitStatus:
    """Return the exit status for an action that was not done."""
    if answer.result is not ActionResult.REFUSED:
        return base.ExitStatus.FAILED
    return status_of_refusal(answer.status)
