"""The operators' requests to run a job, which a catch-up or a beat carries out."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from django.utils.functional import Promise
from django.utils.translation import gettext, gettext_lazy

from django_shedlock.clocks import aware
from django_shedlock.console.links import has_catch_up
from django_shedlock.console.models import ActionKind, ActionResult
from django_shedlock.console.monitoring.findings import Finding
from django_shedlock.console.monitoring.kinds import Kind, fact_of
from django_shedlock.console.monitoring.search import Search
from django_shedlock.console.operators.acting import Action, Answer
from django_shedlock.console.operators.audit import AuditedAction
from django_shedlock.durations import format_duration, format_left
from django_shedlock.execution.skips import operator_command
from django_shedlock.history.texts import fitting
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.lock import process_of
from django_shedlock.locks.status import LockState, LockStatus
from django_shedlock.models import LockRecord
from django_shedlock.providers.base import LockProvider, LockQuery
from django_shedlock.registry.discovery import offered_job_sources
from django_shedlock.registry.jobs import registered_by_name
from django_shedlock.registry.requests import (
    REQUEST_LIFETIME,
    age_of_request,
    asked_at,
    has_request,
    is_carried_out,
    last_catch_up,
)
from django_shedlock.signals import logger


def request_of(status: LockStatus | None) -> str:
    """Return who asked for a run of the lock's job, and how long ago, if anyone did."""
    if status is None or not has_request(status):
        return ""
    text = gettext("%(operator)s asked for a run %(age)s ago, which is still open")
    age = format_left(age_of_request(status))
    return text % {"operator": status.job.asked_by, "age": age}


def _suspected_run(findings: Sequence[Finding]) -> str:
    """Return the run that may still go on, by these findings; empty if none may."""
    runs = (finding.suspected_run for finding in findings)
    return next(filter(None, runs), "")


def _suspicions(provider: LockProvider, names: Sequence[str]) -> dict[str, str]:
    """Return why a run of these locks' jobs might be beside another one."""
    text = gettext(
        "its last run may still go on in process %(process)s; if that process is gone, "
        "say so when you acknowledge the finding"
    )
    # An acknowledged finding does not yet say that the process is gone.
    findings = Search(acknowledged=True).of_locks(provider, names)
    return {
        name: text % {"process": process_of(run)}
        for name, known in findings.items()
        if (run := _suspected_run(known))
    }


class RequestRun(Action):
    """Asks the next catch-up or beat to run the lock's job."""

    kind = ActionKind.RUN
    permission = "shedlock_console.run_lockrecord"
    states: ClassVar[frozenset[LockState]] = frozenset(
        {LockState.FREE, LockState.HELD_AT_LEAST}
    )
    cures: ClassVar[frozenset[Kind]] = frozenset(
        {Kind.OVERDUE, Kind.FAILED, Kind.TIMED_OUT}
    )
    question: ClassVar[Promise] = gettext_lazy(
        "The job runs under its lock, even if its tick has been run, or if "
        "lock_at_least_for keeps the lock."
    )
    refused: ClassVar[Promise] = gettext_lazy(
        "The job of lock %(name)s was not started: %(why)s."
    )
    unknown: ClassVar[Promise] = gettext_lazy(
        "Nobody knows whether a run of %(name)s is requested"
    )
    success = ActionResult.REQUESTED

    @classmethod
    def is_offered(cls, status: LockStatus, findings: Sequence[Finding]) -> bool:
        """Return whether a run may be asked for: not while another may still go on."""
        return super().is_offered(status, findings) and not _suspected_run(findings)

    @classmethod
    def remark(cls, status: LockStatus) -> str:
        return gettext("a request is waiting") if has_request(status) else ""

    @classmethod
    def obstacles(
        cls, provider: LockProvider, names: Sequence[str]
    ) -> Mapping[str, str]:
        """
        Return why nobody can be asked to run the jobs of these locks.

        A lock with a record may have a job that this process does not know: a web
        process does not look for jobs.
        """
        if not provider.is_shared:
            text = gettext("its provider keeps its locks in the memory of each process")
            return dict.fromkeys(names, text)
        if not has_catch_up():
            text = gettext(
                "INSTALLED_APPS lacks django_shedlock.beat, which would run it"
            )
            return dict.fromkeys(names, text)
        suspicions = _suspicions(provider, names)
        if not is_carried_out(provider):
            text = gettext(
                "no beat and no catch-up was seen within %(lifetime)s, but "
                "`%(command)s` runs it"
            )
            lifetime = format_duration(REQUEST_LIFETIME)
            return {
                name: text
                % {
                    "lifetime": lifetime,
                    "command": operator_command(provider.alias, "trigger", name),
                }
                for name in names
            } | suspicions
        jobs = registered_by_name(provider.alias)
        locks = {status.name: status for status in provider.statuses(LockQuery(names))}
        # An app that offers jobs, such as those of CRONJOBS, may give a job its
        # arguments.
        may_have_arguments = bool(offered_job_sources())
        found = {}
        for name in names:
            if name not in jobs and name not in locks:
                found[name] = gettext("no such job is known in this process")
            elif name in jobs and jobs[name].needs_arguments and not may_have_arguments:
                found[name] = gettext(
                    "its job needs arguments, so it can't be started by name"
                )
            elif is_asked := request_of(locks.get(name)):
                found[name] = is_asked
        return found | suspicions

    @classmethod
    def command_instead(cls, provider: LockProvider, name: str) -> str:
        is_asked = has_catch_up() and is_carried_out(provider)
        return "" if is_asked else operator_command(provider.alias, "trigger", name)

    @classmethod
    def notes(cls, provider: LockProvider) -> Sequence[str]:
        """Return who will carry out a request, and when a catch-up was last seen."""
        runs = gettext(
            "The next `%(command)s` will run it, on any host where the job is known. A "
            "request that nobody carries out expires after %(lifetime)s."
        ) % {
            "command": operator_command(provider.alias, "catch-up"),
            "lifetime": format_duration(REQUEST_LIFETIME),
        }
        seen = last_catch_up(provider)
        if seen is None:
            return [runs, gettext("No catch-up was ever seen.")]
        age = {"age": format_left(max(ZERO, aware(provider.now()) - aware(seen)))}
        return [runs, gettext("A catch-up was last seen %(age)s ago.") % age]

    def perform(self, asked: AuditedAction, before: LockStatus | None) -> bool:
        fits = fitting(LockRecord, asked_by=asked.operator, asked_why=asked.reason)
        asked.provider.request_run(asked.name, fits["asked_by"], fits["asked_why"])
        text = "Lock %r: %s asks for a run of its job, because: %r."
        logger.warning(text, asked.name, asked.operator or "an operator", asked.reason)
        return True

    def is_shown(self, before: LockStatus | None, after: LockStatus) -> bool:
        is_new = before is None or before.job.asked_at != after.job.asked_at
        return is_new and has_request(after)

    def done(self, answer: Answer) -> str:
        """Say who will run the job."""
        text = gettext("The next `%(command)s` will run the job of lock %(name)s.")
        run_by = operator_command(answer.asked.provider.alias, "catch-up")
        return text % {"command": run_by, "name": repr(answer.asked.name)}


