"""Run a job because an operator says so: here and now, or as a request for a worker."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import Error
from django.utils.translation import gettext

from django_shedlock import conf
from django_shedlock.console.operators import Answer, OperatorAction, texts
from django_shedlock.console.operators.answers import status_if_known
from django_shedlock.console.operators.enqueueing import enqueue
from django_shedlock.console.operators.trail import Trail
from django_shedlock.durations import format_left, format_measured
from django_shedlock.exceptions import LockProviderError, described
from django_shedlock.jobs.named import NamedJob, Starter, named_jobs
from django_shedlock.locks.states import LockStatus, is_success
from django_shedlock.models.console import ActionKind, ActionResult, LockAction
from django_shedlock.providers.base import LockProvider
from django_shedlock.schedules.state import Start, Trigger

logger = logging.getLogger("django_shedlock")


@dataclass(frozen=True)
class CarriedOut:
    """A request that this process carried out, the answer, and what the job raised."""

    request: LockAction
    answer: Answer
    error: BaseException | None = None


def jobs_by_name(provider: LockProvider) -> Mapping[str, NamedJob]:
    """Return the jobs that are known here, by the full names of their locks."""
    found = defaultdict(list)
    for job in named_jobs(provider.alias):
        found[job.name].append(job)
    return {name: best_of(jobs) for name, jobs in found.items()}


def best_of(jobs: Sequence[NamedJob]) -> NamedJob:
    """Return the one to start of several jobs with one lock."""
    # An entry of CRONJOBS may give a schedule to a job that has none of its own.
    return max(jobs, key=lambda job: (job.start is not None, job.schedule is not None))


def run_now(action: OperatorAction, start: Starter) -> Answer:
    """Run the job in this process, with a row of the trail; pass on what it raises."""
    by = action.operator or "an operator"
    why = f"because: {action.reason!r}" if action.reason else "without a reason"
    logger.warning("Lock %r: %s wants its job to run now, %s.", action.name, by, why)
    row = Trail(action.provider).begin(
        ActionKind.RUN, action.name, operator=action.operator, reason=action.reason
    )
    return _run(action, row, start)


def request_run(action: OperatorAction, jobs: Mapping[str, NamedJob]) -> Answer:
    """
    Ask for a run by a worker of ``django.tasks``, or else by the next ``catch-up``.

    Refused if another holder has acquired the lock since, or for what obstacle() says.
    """
    status = action.status()
    if action.locked_by not in {None, status and status.locked_by}:
        return _refusal(action, status)
    requests = open_requests(action.provider, name=action.name)
    refusal = obstacle(action.name, action.provider, jobs, requests)
    if refusal is not None:
        return Answer(ActionResult.REFUSED, lambda: _refused(action.name, refusal))
    row = Trail(action.provider).begin(
        ActionKind.RUN,
        action.name,
        operator=action.operator,
        reason=action.reason,
        result=ActionResult.REQUESTED,
    )
    if row is None:
        raise LockProviderError(
            f"Lock {action.name!r}: the request to run its job can't be written."
        )
    logger.warning(
        "Lock %r: %s asks for a run of its job, because: %r.",
        action.name,
        action.operator or "an operator",
        action.reason,
    )
    is_enqueued = enqueue(action.provider.alias, row)
    return Answer(
        ActionResult.REQUESTED, lambda: _requested(action.name, is_enqueued=is_enqueued)
    )


def open_requests(provider: LockProvider, **columns: Any) -> Mapping[str, LockAction]:
    """Return the open requests, by the full names of their locks."""
    return {request.name: request for request in Trail(provider).requests(**columns)}


def obstacle(
    name: str,
    provider: LockProvider,
    jobs: Mapping[str, NamedJob],
    requests: Mapping[str, LockAction],
) -> str | None:
    """Return why no run of this lock's job can be requested; ``None`` if it can."""
    if provider.history_database is None:
        return gettext("its provider has no database for the request")
    if name not in jobs:
        return gettext("no such job is known in this process")
    if jobs[name].start is None:
        return gettext("its job needs arguments, so it can't be started by name")
    if name not in requests:
        return None
    text = gettext("%(operator)s asked for a run %(age)s ago, which is still open")
    age = format_left(Trail(provider).age(requests[name].began))
    return text % {"operator": requests[name].operator, "age": age}


