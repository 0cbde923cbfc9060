"""What an operator's action is, and the one way in which each is carried out."""

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import ClassVar

from django.utils.functional import Promise, classproperty
from django.utils.translation import gettext, gettext_lazy, override

from django_shedlock.console.models import ActionKind, ActionResult
from django_shedlock.console.monitoring.findings import Finding
from django_shedlock.console.monitoring.kinds import Kind
from django_shedlock.console.operators.audit import AuditedAction, write_action
from django_shedlock.exceptions import LockProviderError, described
from django_shedlock.execution.operators import condition, reason_of_refusal
from django_shedlock.locks.status import LockState, LockStatus
from django_shedlock.providers.base import LockProvider
from django_shedlock.signals import logger


@dataclass
class Answer:
    """
    The result of an action: true if it was done.

    ``before`` is the lock before the action, ``meant`` the acquisition that it is for,
    and ``obstacle`` what keeps anybody from doing it. If ``result`` is ``STARTED``, the
    store's reply was lost and nobody knows.
    """

    action: "Action"
    asked: AuditedAction
    before: LockStatus | None
    meant: str | None
    result: ActionResult = ActionResult.REFUSED
    obstacle: str = ""

    def __bool__(self) -> bool:
        return self.result is ActionResult.DONE

    @cached_property
    def status(self) -> LockStatus | None:
        """The lock after the action; ``None`` if it has no record, or can't be read."""
        return self.asked.look()

    @property
    def unstopped_run(self) -> str:
        """The run that may still go on; empty if there is none."""
        status = self.status or self.before
        runs = [] if status is None else unstopped_runs(status)
        return runs[0] if runs else ""

    def tell(self) -> str:
        """Say in the active language what was done, or why nothing was."""
        if self.result is self.action.success:
            return self.action.done(self)
        if self.result is ActionResult.STARTED:
            return self.action.not_known(self.asked.name, self.status)
        why = self.obstacle or reason_of_refusal(self.meant, self.status)
        return self.action.not_done(self.asked.name, self.status, why)

    @property
    def detail(self) -> str:
        """The text of the audit log, in English."""
        with override("en"):
            return self.tell()


@dataclass(frozen=True)
class Option:
    """
    A field of the admin's form: a duration or, if the default is ``False``, a switch.

    ``name`` is that of the action's own field. A duration whose default is ``None``
    must be given, and a switch that ``is_required`` must be on.
    """

    name: str
    label: Promise
    hint: Promise | str = ""
    default: timedelta | bool | None = None
    initial: str = ""
    is_required: bool = False


PROCESS_IS_GONE = Option(
    "process_is_gone",
    gettext_lazy("I have looked: the process is gone"),
    gettext_lazy("You confirm this for each lock above whose job may still run."),
    default=False,
    is_required=True,
)
"""It belongs to no action: the admin carries out nothing without it."""


def unstopped_runs(status: LockStatus) -> list[str]:
    """Return the runs of the lock's job that may still go on, each only once."""
    job = status.job
    runs = [
        job.open_run,
        status.locked_by if status.state.may_still_run else None,
        job.last_run if job.may_still_run else None,
    ]
    return list(dict.fromkeys(filter(None, runs)))


