"""Runs that operators ask for: here and now, or by the next catch-up or beat."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from django.utils.translation import gettext, gettext_lazy

from django_shedlock import conf
from django_shedlock.clocks import aware
from django_shedlock.console.links import command
from django_shedlock.console.operators import performing
from django_shedlock.console.operators.acting import Answer
from django_shedlock.console.operators.performing import Look
from django_shedlock.console.operators.trail import OperatorAction, write_action
from django_shedlock.durations import format_duration, format_left, format_measured
from django_shedlock.exceptions import LockProviderError, described
from django_shedlock.execution.cancellation import is_ending
from django_shedlock.history.texts import fitting
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.status import LockState, LockStatus, is_success
from django_shedlock.models.console import ActionKind, ActionResult
from django_shedlock.providers.base import LockProvider, LockQuery
from django_shedlock.registry.catch_up import last_catch_up
from django_shedlock.registry.discovery import named_jobs
from django_shedlock.registry.jobs import Job
from django_shedlock.schedules.state import Start, Trigger
from django_shedlock.signals import logger

REQUEST_LIFETIME = timedelta(hours=1)
"""A request that nobody has carried out for so long is not carried out any more."""
NOT_STARTED = gettext_lazy("The job of lock %(name)s was not started: %(why)s.")
MAY_START = frozenset({LockState.FREE, LockState.HELD_AT_LEAST, LockState.EXPIRED})
"""The states of a lock in which an operator can run its job."""


def jobs_by_name(provider: LockProvider) -> Mapping[str, Job]:
    """Return the jobs that are known here, by the full names of their locks."""
    # An entry of CRONJOBS may give a schedule to a job that has none of its own.
    jobs = sorted(
        named_jobs(provider.alias),
        key=lambda job: (not job.needs_arguments, job.schedule is not None),
    )
    return {job.full_name: job for job in jobs}


# Note [A request is on the record]
# An operator's request is part of the lock's record. Whoever starts the job for it
# acquires the lock by an UPDATE that matches only while that request is there, and
# that clears it. So of all hosts one runs the job, once. While the lock is held the
# request waits, until it expires.


def asked_at(status: LockStatus) -> datetime:
    """Return when the lock's request was made; it must have one."""
    if status.job.asked_at is None:
        raise ValueError(f"Nobody asks for a run of the job of lock {status.name!r}.")
    return aware(status.job.asked_at)


def age_of_request(status: LockStatus) -> timedelta:
    """Return for how long the lock's request has waited, by the store's clock."""
    return max(ZERO, aware(status.clock) - asked_at(status))


def has_request(status: LockStatus | None) -> bool:
    """Return whether an operator asks for a run of the lock's job, and not too long."""
    if status is None or status.job.asked_at is None:
        return False
    return age_of_request(status) < REQUEST_LIFETIME


def request_of(status: LockStatus | None) -> str:
    """Return who asked for a run of the lock's job, and how long ago, if anyone did."""
    if status is None or not has_request(status):
        return ""
    text = gettext("%(operator)s asked for a run %(age)s ago, which is still open")
    age = format_left(age_of_request(status))
    return text % {"operator": status.job.asked_by, "age": age}


def find(
    provider: LockProvider, names: Collection[str] | None = None
) -> list[LockStatus]:
    """Return the locks with a request, open or expired; the oldest request first."""
    found = provider.statuses(LockQuery(names=names, requested=True))
    asked = [status for status in found if status.job.asked_at is not None]
    return sorted(asked, key=asked_at)


def open_requests(
    provider: LockProvider, names: Collection[str] | None = None
) -> list[LockStatus]:
    """Return the locks with an open request, the oldest first; close expired ones."""
    requests = find(provider, names)
    for status in requests:
        if not has_request(status):
            _close_expired(provider, status)
    return list(filter(has_request, requests))