def carry_out_requests(provider: LockProvider) -> Iterator[CarriedOut]:
    """
    Carry out the open requests for jobs that are known here, one after the other.

    Notes that a catch-up came by. Of all processes that try, one carries out a request.
    With ``SHEDLOCK_ENABLED = False`` nothing is done.
    """
    if not conf.ENABLED.value:
        return
    trail = Trail(provider)
    trail.note_catch_up()
    try:
        requests = trail.requests()
    except Error as error:  # what is overdue must run all the same
        text = "No request of an operator is carried out: %s"
        logger.error(text, str(error).strip())
        return
    jobs = jobs_by_name(provider) if requests else {}
    for request in requests:
        carried_out = _claimed(provider, request, jobs)
        if carried_out is not None:
            yield carried_out


def carry_out(
    provider: LockProvider, row: int, jobs: Mapping[str, NamedJob]
) -> CarriedOut | None:
    """
    Carry out this request, unless another process has, or its job is not known.

    With ``SHEDLOCK_ENABLED = False`` nothing is done.
    """
    if not conf.ENABLED.value:
        return None
    for request in Trail(provider).requests(pk=row):
        return _claimed(provider, request, jobs)
    return None


def _claimed(
    provider: LockProvider, request: LockAction, jobs: Mapping[str, NamedJob]
) -> CarriedOut | None:
    job = jobs.get(request.name)
    if job is None or job.start is None:
        logger.info("Lock %r: its job is requested, not known here.", request.name)
    elif Trail(provider).claim(request.pk, request.name):
        return _carry_out(provider, request, job.start)
    return None


def _carry_out(
    provider: LockProvider, request: LockAction, start: Starter
) -> CarriedOut:
    by = {"operator": request.operator, "reason": request.reason}
    action = OperatorAction(provider, request.name, **by)
    began = time.monotonic()
    try:
        return CarriedOut(request, _run(action, request.pk, start))
    except (Exception, SystemExit) as error:  # the other requests must be carried out
        if is_success(error):
            return CarriedOut(request, _ran(action, began))
        logger.exception("The job of lock %r failed.", request.name)
        return CarriedOut(request, _failed(action, error), error)


def _run(action: OperatorAction, row: int | None, start: Starter) -> Answer:
    began = time.monotonic()
    by_operator = Start(
        Trigger.OPERATOR, operator=action.operator, reason=action.reason
    )
    try:
        was_executed = start(by_operator)
    except BaseException as error:
        told = _ran(action, began) if is_success(error) else _failed(action, error)
        # If the store failed, somebody else's request must still be carried out.
        _end(action, row, told, has_run=not isinstance(error, LockProviderError))
        raise
    answer = _ran(action, began) if was_executed else _not_started(action)
    _end(action, row, answer, has_run=was_executed)
    return answer


def _end(
    action: OperatorAction, row: int | None, answer: Answer, *, has_run: bool
) -> None:
    trail = Trail(action.provider)
    trail.end(row, action.name, answer.result, answer.detail)
    if answer.result is ActionResult.REFUSED:
        logger.warning("%s", answer.detail)
    if has_run:
        by = action.operator or "another operator"
        trail.close_requests(action.name, f"Its job was run meanwhile, by {by}.")


def _ran(action: OperatorAction, began: float) -> Answer:
    took = format_measured(timedelta(seconds=time.monotonic() - began))

    def tell() -> str:
        text = gettext("The job of lock %(name)s has run, for %(duration)s.")
        return text % {"name": repr(action.name), "duration": took}

    return Answer(ActionResult.DONE, tell)


def _not_started(action: OperatorAction) -> Answer:
    status = status_if_known(action.provider, action.name)
    if status is None or status.state.is_held:
        return _refusal(action, status)
    text = gettext("%(holder)s held it, and has released it since")
    why = text % {"holder": status.locked_by}
    return Answer(ActionResult.REFUSED, lambda: _refused(action.name, why), status)


def _refusal(action: OperatorAction, status: LockStatus | None) -> Answer:
    seen = action.locked_by
    return Answer(
        ActionResult.REFUSED,
        lambda: texts.refused(ActionKind.RUN, action.name, seen, status),
        status,
    )


def _failed(action: OperatorAction, error: BaseException) -> Answer:
    def tell() -> str:
        text = gettext("The job of lock %(name)s failed with %(error)s")
        return text % {"name": repr(action.name), "error": described(error)}

    return Answer(ActionResult.FAILED, tell)


def _refused(name: str, why: str) -> str:
    text = str(texts.REFUSED[ActionKind.RUN])
    return text % {"name": repr(name), "why": why}


def _requested(name: str, *, is_enqueued: bool) -> str:
    if is_enqueued:
        text = gettext("A worker of django.tasks will run the job of lock %(name)s.")
    else:
        text = gettext(
            "The next `shedlock catch-up` will run the job of lock %(name)s."
        )
    return text % {"name": repr(name)}
