"""Run overdue jobs, once."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from django_shedlock import conf
from django_shedlock.clocks import aware
from django_shedlock.jobs.named import NamedJob, named_jobs
from django_shedlock.locks.configuration import default_duration
from django_shedlock.locks.states import LockStatus, is_success
from django_shedlock.providers.base import LockProvider
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.starts import Trigger

logger = logging.getLogger("django_shedlock")

Jobs = dict[str, dict[Schedule, NamedJob]]
"""Each lock's jobs by schedule; entries of ``CRONJOBS`` may share a lock."""

# Note [Other time zones]
# Hosts may read one schedule in several time zones. If each registered its own, no tick
# would ever be late; if each ran the job for its own ticks, it would run too often. The
# scheduler's time zone counts: its next start writes that into the record.


class Result(StrEnum):
    """The result for an overdue job."""

    SUCCEEDED = "ran"
    FAILED = "failed"
    SKIPPED = (
        "was skipped: another worker runs it, or has already caught up, or "
        "lock_at_least_for keeps its lock"
    )
    UNKNOWN = (
        "can't be started from here: no such job is known here, or it needs arguments"
    )
    ELSEWHERE = (
        "is left to other hosts: here its ticks are counted in another time zone, see "
        "SHEDLOCK_CRONTAB_TIME_ZONE"
    )


@dataclass(frozen=True)
class CaughtUp:
    """An overdue job, since when it was overdue, and the result."""

    name: str
    overdue_since: datetime
    result: Result
    error: BaseException | None = None


def catch_up(provider: LockProvider) -> Iterator[CaughtUp]:
    """
    Run each overdue job of the provider once, under its lock, one after the other.

    Only its newest past tick is run, and no tick twice. A known job that was never run
    counts from now on. A job whose scheduler counts in another time zone is left to
    other hosts. With ``SHEDLOCK_ENABLED = False`` nothing is done. Raises
    ``LockProviderError`` if the store fails.
    """
    if not conf.ENABLED.value:
        return
    jobs = _scheduled_jobs(provider)
    _register(provider, jobs)
    grace = default_duration(conf.GRACE)
    for status in provider.statuses():
        since = status.overdue_since(grace)
        # The statement that acquires the lock decides again.
        if since is not None and status.may_catch_up(grace):
            result, error = _run(status, jobs.get(status.name, {}))
            yield CaughtUp(status.name, since, result, error)


def _scheduled_jobs(provider: LockProvider) -> Jobs:
    jobs: Jobs = defaultdict(dict)
    for job in named_jobs(provider.alias):
        if job.schedule is not None:
            jobs[job.name][job.schedule] = job
    return jobs


def _register(provider: LockProvider, jobs: Jobs) -> None:
    known = {status.name: status.schedule for status in provider.statuses()}
    for name, schedules in jobs.items():
        before = known.get(name)
        # See Note [Other time zones].
        if before is None or not any(map(before.has_ticks_of, schedules)):
            provider.register(name, list(schedules)[-1])


def _run(
    status: LockStatus, jobs: Mapping[Schedule, NamedJob]
) -> tuple[Result, BaseException | None]:
    counted = status.schedule
    if counted is None:
        return Result.UNKNOWN, None
    similar = [schedule for schedule in jobs if schedule.has_ticks_of(counted)]
    # Hosts may call one time zone by two names, as UTC and Etc/UTC.
    now = aware(status.clock)
    newest = next(counted.ticks_until(now))
    for schedule in similar:
        if next(schedule.ticks_until(now)) == newest:
            return _start(jobs[schedule])
    if not similar:
        return Result.UNKNOWN, None
    logger.warning(
        "The overdue job of lock %r is not run from here: its ticks are counted in %s, "
        "but here in %s. For entries of CRONJOBS, set SHEDLOCK_CRONTAB_TIME_ZONE alike "
        "on all hosts. If the time zone has changed, the next start by the scheduler "
        "settles it.",
        status.name,
        counted.time_zone,
        similar[0].time_zone,
    )
    return Result.ELSEWHERE, None


def _start(job: NamedJob) -> tuple[Result, BaseException | None]:
    if job.start is None:
        return Result.UNKNOWN, None
    try:
        was_executed = job.start(Trigger.CATCH_UP)
    except (Exception, SystemExit) as error:  # the other overdue jobs must run, too
        if is_success(error):
            return Result.SUCCEEDED, None
        logger.exception("The overdue job of lock %r failed.", job.name)
        return Result.FAILED, error
    return Result.SUCCEEDED if was_executed else Result.SKIPPED, None
