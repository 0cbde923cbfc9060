"""The locks of which each scrape tells: a bounded number, the most urgent first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from itertools import chain, islice

from django_shedlock.console.monitoring.summaries import (
    LockSummary,
    badly_ended,
    with_last_runs,
)
from django_shedlock.jobs.named import named_jobs
from django_shedlock.locks.states import LockState, LockStatus
from django_shedlock.providers.base import LockProvider


@dataclass(frozen=True)
class Selection:
    """Some locks, how many there are in each state, and how many are left out."""

    locks: Sequence[LockSummary]
    states: dict[LockState, int]

    @property
    def left_out(self) -> int:
        """How many locks have a record, but are not among these."""
        told = sum(lock.status is not None for lock in self.locks)
        return max(0, sum(self.states.values()) - told)


def select(
    provider: LockProvider,
    grace: timedelta,
    most: int,
) -> Selection:
    """
    Return all locks if there are at most so many, else those that may need somebody.

    What is left of the number are the project's jobs. It sends five statements if these
    are all locks, else eight, and more above a thousand names. Raises
    ``LockProviderError`` if the store failed.
    """
    total = provider.count()
    is_small = total <= most
    read = provider.statuses() if is_small else provider.candidates(grace, limit=most)
    # All that are not among fewer candidates are free: that saves a look at them all.
    is_whole = is_small or len(read) < most
    states = _counted(read, total) if is_whole else provider.state_counts()
    statuses = {status.name: status for status in read}
    # Of those that are held, most need nobody.
    late = [status.name for status in read if _is_late(status, grace)]
    rest = () if is_small else known_names(provider.alias)
    names = dict.fromkeys(chain(late, badly_ended(provider, most), statuses, rest))
    chosen = list(islice(names, most))
    if not is_small:
        unread = [name for name in chosen if name not in statuses]
        statuses |= {status.name: status for status in provider.statuses_of(unread)}
    found = [statuses[name] for name in chosen if name in statuses]
    return Selection(with_last_runs(provider, found, chosen), states)


@cache
def known_names(alias: str) -> tuple[str, ...]:
    """Return the names of the project's jobs; once, as it imports their modules."""
    return tuple(job.name for job in named_jobs(alias))


def _is_late(status: LockStatus, grace: timedelta) -> bool:
    is_expired = status.state is LockState.EXPIRED
    return is_expired or status.overdue_since(grace) is not None


def _counted(read: Iterable[LockStatus], total: int) -> dict[LockState, int]:
    found = Counter(status.state for status in read)
    found[LockState.FREE] += max(0, total - found.total())
    return {state: found[state] for state in LockState}
