"""Which locks have metrics of their own, where there are very many."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django_shedlock.clocks import aware
from django_shedlock.locks.own import OWN_LOCK_PATTERNS, is_own_lock
from django_shedlock.locks.status import (
    NEEDS_LOOK,
    NOT_FREE,
    URGENCY_ORDER,
    LockState,
    LockStatus,
)
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

    Those that may need attention come first, then the decorated jobs of this process,
    then the locks that were acquired longest ago. ``grace`` is how long after its tick
    a job is overdue. Raises ``LockProviderError`` if the store failed.
    """
    total = provider.count()
    if total <= most:
        read = _without_own(provider.statuses())
        return _selected(read, Counter(status.state for status in read))
    own = list(provider.statuses(LockQuery(patterns=OWN_LOCK_PATTERNS)))
    limit = most + len(own)
    # A lock may be free and still have one of these faults.
    faults = LockQuery(
        overdue_by=grace, passed_over=True, requested=True, by_urgency=True, limit=limit
    )
    faulty = _by_name(provider.statuses(faults))
    ranked = list(provider.statuses(LockQuery(by_urgency=True, limit=limit)))
    states = Counter(status.state for status in _without_own(ranked))
    if not ranked or not _is_calm(ranked[-1]):  # more locks may be in use
        for state in NOT_FREE:
            counted = provider.count(LockQuery(states=[state]))
            states[state] = counted - sum(status.state is state for status in own)
    states[LockState.FREE] += max(0, total - len(own) - states.total())
    found = faulty | _by_name(ranked)
    urgent = [
        status
        for status in found.values()
        if status.name in faulty or not _is_calm(status)
    ]
    chosen = _by_name(sorted(urgent, key=lambda status: _place(status, grace)))
    known = registered_by_name(provider.alias).keys()
    jobs = sorted(known - chosen.keys())[: max(0, most - len(chosen))]
    if jobs:
        chosen |= _by_name(provider.statuses(LockQuery(names=jobs)))
    # The others are free. Those that were acquired longest ago come first: a job that
    # nobody starts any more is among them.
    chosen = chosen | _by_name(ranked)
    return _selected(list(chosen.values())[:most], states)


def _is_calm(status: LockStatus) -> bool:
    """Return whether the lock is free, and its last run needs no look."""
    return URGENCY_ORDER[status.urgency(None)] == LockState.FREE


def _place(status: LockStatus, grace: timedelta) -> tuple[int, datetime, str]:
    urgency = status.urgency(grace)
    if status.job.asked_at is not None:
        urgency = min(urgency, URGENCY_ORDER.index(NEEDS_LOOK))
    return urgency, aware(status.locked_at), status.name


def _by_name(statuses: Iterable[LockStatus]) -> dict[str, LockStatus]:
    return {status.name: status for status in _without_own(statuses)}


def _without_own(statuses: Iterable[LockStatus]) -> list[LockStatus]:
    return [status for status in statuses if not is_own_lock(status.name)]


def _selected(locks: Sequence[LockStatus], states: Counter[LockState]) -> SelectedLocks:
    return SelectedLocks(locks, {state: max(0, states[state]) for state in LockState})
