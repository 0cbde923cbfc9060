"""Run what is overdue, once."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from django_shedlock import conf
from django_shedlock.clocks import aware
from django_shedlock.known_jobs import KnownJob, known_jobs
from django_shedlock.occasions import Occasion
from django_shedlock.options import default_duration
from django_shedlock.outcomes import is_success
from django_shedlock.providers.base import LockProvider
from django_shedlock.schedules import Schedule
from django_shedlock.states import LockStatus
from django_shedlock.triggers import Trigger

logger = logging.getLogger("django_shedlock")

Jobs = dict[str, dict[Schedule, KnownJob]]
"""Of each lock its jobs; entries of ``CRONJOBS`` may share one."""

# Note [Other time zones]
# If hosts read one schedule in several time zones, and each registered its own, no tick
# would ever be late; and who ran the job by his own would run it once more. What counts
# is how the scheduler reads it, whose next start writes that into the record.


class Result(StrEnum):
    """What came of a job that was overdue."""

    SUCCEEDED = "ran"
    FAILED = "failed"
    SKIPPED = (
        "was skipped: somebody else runs it, ran it once more already, or "
        "lock_at_least_for keeps its lock"
    )
    UNKNOWN = (
        "can't be started from here: nothing here knows how, or it needs arguments"
    )
    ELSEWHERE = (
        "is left to other hosts: here its ticks are counted in another time zone, see "
        "SHEDLOCK_CRONTAB_TIME_ZONE"
    )


@dataclass(frozen=True)
class CaughtUp:
    """A job that was overdue, since when, and what came of it."""

    name: str
    overdue_since: datetime
    result: Result
    error: BaseException | None = None


def catch_up(provider: LockProvider) -> Iterator[CaughtUp]:
    """
    Run each overdue job of the provider once, under its lock, one after the other.

    Only its newest tick that is past is run, and no tick twice. A job that is known but
    was never run counts from now on. One whose scheduler counts in another time zone is
    left to other hosts. With ``SHEDLOCK_ENABLED = False`` nothing is done. Raises
    ``LockProviderError`` if the store fails.
    """
    if not conf.ENABLED.value:
        return
    jobs = _scheduled_jobs(provider)
    _register(provider, jobs)
    grace = default_duration(conf.GRACE)
    for status in provider.statuses():
        since = status.overdue_since(grace)
        if since is not None and _is_to_run(status, grace):
            yield _catch_up(status, since, jobs.get(status.name, {}))


def _scheduled_jobs(provider: LockProvider) -> Jobs:
    jobs: Jobs = defaultdict(dict)
    for job in known_jobs(provider.alias):
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


def _is_to_run(status: LockStatus, grace: timedelta) -> bool:
    # The statement that takes the lock asks again.
    occasion = Occasion(Trigger.CATCH_UP, status.progress.schedule, grace)
    return status.progress.allows(occasion, aware(status.clock))


def _catch_up(
    status: LockStatus, since: datetime, jobs: Mapping[Schedule, KnownJob]
) -> CaughtUp:
    for schedule, job in jobs.items():
        if _counts(schedule, status):
            return _run(status.name, since, job)
    for schedule in jobs:
        if status.schedule is not None and schedule.has_ticks_of(status.schedule):
            _warn(status.name, status.schedule, schedule)
            return CaughtUp(status.name, since, Result.ELSEWHERE)
    return CaughtUp(status.name, since, Result.UNKNOWN)


def _counts(schedule: Schedule, status: LockStatus) -> bool:
    if status.schedule is None or not schedule.has_ticks_of(status.schedule):
        return False
    # Hosts may call one time zone by two names, as UTC and Etc/UTC.
    now = aware(status.clock)
    return schedule.ticks_until(now, 1) == status.schedule.ticks_until(now, 1)


def _warn(name: str, counted: Schedule, here: Schedule) -> None:
    logger.warning(
        "The overdue job of lock %r is not run from here: its ticks are counted in %s, "
        "but here in %s. For entries of CRONJOBS, set SHEDLOCK_CRONTAB_TIME_ZONE alike "
        "on all hosts. If the time zone has changed, the next start by its scheduler "
        "settles it.",
        name,
        counted.time_zone,
        here.time_zone,
    )


def _run(name: str, since: datetime, job: KnownJob) -> CaughtUp:
    if job.start is None:
        return CaughtUp(name, since, Result.UNKNOWN)
    try:
        was_executed = job.start(Trigger.CATCH_UP)
    except (Exception, SystemExit) as error:  # the others are overdue, too
        if is_success(error):
            return CaughtUp(name, since, Result.SUCCEEDED)
        logger.exception("The overdue job of lock %r failed.", name)
        return CaughtUp(name, since, Result.FAILED, error)
    result = Result.SUCCEEDED if was_executed else Result.SKIPPED
    return CaughtUp(name, since, result)
