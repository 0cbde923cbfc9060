"""Which locks have metrics of their own, where there are very many."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django_shedlock.locks.status import NOT_FREE, LockState, LockStatus
from django_shedlock.providers.base import ALL_LOCKS, LockProvider, LockQuery
from django_shedlock.registry.jobs import registered_by_name


@dataclass(frozen=True)
class SelectedLocks:
    """Some locks, how many there are in each state, and how many are left out."""

    locks: Sequence[LockStatus]
    states: dict[LockState, int]

    @property
    def left_out(self) -> int:
        """How many locks have a record, but are not among these."""
        return max(0, sum(self.states.values()) - len(self.locks))


def select(provider: LockProvider, grace: timedelta, most: int) -> SelectedLocks:
    """
    Return all locks, or the ``most`` important ones if there are more.

    Those that may need attention come first, and then the decorated jobs of this
    process. ``grace`` is how long after its tick a job is overdue. Raises
    ``LockProviderError`` if the store failed.
    """
    total = provider.count()
    urgent = LockQuery(
        states=NOT_FREE, overdue_by=grace, needs_look=True, by_urgency=True, limit=most
    )
    read = list(provider.statuses(ALL_LOCKS if total <= most else urgent))
    if total > most == len(read):
        states = Counter({e: provider.count(LockQuery(states=[e])) for e in NOT_FREE})
    else:  # all locks that were not read are free
        states = Counter(status.state for status in read)
    states[LockState.FREE] += max(0, total - states.total())
    if total > most > len(read):
        known = registered_by_name(provider.alias).keys()
        jobs = sorted(known - {status.name for status in read})
        read += provider.statuses(LockQuery(names=jobs[: most - len(read)]))
    return SelectedLocks(read, {state: states[state] for state in LockState})
