"""What each action of operators does to a lock, and what it acknowledges."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta

from django_shedlock.clocks import Backoff, aware
from django_shedlock.console.monitoring.findings import Kind
from django_shedlock.console.monitoring.search import Search
from django_shedlock.console.monitoring.traces import fact_of
from django_shedlock.console.operators.trail import OperatorAction, Trail
from django_shedlock.locks.configuration import ZERO, LockConfiguration
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.pauses import FOREVER, Pause
from django_shedlock.locks.states import LockState, LockStatus
from django_shedlock.schedules.state import Start, Trigger


def release(
    asked: OperatorAction, before: LockStatus | None, *, running: bool = False
) -> bool:
    """Release the lock; with ``running``, even while its job runs or is paused."""
    if before is None or not (running or before.state is LockState.HELD_AT_LEAST):
        return False
    return asked.provider.replace(before, ZERO)


def extend(
    asked: OperatorAction, before: LockStatus | None, *, lock_at_most_for: timedelta
) -> bool:
    """Extend the lease of a held lock from now; never shorten it."""
    if before is None or not before.state.is_held:
        return False
    return asked.provider.replace(before, lock_at_most_for)


def is_extended(
    before: LockStatus, after: LockStatus, *, lock_at_most_for: timedelta
) -> bool:
    """Return whether the lease is as long as it was asked for."""
    lock_until = aware(before.clock) + lock_at_most_for
    return after.state.is_held and aware(after.lock_until) >= lock_until


def pause(
    asked: OperatorAction,
    before: LockStatus | None,
    *,
    lasting: timedelta = FOREVER,
    wait: timedelta = ZERO,
) -> bool:
    """
    Hold the lock by an acquisition of the operator's own, so its job does not run.

    A job that runs is not stopped; with ``wait``, wait so long for its end. A pause
    with another reason or end is replaced. A lock without a record gets one.
    """
    start = Start(Trigger.OPERATOR)
    lock = Lock(asked.provider, LockConfiguration(asked.name, lasting, start=start))
    lock.locked_by = str(asked.locked_by)
    if before and before.pause:
        wanted = Pause.parse(lock.locked_by)
        is_endless = before.is_endless and lasting == FOREVER
        if is_endless and wanted and wanted.reason == before.pause.reason:
            return False
        if asked.provider.replace(before, lasting, locked_by=lock.locked_by):
            return True
    backoff = Backoff(wait)
    while asked.provider.acquire(lock) is not None:
        if backoff.is_over:
            return False
        time.sleep(backoff.pause())
    return True


def resume(asked: OperatorAction, before: LockStatus | None) -> bool:
    """End the pause of a lock; the next start of its job runs it."""
    if before is None or before.pause is None:
        return False
    return asked.provider.replace(before, ZERO)


def withdraw(asked: OperatorAction, before: LockStatus | None) -> bool:
    """Close the open requests for this lock's job; say who did, and why."""
    by = asked.operator or "another operator"
    why = f", because: {asked.reason}" if asked.reason else ""
    trail = Trail(asked.provider)
    return bool(trail.close_requests(asked.name, f"{by} withdrew it{why}."))


def of_findings(asked: OperatorAction, before: LockStatus | None) -> Sequence[str]:
    """Return the facts of all findings that the lock has now."""
    found = Search(acknowledged=True).of_locks(asked.provider, [asked.name])
    return [finding.fact for finding in found.get(asked.name, ())]


def of_expired(asked: OperatorAction, before: LockStatus | None) -> Sequence[str]:
    """Return the fact of an expired lock: an operator who releases it has looked."""
    if before is None or before.state is not LockState.EXPIRED:
        return ()
    return [fact_of(Kind.EXPIRED, before.locked_by)]
