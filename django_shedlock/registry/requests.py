"""Requests to run a job now, which are on its lock's record."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from django_shedlock.clocks import aware
from django_shedlock.locks.configuration import ZERO, full_name
from django_shedlock.locks.own import CATCH_UP_LOCK
from django_shedlock.locks.pauses import Pause
from django_shedlock.locks.status import LockStatus
from django_shedlock.providers.base import LockProvider, LockQuery
from django_shedlock.registry.discovery import named_jobs
from django_shedlock.registry.jobs import Job

REQUEST_LIFETIME = timedelta(hours=1)
"""A request that nobody has carried out for so long is not carried out any more."""
EXPIRED_REQUEST_AGE = timedelta(days=1)
"""Until it is so old it stays on the record, so that who asked learns of it."""

# Note [A request is on the record]
# An operator's request is part of the lock's record. The host that starts the job
# acquires the lock by an UPDATE that matches only while that request is there, and
# that clears it. So of all hosts one runs the job, once. While the lock is held the
# request waits, until it expires. It also waits while the run of an expired lock may
# still go on: see Note [Expired locks].


def jobs_by_name(provider: LockProvider) -> Mapping[str, Job]:
    """Return the jobs that are known here, by the full names of their locks."""
    jobs = sorted(named_jobs(provider.alias), key=_suitability)
    return {job.full_name: job for job in jobs}


def _suitability(job: Job) -> tuple[bool, bool]:
    # An entry of CRONJOBS may give a schedule to a job that has none of its own.
    return not job.needs_arguments, job.schedule is not None


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


def has_to_wait(status: LockStatus) -> bool:
    """Return whether a request waits: the job runs, may still run, or is paused."""
    # See Note [A request is on the record].
    # Nobody can release a run beside which another service acquired the lock.
    return status.holder_may_run or status.state.is_in_use


def is_forgotten(status: LockStatus) -> bool:
    """Return whether the lock's request expired so long ago that it can be cleared."""
    return age_of_request(status) >= EXPIRED_REQUEST_AGE


def find_requests(
    provider: LockProvider, names: Collection[str] | None = None
) -> list[LockStatus]:
    """Return the locks with a request, open or expired; the oldest request first."""
    found = provider.statuses(LockQuery(names=names, requested=True))
    asked = [status for status in found if status.job.asked_at is not None]
    return sorted(asked, key=asked_at)


def is_carried_out(provider: LockProvider) -> bool:
    """Return whether a beat or a catch-up was seen lately, which carry out requests."""
    status = provider.status(full_name(CATCH_UP_LOCK))
    if status is None or Pause.parse(status.locked_by) is not None:
        return False
    return aware(status.clock) - aware(status.locked_at) < REQUEST_LIFETIME


def last_catch_up(provider: LockProvider) -> datetime | None:
    """Return when a catch-up was last seen, on any host."""
    status = provider.status(full_name(CATCH_UP_LOCK))
    return None if status is None else status.locked_at