def _close_expired(provider: LockProvider, status: LockStatus) -> None:
    if provider.withdraw_request(status.name, asked_at(status)):
        logger.warning(
            "Lock %r: %s asked for a run of its job. The request has expired: nobody "
            "carried it out within %s.",
            status.name,
            status.job.asked_by or "an operator",
            format_duration(REQUEST_LIFETIME),
        )


def request(asked: OperatorAction, before: LockStatus | None) -> bool:
    """Ask the next catch-up or beat to run the lock's job."""
    by = fitting(operator=asked.operator, reason=asked.reason)
    asked.provider.request_run(asked.name, by["operator"], by["reason"])
    text = "Lock %r: %s asks for a run of its job, because: %r."
    logger.warning(text, asked.name, asked.operator or "an operator", asked.reason)
    return True


def withdraw(asked: OperatorAction, before: LockStatus | None) -> bool:
    """Close the open request for this lock's job."""
    if before is None or not has_request(before):
        return False
    if asked.provider.withdraw_request(asked.name, asked_at(before)):
        return True
    # Sent again after a lost reply, our own first try may have done it. A start for the
    # request would be another acquisition.
    after = asked.look()
    return after is not None and (
        after.job.asked_at is None and after.locked_by == before.locked_by
    )


def requested(asked: OperatorAction, before: LockStatus | None, look: Look) -> str:
    """Say who will run the job."""
    text = gettext("The next `%(command)s` will run the job of lock %(name)s.")
    run_by = command(asked.provider, "catch-up")
    return text % {"command": run_by, "name": repr(asked.name)}


def is_requested(before: LockStatus | None, after: LockStatus) -> bool:
    """Return whether the lock, read after a lost reply, shows a new request."""
    return has_request(after) and (
        before is None or before.job.asked_at != after.job.asked_at
    )


def is_withdrawn(before: LockStatus | None, after: LockStatus) -> bool:
    """Return whether the lock, read after a lost reply, shows no request any more."""
    return after.job.asked_at is None


def unasked(provider: LockProvider, names: Sequence[str]) -> Mapping[str, str]:
    """Return why no request for these locks' jobs can be withdrawn."""
    found = provider.statuses(LockQuery(names=names))
    without = set(names) - {status.name for status in found if has_request(status)}
    return dict.fromkeys(without, gettext("nobody asks for a run of its job"))


def obstacles(provider: LockProvider, names: Sequence[str]) -> Mapping[str, str]:
    """Return why nobody can be asked to run the jobs of these locks."""
    if not provider.is_shared:
        text = gettext("its provider keeps its locks in the memory of each process")
        return dict.fromkeys(names, text)
    jobs = jobs_by_name(provider)
    locks = {status.name: status for status in provider.statuses(LockQuery(names))}
    found = {}
    for name in names:
        if name not in jobs:
            found[name] = gettext("no such job is known in this process")
        elif jobs[name].needs_arguments:
            found[name] = gettext(
                "its job needs arguments, so it can't be started by name"
            )
        elif is_asked := request_of(locks.get(name)):
            found[name] = is_asked
    return found


def notes(provider: LockProvider) -> Sequence[str]:
    """Return who will carry out a request, and when a catch-up was last seen."""
    runs = gettext(
        "The next `%(command)s` will run it, on any host where the job is known."
    ) % {"command": command(provider, "catch-up")}
    seen = last_catch_up(provider)
    if seen is None:
        return [runs, gettext("No catch-up was ever seen.")]
    age = {"age": format_left(max(ZERO, aware(provider.now()) - aware(seen)))}
    return [runs, gettext("A catch-up was last seen %(age)s ago.") % age]


