"""Which locks have metrics of their own, where there are very many."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from django_shedlock.locks.own import OWN_LOCK_PATTERNS, is_own_lock
from django_shedlock.locks.status import NOT_FREE, LockState, LockStatus
from django_shedlock.providers.base import LockProvider, LockQuery
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
    if total <= most:
        read = _without_own(provider.statuses())
        return _selected(read, Counter(status.state for status in read))
    own = list(provider.statuses(LockQuery(patterns=OWN_LOCK_PATTERNS)))
    limit = most + len(own)
    urgent = LockQuery(
        states=NOT_FREE,
        overdue_by=grace,
        needs_look=True,
        by_urgency=True,
        limit=limit,
    )
    found = list(provider.statuses(urgent))
    read = _without_own(found)
    if len(found) == limit:
        states = Counter(
            {state: provider.count(LockQuery(states=[state])) for state in NOT_FREE}
        )
        states.subtract(status.state for status in own if status.state in NOT_FREE)
    else:  # all locks that were not read are free
        states = Counter(status.state for status in read)
    states[LockState.FREE] += max(0, total - len(own) - states.total())
    read = read[:most]
    if len(read) < most:
        known = registered_by_name(provider.alias).keys()
        jobs = sorted(known - {status.name for status in read})
        read += provider.statuses(LockQuery(names=jobs[: most - len(read)]))
    return _selected(read, states)


def _without_own(statuses: Iterable[LockStatus]) -> list[LockStatus]:
    return [status for status in statuses if not is_own_lock(status.name)]


def _selected(locks: Sequence[LockStatus], states: Counter[LockState]) -> SelectedLocks:
    return SelectedLocks(locks, {state: max(0, states[state]) for state in LockState})
