"""The subcommands of operators: one for each of their actions, and trigger."""

import glob
import time
from argparse import ArgumentParser
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError

from django_shedlock.cli import base, terminal
from django_shedlock.cli.operators import (
    ActionOutcome,
    Extend,
    LockCommand,
    Release,
    status_of_refusal,
)
from django_shedlock.cli.trigger import TriggerJob
from django_shedlock.console.models import ActionKind, ActionResult
from django_shedlock.console.operators import (
    AcknowledgeFindings,
    Action,
    Answer,
    AuditedAction,
    ExtendLease,
    PauseJob,
    ReleaseLock,
    ResumeJob,
    WithdrawRequest,
)
from django_shedlock.console.operators.audit import write_action
from django_shedlock.exceptions import ShedLockError
from django_shedlock.execution.operators import OperatorAction
from django_shedlock.locks.configuration import ZERO, check_durations, full_name
from django_shedlock.locks.own import OWN_LOCK_PATTERNS
from django_shedlock.locks.patterns import WILDCARD
from django_shedlock.locks.pauses import FOREVER
from django_shedlock.locks.status import LockState, LockStatus
from django_shedlock.providers.base import LockProvider, LockQuery
from django_shedlock.registry.requests import jobs_by_name
from django_shedlock.registry.trigger import TriggeredRun


class AuditedRelease(Release):
    """Releases the lock of another worker, and writes that to the audit log."""

    def release(
        self, action: OperatorAction, before: LockStatus, *, may_release: bool
    ) -> ActionOutcome:
        wanted = ReleaseLock(spare_running=not may_release)
        return _outcome(wanted.carry_out(AuditedAction.of(action), before))

    def advice(self, provider: LockProvider, after: LockStatus) -> str:
        if after.pause is None:
            return super().advice(provider, after)
        words = "resume", after.name, "--held-by", after.locked_by
        return f"`{base.command(provider, *words)}` ends the pause."


class AuditedExtend(Extend):
    """Extends the lease of another worker, and writes that to the audit log."""

    def extend(
        self, action: OperatorAction, before: LockStatus, lock_at_most_for: timedelta
    ) -> ActionOutcome:
        wanted = ExtendLease(lock_at_most_for)
        return _outcome(wanted.carry_out(AuditedAction.of(action), before))


class PausesCommand(LockCommand):
    """Begins or ends the pause of one job, or of all whose locks match a pattern."""

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        parser.add_argument(
            "name",
            nargs="?",
            help='of the job\'s lock, or a pattern of names as in "billing.*"',
        )
        base.add_switch(parser, "--all", "all jobs, as for a maintenance window")
        base.add_held_by(parser)

    def meant(
        self,
        provider: LockProvider,
        *,
        name: str | None,
        held_by: str,
        reason: str,
        **options: Any,
    ) -> tuple[AuditedAction, bool]:
        """Return the action, and whether it is for the one lock of that name."""
        base.refuse_own_memory(provider, self.name)
        if bool(name) == options["all"]:
            raise base.WrongCall(
                "Give the name of a lock, a pattern of names, or --all."
            )
        pattern = name or f"{glob.escape(full_name(''))}*"
        # The name of a lock may look like a pattern.
        is_one = bool(name) and (
            not WILDCARD.search(pattern) or provider.status(pattern) is not None
        )
        if held_by and not is_one:
            raise base.WrongCall("--held-by needs the name of one lock.")
        by = held_by or None, base.operator(), reason
        return AuditedAction(provider, pattern, *by), is_one

    def change_each(self, action: Action, asked: AuditedAction) -> Answer | None:
        """Change one of several locks; return ``None`` if the store fails."""
        answer, text = None, ""
        try:
            answer = action.carry_out(asked)
            text = answer.detail
        except ShedLockError as error:
            text = str(error)
        self.write(terminal.printable(text))
        return answer


