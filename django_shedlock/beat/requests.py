"""Carry out the requests of operators to run a job now."""

from collections.abc import Collection, Iterator

from django.utils.translation import override

from django_shedlock import conf
from django_shedlock.durations import format_duration
from django_shedlock.exceptions import LockProviderError
from django_shedlock.execution.cancellation import is_ending
from django_shedlock.execution.operators import OperatorAction, condition
from django_shedlock.locks.status import LockStatus, is_success
from django_shedlock.providers.base import LockProvider
from django_shedlock.registry.jobs import Job
from django_shedlock.registry.requests import (
    REQUEST_LIFETIME,
    asked_at,
    find_requests,
    has_request,
    has_to_wait,
    is_forgotten,
    jobs_by_name,
)
from django_shedlock.registry.trigger import (
    TriggeredRun,
    start_for_operator,
    start_of_operator,
)
from django_shedlock.signals import logger


def open_requests(
    provider: LockProvider, names: Collection[str] | None = None
) -> list[LockStatus]:
    """
    Return the locks with an open request, the oldest first; close forgotten requests.

    With ``names``, look at these locks only. Raises ``LockProviderError`` if the store
    can't be read.
    """
    requests = find_requests(provider, names)
    for status in requests:
        if is_forgotten(status):
            _close_forgotten(provider, status)
    return list(filter(has_request, requests))


def _close_forgotten(provider: LockProvider, status: LockStatus) -> None:
    if provider.withdraw_request(status.name, asked_at(status)):
        logger.warning(
            "Lock %r: %s asked for a run of its job. The request has expired, because "
            "nobody carried it out within %s.",
            status.name,
            status.job.asked_by or "an operator",
            format_duration(REQUEST_LIFETIME),
        )


def carry_out_requests(
    provider: LockProvider, names: Collection[str] | None = None
) -> Iterator[tuple[LockStatus, TriggeredRun]]:
    """
    Carry out the open requests for jobs that are known here, one after the other.

    With ``names``, carry out those for these locks only. Return for each lock its
    status before the run, and the result of the run. If several processes try, one of
    them carries out a request. A request stays open while its lock is held, or has
    expired. With ``SHEDLOCK_ENABLED = False`` this does nothing. Raises
    ``LockProviderError`` if the store can't be read.
    """
    if not conf.ENABLED.value:
        return
    requests = open_requests(provider, names)
    jobs = jobs_by_name(provider) if requests else {}
    for status in requests:
        job = jobs.get(status.name)
        if job is None or job.needs_arguments:
            logger.info(
                "Lock %r: a run of its job is requested. The job is not known here.",
                status.name,
            )
        elif has_to_wait(status):
            with override("en"):
                why = condition(status)
            logger.info("Lock %r: its requested run waits, since %s.", status.name, why)
        else:
            triggered = _carry_out(provider, status, job)
            if triggered.was_executed:
                yield status, triggered


def _carry_out(provider: LockProvider, status: LockStatus, job: Job) -> TriggeredRun:
    by, why = status.job.asked_by or "", status.job.asked_why or ""
    action = OperatorAction(provider, status.name, operator=by, reason=why)
    start = start_of_operator(action, asked_at(status))
    triggered = start_for_operator(action, job, start)
    if not triggered.was_executed:
        logger.info(
            "Lock %r: its requested run is not started here: another worker was "
            "faster, or somebody withdrew the request.",
            status.name,
        )
    error = triggered.error
    if error is not None and not is_success(error):
        # Carry out the other requests, unless this process is to end.
        if is_ending(error) or not isinstance(error, Exception | SystemExit):
            raise error
        logger.error("The job of lock %r failed.", status.name, exc_info=error)
        if not isinstance(error, LockProviderError):
            # A job that can't even begin would be tried until the request expires.
            provider.withdraw_request(status.name, asked_at(status))
    return triggered