class WithdrawRequest(Action):
    """Closes the open request for the lock's job."""

    kind = ActionKind.WITHDRAW
    permission = "shedlock_console.run_lockrecord"
    cures: ClassVar[frozenset[Kind]] = frozenset({Kind.REQUEST})
    question: ClassVar[Promise] = gettext_lazy(
        "No catch-up and no beat will carry out the request."
    )
    refused: ClassVar[Promise] = gettext_lazy(
        "No request for lock %(name)s is withdrawn: %(why)s."
    )
    unknown: ClassVar[Promise] = gettext_lazy(
        "Nobody knows whether a request for %(name)s is withdrawn"
    )

    @classmethod
    def is_offered(cls, status: LockStatus, findings: Sequence[Finding]) -> bool:
        return status.job.asked_at is not None

    @classmethod
    def helps(cls, status: LockStatus, findings: Sequence[Finding]) -> bool:
        return has_request(status) or super().helps(status, findings)

    @classmethod
    def obstacles(
        cls, provider: LockProvider, names: Sequence[str]
    ) -> Mapping[str, str]:
        found = provider.statuses(LockQuery(names=names))
        asked = {status.name for status in found if status.job.asked_at is not None}
        without = set(names) - asked
        return dict.fromkeys(without, gettext("nobody asks for a run of its job"))

    @classmethod
    def facts(cls, status: LockStatus, findings: Sequence[Finding]) -> list[str]:
        """Return the fact of the request that the operator sees."""
        if status.job.asked_at is None:
            return []
        return [fact_of(Kind.REQUEST, asked_at(status).isoformat())]

    def obstacle(self, asked: AuditedAction) -> str:
        found, status = super().obstacle(asked), asked.look()
        if found or status is None or list(asked.facts) in ([], self.facts(status, ())):
            return found
        return gettext("there is another request since you looked")

    def prepared(
        self, asked: AuditedAction, before: LockStatus | None
    ) -> AuditedAction:
        """Return it without the fact, which it does not acknowledge."""
        return replace(super().prepared(asked, before), facts=())

    def perform(self, asked: AuditedAction, before: LockStatus | None) -> bool:
        if before is None or before.job.asked_at is None:
            return False
        if asked.provider.withdraw_request(asked.name, asked_at(before)):
            return True
        # Sent again after a lost reply, our own first try may have done it. A start for
        # the request would be another acquisition.
        after = asked.look()
        return after is not None and (
            after.job.asked_at is None and after.locked_by == before.locked_by
        )

    def is_shown(self, before: LockStatus | None, after: LockStatus) -> bool:
        return after.job.asked_at is None

    def done(self, answer: Answer) -> str:
        text = gettext("The request to run the job of lock %(name)s is withdrawn.")
        return text % {"name": repr(answer.asked.name)}