class PauseCommand(PausesCommand):
    """Pauses jobs."""

    name = "pause"
    group = base.Group.ACT
    example = 'pause "billing.*" --for 2h --reason "it moves"'
    help = "keep jobs from running, by acquisitions of your own, until resume"

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        base.add_lasting(
            parser,
            'the pause ends by itself after so long, as in "2h"; without it, by the '
            "subcommand resume only",
        )
        base.add_duration(
            parser,
            "--wait",
            "wait so long for a running job to end; without it, refuse",
            ZERO,
        )
        base.add_reason(parser, is_required=True)

    def run(
        self,
        provider: LockProvider,
        *,
        lasting: timedelta,
        wait: timedelta,
        **options: Any,
    ) -> None:
        asked, is_one = self.meant(provider, **options)
        check_durations(asked.name, lasting)
        if not is_one:
            self._pause_all(asked, lasting, wait)
            return
        asked, seen = _seen_or_known(asked)
        outcome = _outcome(PauseJob(lasting, wait).carry_out(asked, seen))
        advice = ""
        if outcome.exit_status is base.ExitStatus.RUNNING:
            advice = (
                "With --wait 10m the pause begins when the job has ended. If its "
                "worker is dead, release the lock first."
            )
        self.report(outcome, advice)

    def _pause_all(
        self, asked: AuditedAction, lasting: timedelta, wait: timedelta
    ) -> None:
        """Pause the jobs whose locks match, whatever becomes of one of them."""
        names = _names_to_pause(asked)
        if not names:
            raise base.unmatched_pattern(asked.provider, asked.name)
        if lasting == FOREVER:
            self.stderr.write(
                "Without --for, these pauses have no end. Only `shedlock resume` ends "
                "them."
            )
        deadline = time.monotonic() + wait.total_seconds()
        paused, running, problems = 0, list[str](), set[base.ExitStatus]()
        # Jobs that run come last: while one is waited for, no idle job may start.
        held = {each.name for each in _running_jobs_like(asked)}
        for name in sorted(names, key=held.__contains__):
            left = timedelta(seconds=max(0.0, deadline - time.monotonic()))
            if name not in held:
                left = ZERO
            action = PauseJob(lasting, left, spare_longer=True)
            answer = self.change_each(action, replace(asked, name=name))
            status = _exit_status(answer)
            if status in {base.ExitStatus.DONE, base.ExitStatus.PAUSED}:
                paused += 1
            else:
                problems.add(status)
            if answer is not None and answer.unstopped_run:
                running.append(f"{name} as {answer.unstopped_run}")
        text = f"Paused: {paused} of {len(names)} jobs."
        if running:
            text += f" Not stopped, so they may still run: {', '.join(running)}."
        self.report(ActionOutcome(text, _worst(problems)))


class ResumeCommand(PausesCommand):
    """Ends pauses."""

    name = "resume"
    group = base.Group.ACT
    example = 'resume "billing.*" --reason "it has moved"'
    help = "end the pauses of jobs"

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        base.add_reason(parser)

    def run(self, provider: LockProvider, **options: Any) -> None:
        asked, is_one = self.meant(provider, **options)
        if not is_one:
            self._resume_all(asked)
            return
        asked, seen = _seen_or_known(asked)
        seen = seen or base.find_status(provider, asked.name)
        self.report(_outcome(ResumeJob().carry_out(asked, seen)))

    def _resume_all(self, asked: AuditedAction) -> None:
        """End the pauses that match, whatever becomes of one of them."""
        provider, problems, resumed = asked.provider, set[base.ExitStatus](), 0
        found = list(provider.statuses(_jobs_like(asked, LockState.PAUSED)))
        paused = [each for each in found if not _is_of_another(each, asked.operator)]
        left_alone = [each.name for each in found if each not in paused]
        if left_alone:
            self.stderr.write(
                "Left alone, since somebody else paused them without an end: "
                f"{terminal.printable(', '.join(left_alone))}. Resume them by name."
            )
        if not found:
            if next(provider.statuses(_jobs_like(asked)), None) is None:
                raise base.unmatched_pattern(asked.provider, asked.name)
            text = f"No job whose lock matches {asked.name!r} is paused."
            raise CommandError(text, returncode=base.ExitStatus.NOT_HELD)
        for seen in paused:
            each = replace(asked, name=seen.name, locked_by=seen.locked_by)
            answer = self.change_each(ResumeJob(), each)
            resumed += bool(answer)
            if not answer:
                problems.add(_exit_status(answer))
        if left_alone and not paused:
            problems.add(base.ExitStatus.PAUSED)
        text = f"Resumed: {resumed} of {len(found)} paused jobs."
        self.report(ActionOutcome(text, _worst(problems)))


