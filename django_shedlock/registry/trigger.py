"""Run a job because an operator wants it, whatever its schedule says."""

import time
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils.translation import override

from django_shedlock.clocks import aware
from django_shedlock.durations import format_measured
from django_shedlock.exceptions import described
from django_shedlock.execution.operators import OperatorAction, condition
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.status import LockState, LockStatus, is_success
from django_shedlock.registry.jobs import Job
from django_shedlock.registry.requests import has_to_wait
from django_shedlock.schedules.state import Start, Trigger
from django_shedlock.signals import logger


@dataclass(frozen=True)
class TriggeredRun:
    """
    What came of a run that an operator wanted: true if its job has succeeded.

    ``took`` is how long it took, ``error`` is what its job raised. A skipped one has
    the ``status`` of the lock after it, unless the store could not be read.
    """

    name: str
    was_executed: bool
    took: timedelta
    error: BaseException | None = None
    status: LockStatus | None = None

    def __bool__(self) -> bool:
        return self.was_executed and not self.has_failed

    @property
    def has_failed(self) -> bool:
        """Whether its job has failed."""
        return not is_success(self.error)

    def __str__(self) -> str:
        if self.error is not None and self.has_failed:
            return f"The job of lock {self.name!r} failed with {described(self.error)}"
        if self.was_executed:
            took = format_measured(self.took)
            return f"The job of lock {self.name!r} has run, for {took}."
        with override("en"):
            why = condition(self.status)
        if self.status is not None and self.status.state is LockState.FREE:
            why = f"{self.status.locked_by} held it, and has released it since"
        return f"The job of lock {self.name!r} was not started: {why}."


def trigger(action: OperatorAction, job: Job) -> TriggeredRun:
    """
    Run the job in this process, even if its tick has been run.

    If an operator has requested a run of it, this run is for that request too. If the
    lock has expired, its last run may still go on: then the job is not started.
    """
    by = action.operator or "an operator"
    why = f"because: {action.reason!r}" if action.reason else "without a reason"
    logger.warning("Lock %r: %s wants its job to run now, %s.", action.name, by, why)
    before = action.provider.status(action.name)
    if before is not None and before.state is LockState.EXPIRED and has_to_wait(before):
        return TriggeredRun(action.name, False, ZERO, status=before)
    requested_at = None if before is None else before.job.asked_at
    start = start_of_operator(
        action, None if requested_at is None else aware(requested_at)
    )
    return start_for_operator(action, job, start)


def start_of_operator(action: OperatorAction, request: datetime | None) -> Start:
    """Return the start of a run; with ``request``, only if that is still open."""
    return Start(
        Trigger.OPERATOR,
        operator=action.operator,
        reason=action.reason,
        request=request,
    )


def start_for_operator(action: OperatorAction, job: Job, start: Start) -> TriggeredRun:
    """Run the job for the operator by this ``start``, whatever becomes of it."""
    began = time.monotonic()
    error: BaseException | None = None
    was_executed = True
    try:
        was_executed = job.start(start)
    except BaseException as raised:
        error = raised
    took = timedelta(seconds=time.monotonic() - began)
    status = None if was_executed else action.look()
    return TriggeredRun(action.name, was_executed, took, error, status)
