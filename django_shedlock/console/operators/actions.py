"""What operators can do to locks, and the table of all their actions."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import ClassVar

from django.utils.functional import Promise
from django.utils.translation import gettext, gettext_lazy, pgettext_lazy

from django_shedlock import conf, signals
from django_shedlock.clocks import Backoff, local_text
from django_shedlock.console.models import ActionKind
from django_shedlock.console.monitoring.findings import Finding
from django_shedlock.console.monitoring.kinds import Kind
from django_shedlock.console.monitoring.search import Search
from django_shedlock.console.operators.acting import Action, Answer, Option
from django_shedlock.console.operators.audit import AuditedAction
from django_shedlock.console.operators.requests import RequestRun, WithdrawRequest
from django_shedlock.exceptions import LockProviderError
from django_shedlock.execution.operators import (
    details,
    end_of_pause,
    extended_text,
    force_extend,
    force_release,
    released_text,
)
from django_shedlock.history.recording import record_forced_release, write_abandoned
from django_shedlock.locks.configuration import ZERO, LockConfiguration
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.own import is_own_lock
from django_shedlock.locks.pauses import FOREVER, Pause
from django_shedlock.locks.status import LockState, LockStatus
from django_shedlock.providers.base import LockProvider
from django_shedlock.schedules.state import Start, Trigger

RUNNING, PAUSED, EXPIRED = LockState.RUNNING, LockState.PAUSED, LockState.EXPIRED
KEPT, FREE = LockState.HELD_AT_LEAST, LockState.FREE


class ForcedAction(Action):
    """A change of a lease, which the receivers of its signal log and record."""

    def record(self, answer: Answer, detail: str, took: timedelta) -> bool:
        # Once it is done, its receiver has written the row.
        return bool(answer) or super().record(answer, detail, took)


@dataclass(frozen=True)
class ReleaseLock(ForcedAction):
    """Releases a lock; with ``spare_running`` only one that no job may run under."""

    spare_running: bool = False

    kind = ActionKind.RELEASE
    permission = "django_shedlock.release_lockrecord"
    # Of an expired lock nobody knows whether its job still runs.
    states: ClassVar[frozenset[LockState]] = frozenset({RUNNING, KEPT, EXPIRED})
    cures: ClassVar[frozenset[Kind]] = frozenset({Kind.EXPIRED, Kind.LONG})
    question: ClassVar[Promise] = gettext_lazy(
        "Another worker can acquire a released lock at once. A job that still runs "
        "under it is not stopped: make sure that it is dead, or it may run twice."
    )
    refused: ClassVar[Promise] = gettext_lazy("Lock %(name)s is not released: %(why)s.")
    unknown: ClassVar[Promise] = gettext_lazy(
        "Nobody knows whether lock %(name)s is released"
    )
    is_dangerous = True
    lets_job_start = True

    def perform(self, asked: AuditedAction, before: LockStatus | None) -> bool:
        if before is None or (self.spare_running and before.state is not KEPT):
            return False
        return force_release(asked, before)

    def done(self, answer: Answer) -> str:
        return released_text(_known(answer.before))


@dataclass(frozen=True)
class ExtendLease(ForcedAction):
    """Extends the lease of a lock from now, and never shortens it."""

    lock_at_most_for: timedelta

    kind = ActionKind.EXTEND
    permission = "shedlock_console.extend_lockrecord"
    states: ClassVar[frozenset[LockState]] = frozenset({RUNNING, KEPT})
    cures: ClassVar[frozenset[Kind]] = frozenset({Kind.LONG})
    question: ClassVar[Promise] = gettext_lazy(
        "An extended lock stays held for longer, even if its worker is dead. A worker "
        "learns of its longer lease when it asks the next time."
    )
    refused: ClassVar[Promise] = gettext_lazy("Lock %(name)s is not extended: %(why)s.")
    unknown: ClassVar[Promise] = gettext_lazy(
        "Nobody knows whether lock %(name)s is extended"
    )
    options: ClassVar[Sequence[Option]] = (
        Option(
            "lock_at_most_for",
            gettext_lazy("Lease from now"),
            gettext_lazy("For example 30m or 1h30m. It never becomes shorter."),
            initial="30m",
        ),
    )

    def perform(self, asked: AuditedAction, before: LockStatus | None) -> bool:
        return before is not None and force_extend(asked, self.lock_at_most_for, before)

    def done(self, answer: Answer) -> str:
        return extended_text(_known(answer.before), self.lock_at_most_for)


class ResumeJob(Action):
    """Ends a pause."""

    kind = ActionKind.RESUME
    permission = "shedlock_console.pause_lockrecord"
    states: ClassVar[frozenset[LockState]] = frozenset({PAUSED})
    cures: ClassVar[frozenset[Kind]] = frozenset({Kind.PAUSED})
    question: ClassVar[Promise] = gettext_lazy(
        "The next start of a resumed job runs it."
    )
    refused: ClassVar[Promise] = gettext_lazy("Lock %(name)s is not resumed: %(why)s.")
    unknown: ClassVar[Promise] = gettext_lazy(
        "Nobody knows whether lock %(name)s is resumed"
    )
    lets_job_start = True

    @classmethod
    def notes(cls, provider: LockProvider) -> Sequence[str]:
        return [gettext("Ticks that came before or during the pause are not run.")]

    def perform(self, asked: AuditedAction, before: LockStatus | None) -> bool:
        return bool(before and before.pause) and _replaced(asked, _known(before), ZERO)

    def is_shown(self, before: LockStatus | None, after: LockStatus) -> bool:
        return after.state is FREE

    def done(self, answer: Answer) -> str:
        """Say whose pause has ended, and when the job runs next."""
        text = gettext(
            "The job of lock %(name)s is resumed. %(operator)s had paused it, because: "
            "%(reason)s."
        )
        facts = details(_known(answer.before))
        told = text % {"name": repr(answer.asked.name), **facts}
        if (after := answer.status) is None or not after.schedule:
            return told
        text = gettext(
            "Ticks that came before or during the pause are not run; the next one is "
            "at %(tick)s."
        )
        tick = after.next_tick
        return f"{told} {text % {'tick': tick and local_text(tick)}}"

    def announce(self, answer: Answer) -> None:
        signals.lock_resumed.send_robust(
            type(answer.asked.provider),
            action=answer.asked,
            before=answer.before,
            answer=answer,
        )


@dataclass(frozen=True)
class PauseJob(Action):
    """
    Holds a lock by an acquisition of the operator's own, so its job does not run.

    A job that runs is not stopped; with ``wait``, wait so long for its end. A pause
    with another reason or end is replaced; with ``spare_longer`` only one that would
    end earlier. A lock without a record gets one.
    """

    lasting: timedelta = FOREVER
    wait: timedelta = ZERO
    spare_longer: bool = False

    kind = ActionKind.PAUSE
    permission = "shedlock_console.pause_lockrecord"
    states: ClassVar[frozenset[LockState]] = frozenset(LockState) - {RUNNING}
    question: ClassVar[Promise] = gettext_lazy(
        "A paused job is skipped on all hosts, and is not overdue, until the pause "
        "ends or somebody resumes the job. Each skip tells who paused it and why."
    )
    refused: ClassVar[Promise] = gettext_lazy(
        "The job of lock %(name)s is not paused: %(why)s."
    )
    refused_again: ClassVar[Promise] = gettext_lazy(
        "The job of lock %(name)s is paused already: %(why)s."
    )
    unknown: ClassVar[Promise] = gettext_lazy(
        "Nobody knows whether lock %(name)s is paused"
    )
    options: ClassVar[Sequence[Option]] = (
        Option(
            "lasting",
            pgettext_lazy("shedlock", "For"),
            gettext_lazy(
                "For example 2h. If it is empty, the pause has no end of its own."
            ),
            FOREVER,
        ),
    )

    @classmethod
    def obstacles(
        cls, provider: LockProvider, names: Sequence[str]
    ) -> Mapping[str, str]:
        text = gettext("it is a lock of the package itself, and has no job")
        return dict.fromkeys(filter(is_own_lock, names), text)

    def prepared(
        self, asked: AuditedAction, before: LockStatus | None
    ) -> AuditedAction:
        identity = Pause(asked.operator, asked.reason).identity()
        return replace(asked, locked_by=identity, lasting=_finite(self.lasting))

    def perform(self, asked: AuditedAction, before: LockStatus | None) -> bool:
        start = Start(Trigger.OPERATOR)
        configuration = LockConfiguration(asked.name, self.lasting, start=start)
        lock = Lock(asked.provider, configuration, opens_run=False)
        lock.locked_by = str(asked.locked_by)
        if before and before.pause:
            if self._is_spared(lock.locked_by, before):
                return False
            return _replaced(asked, before, self.lasting, locked_by=lock.locked_by)
        backoff = Backoff(self.wait)
        while asked.provider.acquire(lock) is not None:
            if backoff.is_over:
                return False
            time.sleep(backoff.pause())
        if lock.abandoned is not None and conf.HISTORY.value:
            write_abandoned(asked.provider, asked.name, lock.abandoned)
        return True

    def _is_spared(self, locked_by: str, before: LockStatus) -> bool:
        wanted, former = Pause.parse(locked_by), before.pause
        if self.spare_longer:
            return before.is_endless or before.remaining >= self.lasting
        is_endless = before.is_endless and self.lasting == FOREVER
        return bool(is_endless and wanted and former and wanted.reason == former.reason)

    def is_shown(self, before: LockStatus | None, after: LockStatus) -> bool:
        return after.state is PAUSED

    @classmethod
    def not_done(cls, name: str, status: LockStatus | None, why: str) -> str:
        is_paused = status is not None and status.state is PAUSED
        text = cls.refused_again if is_paused else cls.refused
        return str(text) % {"name": repr(name), "why": why}

    def done(self, answer: Answer) -> str:
        """Say how long the job is paused, and what the pause replaces."""
        after, before = answer.status, answer.before
        end = end_of_pause(after) if after else ""
        facts = {"name": repr(answer.asked.name), "end": end}
        told = [gettext("The job of lock %(name)s is paused %(end)s.") % facts]
        if before and before.pause:
            text = gettext(
                "This replaces the pause by %(operator)s, because: %(reason)s."
            )
            told.append(text % details(before))
        if run := answer.unstopped_run:
            text = gettext("Its last run, as %(holder)s, may still go on.")
            told.append(text % {"holder": run})
        return " ".join(told)

    def announce(self, answer: Answer) -> None:
        signals.lock_paused.send_robust(
            type(answer.asked.provider),
            action=answer.asked,
            before=answer.before,
            answer=answer,
            lasting=self.lasting,
        )


@dataclass(frozen=True)
class AcknowledgeFindings(Action):
    """
    Silences the findings with the facts of ``asked``; without any, all of the lock.

    They are silent for as long as ``lasting``. With ``process_is_gone`` the operator
    says that the process of their run is gone: nothing else says so.
    """

    lasting: timedelta = FOREVER
    process_is_gone: bool = False

    kind = ActionKind.ACKNOWLEDGE
    permission = "shedlock_console.acknowledge_lockrecord"
    cures: ClassVar[frozenset[Kind]] = frozenset(
        {
            *(Kind.OVERDUE, Kind.FAILED, Kind.TIMED_OUT, Kind.LOST, Kind.ABANDONED),
            Kind.PASSED_OVER,
        }
    )
    question: ClassVar[Promise] = gettext_lazy(
        "These findings are silent from now on. What happens next, such as another "
        "failure, is a finding again."
    )
    refused: ClassVar[Promise] = gettext_lazy(
        "Nothing to acknowledge in lock %(name)s: %(why)s."
    )
    unknown: ClassVar[Promise] = gettext_lazy(
        "Nobody knows whether findings of %(name)s are acknowledged"
    )
    options: ClassVar[Sequence[Option]] = (
        Option(
            "lasting",
            pgettext_lazy("shedlock", "For"),
            gettext_lazy(
                "For example 2h. If it is empty, they are silent until something new "
                "happens."
            ),
            FOREVER,
        ),
        Option(
            "process_is_gone",
            gettext_lazy("Its process is gone"),
            gettext_lazy(
                "Tick this only if you have looked. Then the advice for an overdue "
                "tick names the command that runs the job. The next tick starts it "
                "in any case."
            ),
            default=False,
        ),
    )

    @classmethod
    def is_offered(cls, status: LockStatus, findings: Sequence[Finding]) -> bool:
        return bool(findings)

    @classmethod
    def findings(
        cls, provider: LockProvider, names: Collection[str]
    ) -> Mapping[str, Sequence[Finding]]:
        return Search(acknowledged=True).of_locks(provider, names)

    @classmethod
    def obstacles(
        cls, provider: LockProvider, names: Sequence[str]
    ) -> Mapping[str, str]:
        without = set(names) - cls.findings(provider, names).keys()
        return dict.fromkeys(without, gettext("it has no findings"))

    @classmethod
    def options_for(cls, findings: Sequence[Finding]) -> Sequence[Option]:
        may_still_run = any(finding.kind.may_still_run for finding in findings)
        return cls.options if may_still_run else cls.options[:1]

    def obstacle(self, asked: AuditedAction) -> str:
        known = set(self._facts(asked))
        if asked.facts:
            # `check` may have been called with shorter limits.
            widest = Search(grace=ZERO, held_for=ZERO, acknowledged=True)
            found = widest.of_locks(asked.provider, [asked.name]).get(asked.name, ())
            known |= {finding.fact for finding in found}
        missing = [fact for fact in asked.facts if fact not in known]
        if known and missing:
            text = gettext("“%(fact)s” is no finding of it now")
            return text % {"fact": missing[0]}
        return "" if known else gettext("it has no findings")

    def prepared(
        self, asked: AuditedAction, before: LockStatus | None
    ) -> AuditedAction:
        return replace(
            super().prepared(asked, before),
            facts=asked.facts or self._facts(asked),
            lasting=_finite(self.lasting),
            process_is_gone=self.process_is_gone,
        )

    def _facts(self, asked: AuditedAction) -> list[str]:
        found = self.findings(asked.provider, [asked.name]).get(asked.name, ())
        return [finding.fact for finding in found]

    def perform(self, asked: AuditedAction, before: LockStatus | None) -> bool:
        return bool(asked.facts)

    def record(self, answer: Answer, detail: str, took: timedelta) -> bool:
        """Write the row, which alone silences the findings; raise if that fails."""
        is_written = super().record(answer, detail, took)
        if answer and not is_written:
            raise LockProviderError(
                f"Lock {answer.asked.name!r}: nothing is acknowledged, since the audit "
                "log of operators' actions can't be written."
            )
        return is_written

    def done(self, answer: Answer) -> str:
        text = gettext(
            "These findings of lock %(name)s are acknowledged: %(facts)s. What happens "
            "from now on is reported."
        )
        if self.process_is_gone:
            text += " " + gettext("Their process is said to be gone.")
        facts = ", ".join(answer.asked.facts)
        return text % {"name": repr(answer.asked.name), "facts": facts}


def _known(status: LockStatus | None) -> LockStatus:
    """Return the status of a lock that has a record."""
    if status is None:
        raise ValueError("The lock has no record.")
    return status


def _finite(lasting: timedelta) -> timedelta | None:
    return None if lasting == FOREVER else lasting


def _replaced(
    asked: AuditedAction,
    before: LockStatus,
    lasting: timedelta,
    *,
    locked_by: str | None = None,
) -> bool:
    """
    End a pause, or replace it by another; return whether that was done.

    A run that was open is accounted for with that, so it is written to the history.
    """
    if not asked.provider.replace(before, lasting, locked_by=locked_by):
        return False
    record_forced_release(action=asked, before=before)
    return True


ACTIONS: dict[ActionKind, type[Action]] = {
    action.kind: action
    for action in (
        *(ReleaseLock, ExtendLease, ResumeJob, PauseJob, AcknowledgeFindings),
        *(RequestRun, WithdrawRequest),
    )
}
"""All that operators can do, in the order of the admin's buttons."""