def carry_out_requests(
    provider: LockProvider, names: Collection[str] | None = None
) -> Iterator[tuple[LockStatus, Answer]]:
    """
    Carry out the open requests for jobs that are known here, one after the other.

    With ``names`` only those for these locks. Return the lock as it was before, and
    what came of its run. Of all processes that try, one carries out a request. While
    the lock is held its request stays open. With ``SHEDLOCK_ENABLED = False`` nothing
    is done. Raises ``LockProviderError`` if the store can't be read.
    """
    if not conf.ENABLED.value:
        return
    requests = open_requests(provider, names)
    jobs = jobs_by_name(provider) if requests else {}
    for status in requests:
        job = jobs.get(status.name)
        if job is None or job.needs_arguments:
            logger.info("Lock %r: its job is requested, not known here.", status.name)
        elif status.state not in MAY_START:
            why = performing.condition(status)
            logger.info("Lock %r: its requested run waits, since %s.", status.name, why)
        elif (answer := _carry_out(provider, status, job)) is not None:
            yield status, answer


def _carry_out(provider: LockProvider, status: LockStatus, job: Job) -> Answer | None:
    by, why = status.job.asked_by or "", status.job.asked_why or ""
    asked = OperatorAction(provider, status.name, operator=by, reason=why)
    answer = _run(asked, job, request=asked_at(status))
    if answer is None:
        logger.info(
            "Lock %r: its requested run is not started here: another worker was "
            "faster, or somebody withdrew the request.",
            status.name,
        )
        return None
    raised = answer.error
    if raised is not None and not is_success(raised):
        # The other requests are carried out, unless this is an interruption.
        if is_ending(raised) or not isinstance(raised, Exception | SystemExit):
            raise raised
        logger.error("The job of lock %r failed.", status.name, exc_info=raised)
        if not isinstance(raised, LockProviderError):
            # What can't even begin would be tried until the request expires.
            provider.withdraw_request(status.name, asked_at(status))
    return answer


def run_now(asked: OperatorAction, job: Job) -> Answer:
    """
    Run the job in this process, with a row of the trail; pass on what it raises.

    If an operator asks for a run of it, this run is for that request, too.
    """
    by = asked.operator or "an operator"
    why = f"because: {asked.reason!r}" if asked.reason else "without a reason"
    logger.warning("Lock %r: %s wants its job to run now, %s.", asked.name, by, why)
    before = asked.provider.status(asked.name)
    request = None if before is None else before.job.asked_at
    began = time.monotonic()
    answer = _run(asked, job, request and aware(request))
    if answer is None:
        answer = _skipped(asked)
    took = timedelta(seconds=time.monotonic() - began)
    write_action(asked, ActionKind.RUN, answer.result, answer.detail, took=took)
    if answer.error is not None:
        raise answer.error
    return answer


def _run(
    asked: OperatorAction, job: Job, request: datetime | None = None
) -> Answer | None:
    """Return what came of the run; ``None`` if it was skipped."""
    began = time.monotonic()
    raised: BaseException | None = None
    facts = {"name": repr(asked.name)}
    by_operator = Start(
        Trigger.OPERATOR,
        operator=asked.operator,
        reason=asked.reason,
        request=request,
    )
    try:
        if not job.start(by_operator):
            return None
    except BaseException as error:
        raised = error
    if raised is not None and not is_success(raised):
        facts["error"] = described(raised)
        text = gettext_lazy("The job of lock %(name)s failed with %(error)s")
        return Answer(ActionResult.FAILED, lambda: str(text) % facts, error=raised)
    facts["duration"] = format_measured(timedelta(seconds=time.monotonic() - began))
    text = gettext_lazy("The job of lock %(name)s has run, for %(duration)s.")
    return Answer(ActionResult.DONE, lambda: str(text) % facts, error=raised)


def _skipped(asked: OperatorAction) -> Answer:
    status = asked.look()

    def tell() -> str:
        if status is None or status.state.is_held:
            return performing.refused(NOT_STARTED, asked.name, asked.locked_by, status)
        why = gettext("%(holder)s held it, and has released it since")
        why = why % {"holder": status.locked_by}
        return str(NOT_STARTED) % {"name": repr(asked.name), "why": why}

    answer = Answer(ActionResult.REFUSED, tell, lambda: status)
    logger.warning("%s", answer.detail)
    return answer