class Action(ABC):
    """
    One thing that operators can do to a lock; the table ``ACTIONS`` has all of them.

    A class says who may do it to which locks. An instance has the options, and is
    carried out. The texts get the lock's name, and ``refused`` also ``why``.
    """

    do_not_call_in_templates: ClassVar[bool] = True

    kind: ClassVar[ActionKind]
    permission: ClassVar[str]
    states: ClassVar[frozenset[LockState]] = frozenset(LockState)
    """The states of the locks for which the admin offers it."""
    question: ClassVar[Promise]
    refused: ClassVar[Promise]
    unknown: ClassVar[Promise]
    options: ClassVar[Sequence[Option]] = ()
    success: ClassVar[ActionResult] = ActionResult.DONE
    """The result if it was done."""
    cures: ClassVar[frozenset[Kind]] = frozenset()
    """The kinds of findings that it helps with."""
    is_dangerous: ClassVar[bool] = False
    """Whether its buttons are red."""
    lets_job_start: ClassVar[bool] = False
    """Whether the job can start after it, even beside a run that still goes on."""

    @classproperty
    def name(cls) -> str:
        """Its name in the forms of the admin."""
        return f"{cls.kind}_selected"

    @classproperty
    def label(cls) -> str:
        """What its buttons say."""
        return str(cls.kind.label)

    @classmethod
    def is_offered(cls, status: LockStatus, findings: Sequence[Finding]) -> bool:
        """Return whether it makes sense for this lock with these findings."""
        return status.state in cls.states

    @classmethod
    def helps(cls, status: LockStatus, findings: Sequence[Finding]) -> bool:
        """Return whether it helps with one of the lock's findings."""
        kinds = {finding.kind for finding in findings}
        return cls.is_offered(status, findings) and not cls.cures.isdisjoint(kinds)

    @classmethod
    def remark(cls, status: LockStatus) -> str:
        """Return what its button says besides its label."""
        return ""

    @classmethod
    def obstacles(
        cls, provider: LockProvider, names: Sequence[str]
    ) -> Mapping[str, str]:
        """Return why it can't be done to some of these locks, whatever their states."""
        return {}

    @classmethod
    def command_instead(cls, provider: LockProvider, name: str) -> str:
        """Return the command to show instead of its button, where that is of no use."""
        return ""

    @classmethod
    def notes(cls, provider: LockProvider) -> Sequence[str]:
        """Return what else an operator should know before confirming."""
        return ()

    @classmethod
    def findings(
        cls, provider: LockProvider, names: Collection[str]
    ) -> Mapping[str, Sequence[Finding]]:
        """Return the findings of these locks that it is about."""
        return {}

    @classmethod
    def facts(cls, status: LockStatus, findings: Sequence[Finding]) -> list[str]:
        """Return the facts to which a confirmation binds it, besides the holder."""
        return [finding.fact for finding in findings]

    @classmethod
    def options_for(cls, findings: Sequence[Finding]) -> Sequence[Option]:
        """Return the options that make sense for locks with these findings."""
        return cls.options

    @classmethod
    def assurances(cls, statuses: Iterable[LockStatus]) -> Sequence[Option]:
        """Return the switches that must be on before it is done to these locks."""
        if not cls.lets_job_start:
            return ()
        changed = [status for status in statuses if status.state in cls.states]
        return (PROCESS_IS_GONE,) if any(map(unstopped_runs, changed)) else ()

    @abstractmethod
    def perform(self, asked: AuditedAction, before: LockStatus | None) -> bool:
        """Do it to the lock that was ``before``; return whether it was done."""

    @abstractmethod
    def done(self, answer: Answer) -> str:
        """Say what is true now that it was done."""

    def prepared(
        self, asked: AuditedAction, before: LockStatus | None
    ) -> AuditedAction:
        """Return ``asked`` with what the audit log keeps of it."""
        return replace(asked, locked_by=before.locked_by if before else None)

    def obstacle(self, asked: AuditedAction) -> str:
        """Return why it can't be done to this lock, if anything keeps it."""
        return self.obstacles(asked.provider, [asked.name]).get(asked.name, "")

    def is_shown(self, before: LockStatus | None, after: LockStatus) -> bool:
        """Return whether the lock, read after a lost reply, shows that it was done."""
        return False

    def record(self, answer: Answer, detail: str, took: timedelta) -> bool:
        """Write the row of the audit log; return whether it is there."""
        return write_action(answer.asked, self.kind, answer.result, detail, took=took)

    def announce(self, answer: Answer) -> None:  # noqa: B027 - most have no signal
        """Send the signal of the action, which was done."""

    @classmethod
    def not_done(cls, name: str, status: LockStatus | None, why: str) -> str:
        """Say why it was not done to the lock, which has this status now."""
        return str(cls.refused) % {"name": repr(name), "why": why}

    @classmethod
    def not_known(cls, name: str, after: LockStatus | None) -> str:
        """Say that the store's answer was lost, and in what state the lock is now."""
        outcome = str(cls.unknown) % {"name": repr(name)}
        text = gettext("%(outcome)s: the store did not answer, and can't be read.")
        if after is not None:
            text = gettext(
                "%(outcome)s: the store did not answer. A moment later: %(why)s. It "
                "may still happen, so look again."
            )
        return text % {"outcome": outcome, "why": condition(after)}

    def carry_out(self, asked: AuditedAction, seen: LockStatus | None = None) -> Answer:
        """
        Do it to the acquisition that is meant, with an audit row and a signal.

        ``seen`` is the lock, if it was read before. Raises ``LockProviderError`` if the
        store failed, or if the row of an acknowledgement can't be written.
        """
        before = seen or asked.provider.status(asked.name)
        answer = Answer(self, asked, before, asked.locked_by)
        is_meant = asked.locked_by in {None, before and before.locked_by}
        if is_meant:
            if obstacle := self.obstacle(asked):
                answer.obstacle = obstacle
                return answer
            answer.asked = self.prepared(asked, before)
        began = time.monotonic()
        try:
            if is_meant and self.perform(answer.asked, before):
                answer.result = self.success
        except BaseException as error:
            if not getattr(error, "is_uncertain", False):
                answer.result = ActionResult.FAILED
                detail = described(error)
                if not isinstance(error, LockProviderError):
                    with override("en"):  # interrupted, perhaps after it was done
                        detail = f"{detail}; {condition(answer.status)}"
                self.record(answer, detail, _since(began))
                raise
            answer.result = self._result_by(answer)
        self.record(answer, answer.detail, _since(began))
        if answer:
            self.announce(answer)
        elif answer.result is ActionResult.STARTED:
            by = asked.operator or "an operator"
            logger.warning("%s %s asked for it: %r", answer.detail, by, asked.reason)
        return answer

    def _result_by(self, answer: Answer) -> ActionResult:
        """Return the result after a lost reply, by what the lock shows."""
        after, ours = answer.status, answer.asked.locked_by or ""
        if after is None or after.locked_by != ours:
            return ActionResult.STARTED
        is_shown = self.is_shown(answer.before, after)
        return self.success if is_shown else ActionResult.STARTED


def _since(began: float) -> timedelta:
    return timedelta(seconds=time.monotonic() - began)