class AcknowledgeCommand(LockCommand):
    """Acknowledges findings."""

    name = "acknowledge"
    group = base.Group.ACT
    example = 'acknowledge nightly --for 8h --reason "being fixed"'
    help = "silence findings that a lock has now, until something new happens"

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        base.add_name(parser)
        parser.add_argument(
            "--fact",
            action="append",
            default=[],
            help="only the finding with this fact, which `show` prints; may be "
            "repeated; by default all findings that the lock has now",
        )
        base.add_lasting(parser, 'they are silent for so long at the most, as in "2h"')
        base.add_switch(
            parser,
            "--process-is-gone",
            "you have looked, and the process of the run is gone: the advice for an "
            "overdue tick then names the command that runs the job; the next tick "
            "starts it in any case",
        )
        base.add_reason(parser, is_required=True)

    def run(
        self,
        provider: LockProvider,
        *,
        name: str,
        fact: list[str],
        lasting: timedelta,
        process_is_gone: bool,
        reason: str,
        **options: object,
    ) -> None:
        base.refuse_own_memory(provider, self.name)
        check_durations(name, lasting)
        base.find_status(provider, name)
        found = AcknowledgeFindings.findings(provider, [name]).get(name, ())
        facts = fact or [finding.fact for finding in found]
        asked = AuditedAction(
            provider, name, operator=base.operator(), reason=reason, facts=facts
        )
        answer = AcknowledgeFindings(lasting, process_is_gone).carry_out(asked)
        self.report(_outcome(answer))
        for finding in found:
            if finding.fact in facts:
                self.write(terminal.printable(f"  {finding.fact}: {finding.headline}"))


class WithdrawCommand(LockCommand):
    """Withdraws a request."""

    name = "withdraw"
    group = base.Group.ACT
    example = 'withdraw nightly --reason "no longer needed"'
    help = "withdraw the request to run a job, if nobody has carried it out"

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        base.add_name(parser)
        base.add_reason(parser)

    def run(
        self, provider: LockProvider, *, name: str, reason: str, **options: object
    ) -> None:
        base.refuse_own_memory(provider, self.name)
        seen = base.find_status(provider, name)
        asked = AuditedAction(provider, name, seen.locked_by, base.operator(), reason)
        self.report(_outcome(WithdrawRequest().carry_out(asked, seen)))


class AuditedTrigger(TriggerJob):
    """Runs a job now, and writes that to the audit log."""

    def record(self, action: OperatorAction, triggered: TriggeredRun) -> None:
        """Write the result of the run to the audit log."""
        result = ActionResult.DONE if triggered else ActionResult.FAILED
        if not triggered.was_executed:
            result = ActionResult.REFUSED
        asked = replace(AuditedAction.of(action), locked_by=None)
        write_action(asked, ActionKind.RUN, result, str(triggered), took=triggered.took)


def _bound(asked: AuditedAction, seen: LockStatus) -> AuditedAction:
    """Bind it to the acquisition that was seen, unless the operator named one."""
    return replace(asked, locked_by=asked.locked_by or seen.locked_by)


def _seen_or_known(asked: AuditedAction) -> tuple[AuditedAction, LockStatus | None]:
    """Return the lock that is meant: that of a known job need not have a record yet."""
    provider = asked.provider
    seen = provider.status(asked.name)
    if seen is None:
        known = jobs_by_name(provider)
        names = (asked.name, full_name(asked.name))
        name = next((each for each in names if each in known), None)
        if name is None:
            seen = base.find_status(provider, asked.name)  # names similar ones
        else:
            asked, seen = replace(asked, name=name), provider.status(name)
    return (asked if seen is None else _bound(asked, seen)), seen


def _jobs_like(asked: AuditedAction, *states: LockState) -> LockQuery:
    """Return the locks of jobs whose names match, in these states if any are given."""
    return LockQuery(patterns=(asked.name,), ignored=OWN_LOCK_PATTERNS, states=states)


def _running_jobs_like(asked: AuditedAction) -> list[LockStatus]:
    return list(asked.provider.statuses(_jobs_like(asked, LockState.RUNNING)))


def _names_to_pause(asked: AuditedAction) -> list[str]:
    """Return the matching names of locks, and of known jobs that have none yet."""
    wanted = _jobs_like(asked)
    known = filter(wanted.accepts_name, jobs_by_name(asked.provider))
    names = {status.name for status in asked.provider.statuses(wanted)}
    return sorted(names.union(known))


def _is_of_another(status: LockStatus, operator: str) -> bool:
    """Return whether somebody else has paused the job, and without an end."""
    is_own = status.pause is not None and status.pause.operator == operator
    return status.is_endless and not is_own


def _outcome(answer: Answer) -> ActionOutcome:
    return ActionOutcome(answer.detail, _exit_status(answer), answer.status)


def _exit_status(answer: Answer | None) -> base.ExitStatus:
    """Return the exit status for an action; ``None`` if the store failed."""
    if answer is None:
        return base.ExitStatus.FAILED
    if answer:
        return base.ExitStatus.DONE
    if answer.result is not ActionResult.REFUSED:
        return base.ExitStatus.FAILED
    if answer.obstacle:
        return base.ExitStatus.NOT_HELD
    return status_of_refusal(answer.status)


def _worst(problems: set[base.ExitStatus]) -> base.ExitStatus:
    """Return the exit status for several locks: that of what needs most attention."""
    return min(problems, default=base.ExitStatus.DONE)
