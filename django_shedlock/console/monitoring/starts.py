"""Find out whether a scheduler works: when did it start a job with a schedule?"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter

from django_shedlock import conf
from django_shedlock.clocks import EARLIEST_INSTANT, aware
from django_shedlock.console.monitoring.evidence import Past
from django_shedlock.console.monitoring.kinds import Kind, fact_of
from django_shedlock.locks.configuration import full_name
from django_shedlock.locks.lock import split_identity
from django_shedlock.locks.own import CATCH_UP_LOCK, is_own_lock
from django_shedlock.locks.pauses import Pause
from django_shedlock.locks.status import LockStatus
from django_shedlock.providers.base import LockProvider, LockQuery
from django_shedlock.schedules.state import Trigger

NEWEST_START_LIMIT = 100
"""So many of the last acquisitions are looked at for one that was a start of a job."""
BY_NO_SCHEDULER = frozenset({Trigger.CATCH_UP.value, Trigger.OPERATOR.value})
CATCH_UP_MAX_AGE = timedelta(hours=1)
"""A process that started a job longer after its catch-up may be another one."""

# Note [Starts by hand]
# A run that a person or a catch-up started does not show that a scheduler works. The
# history knows what started a run, but not while the run goes on, and not if it was
# killed. Such a run counts as a scheduler's, unless the process of the last catch-up
# has started it.


@dataclass(frozen=True)
class LastStart:
    """The start of a scheduled job: when, by which acquisition, of which lock."""

    at: datetime
    run: str
    lock: str

    def is_of(self, catch_up: LockStatus) -> bool:
        """Return whether the process of the last catch-up has started it."""
        age = self.at - aware(catch_up.locked_at)
        is_same = split_identity(self.run) == split_identity(catch_up.locked_by)
        return is_same and timedelta(0) <= age < CATCH_UP_MAX_AGE


NEVER: LastStart = LastStart(EARLIEST_INSTANT, "", "")
"""No host has ever started a scheduled job."""


def last_start(provider: LockProvider, past: Past) -> LastStart | None:
    """
    Return the last start of a scheduled job by a scheduler, on whatever host.

    Return ``NEVER`` if no job was ever started, and ``None`` if nobody knows.
    """
    # See Note [Starts by hand].
    found = _newest(provider)
    starts = [start for status in found if (start := _start_of(status))]
    if not starts:
        return NEVER if len(found) < NEWEST_START_LIMIT else None
    by_hand = _started_by_hand(starts, provider, past)
    kept = [start for start in starts if start.lock not in by_hand]
    since = max((start.at for start in kept), default=None)
    kept += [
        LastStart(aware(run.started), run.locked_by, run.name)
        for run in past.scheduled_runs(by_hand, since)
        if run.started is not None
    ]
    return max(kept, key=attrgetter("at"), default=None)


def was_started_since(provider: LockProvider, moment: datetime) -> bool:
    """
    Return whether a scheduler has started a job since then.

    Only the history knows that for sure. Where it lacks runs, the records decide.
    """
    found = _newest(provider)
    names = {status.name for status in found if _start_of(status)}
    past = Past(provider)
    runs = past.scheduled_runs(names, moment)
    if any(run.started and aware(run.started) > moment for run in runs):
        return True
    if conf.HISTORY.value and not any(status.job.is_unrecorded for status in found):
        return False
    last = last_start(provider, past)
    return last is not None and last.at > moment


def _newest(provider: LockProvider) -> list[LockStatus]:
    query = LockQuery(by_newest_start=True, limit=NEWEST_START_LIMIT)
    return list(provider.statuses(query))


def _start_of(status: LockStatus) -> LastStart | None:
    at, run = status.locked_at, status.locked_by
    if Pause.parse(run) is not None:  # the run before it is the last one
        if status.job.started_at is None:
            return None
        at, run = status.job.started_at, status.job.last_run or ""
    if not run or status.schedule is None or is_own_lock(status.name):
        return None
    return LastStart(aware(at), run, status.name)


def _started_by_hand(
    starts: Collection[LastStart], provider: LockProvider, past: Past
) -> set[str]:
    """Return the locks whose last start, of these, was by no scheduler."""
    triggers = past.triggers({start.run for start in starts})
    by_hand = {
        start.lock for start in starts if triggers.get(start.run) in BY_NO_SCHEDULER
    }
    if unknown := [start for start in starts if start.run not in triggers]:
        catch_up = provider.status(full_name(CATCH_UP_LOCK))
        by_hand |= {
            start.lock
            for start in unknown
            if catch_up is not None and start.is_of(catch_up)
        }
    return by_hand


def fact_of_silence(last: LastStart) -> str:
    """Return the fact that no scheduled job was started after this start."""
    return fact_of(Kind.SILENT, last.run)
