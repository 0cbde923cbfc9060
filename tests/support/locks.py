"""Locks and runs as a test wants to find them, and what became of them."""

from __future__ import annotations

from datetime import timedelta
from secrets import token_hex
from typing import Any

from django.db.models import F

from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.configuration import LockConfiguration
from django_shedlock.locks.lock import Lock, split_identity
from django_shedlock.locks.pauses import Pause
from django_shedlock.locks.status import (
    LockHolder,
    LockState,
    RunOutcome,
    next_usual,
)
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.schedules.state import Start, Trigger
from django_shedlock.sql.fields import DatabaseNow
from django_shedlock.testing.contract.harness import (
    MINUTE,
    configure,
    force_release,
    let_its_clock_move,
    status_of,
    take_at_last,
    try_from,
)
from tests.support.waiting import STARTUP_PATIENCE, wait_for

__all__ = [
    "MINUTE",
    "configure",
    "force_release",
    "let_its_clock_move",
    "status_of",
    "take_at_last",
    "try_from",
]

LEASE = timedelta(minutes=5)
"""Of a lock that a test takes: longer than it waits for anything."""


class Broken(Exception):
    """What the bodies and receivers of tests raise."""


class Silent(Exception):
    """Has no message: its ``str()`` raises this class."""

    def __init__(self, raised: type[BaseException] = SystemExit):
        self.raised = raised

    def __str__(self) -> str:
        raise self.raised


def pause(
    name: str = "job",
    provider: LockProvider | None = None,
    lasting: timedelta = LEASE,
) -> Lock:
    """Acquire the lock as an operator does, so that its job does not run."""
    provider = provider or get_provider()
    wanted = LockConfiguration(name, lasting, start=Start(Trigger.OPERATOR))
    lock = Lock(provider, wanted, opens_run=False)
    lock.locked_by = Pause("alice", "the mail server moves").identity()
    assert provider.acquire(lock) is None
    return lock


def try_if_store_answers(locks: LockProvider, name: str = "job") -> object:
    """Return the new lock or its holder, or nothing while the store is not there."""
    try:
        return try_from(locks, configure(name))
    except LockProviderError:
        return None


def try_to_acquire(lock: Lock) -> bool:
    """Acquire the lock, if it was not yet; an earlier try may have lost its answer."""
    try:
        return lock.provider.acquire(lock) is None
    except LockProviderError:
        return False


def try_to_release(lock: Lock) -> bool:
    """Release the lock, if it was not yet; an earlier try may have lost its answer."""
    try:
        return lock.release()
    except LockProviderError:
        return False


def take_when_store_answers(provider: LockProvider, name: str = "job") -> Lock:
    """Acquire the lock as soon as the store answers, which may lose a few answers."""
    lock = Lock(provider, configure(name, lock_at_most_for=LEASE))
    wait_for(lambda: try_to_acquire(lock), STARTUP_PATIENCE)
    return lock


def take(
    wanted: str | LockConfiguration = "job",
    provider: LockProvider | None = None,
    **durations: timedelta,
) -> Lock:
    """Acquire a lock, which has to be free; one that is only named for ``LEASE``."""
    assert isinstance(wanted, str) or not durations, "the configuration has them"
    if isinstance(wanted, str):
        wanted = configure(wanted, **{"lock_at_most_for": LEASE, **durations})
    lock = try_from(provider or get_provider(), wanted)
    assert isinstance(lock, Lock), f"{wanted.name} is {lock.reason}"
    return lock


def name_holder(parent: Any) -> str:
    """Return who holds the lock that this process tried to acquire; for a worker."""
    lock = try_from(DatabaseLockProvider("default"), configure())
    return str(lock) if isinstance(lock, LockHolder) else "nobody"


def has_succeeded(record: LockRecord) -> bool:
    """Whether the newest tick that was begun has succeeded."""
    assert record.tick is not None
    assert record.due_at is not None
    return record.due_at > record.tick


def state(name: str) -> LockState:
    return status_of(get_provider(), name).state


def expire(name: str) -> None:
    """End the lease of a record, as if its time had passed."""
    LockRecord.objects.filter(name=name).update(lock_until=DatabaseNow())


def add_run(
    name: str,
    outcome: RunOutcome = RunOutcome.SUCCEEDED,
    *,
    locked_by: str | None = None,
    provider: str = "default",
    using: str = "default",
    **columns: Any,
) -> LockRun:
    """Add a row to the history, without a lock; each has an identity of its own."""
    locked_by = locked_by or f"web-1:7:{token_hex(4)}"
    host, pid = split_identity(locked_by)
    values = {
        "host": host,
        "pid": pid,
        "fencing_token": 1,
        "started": DatabaseNow(),
        "ended": DatabaseNow(),
        **columns,
    }
    return LockRun.objects.using(using).create(
        name=name, provider=provider, locked_by=locked_by, outcome=outcome, **values
    )


def end_run(
    name: str,
    outcome: RunOutcome = RunOutcome.SUCCEEDED,
    *,
    using: str = "default",
    **columns: Any,
) -> LockRun:
    """Let a run end so: on the lock's record, made if needed, and in the history."""
    run = add_run(name, outcome, using=using, **columns)
    took = columns.get("duration")
    now = DatabaseNow()
    free = {"lock_until": now, "locked_at": now, "released_at": now, "locked_by": ""}
    records = LockRecord.objects.using(using)
    record, _ = records.get_or_create(name=name, defaults=free)
    told: dict[str, Any] = {
        "last_run": run.locked_by,
        "outcome": outcome.value,
        "started_at": now - (took or timedelta(0)),
        "ended_at": now,
        "failures": F("failures") + 1,
    }
    if outcome is RunOutcome.SUCCEEDED:
        told |= {"failures": 0, "succeeded_at": now}
        if took is not None:
            told["usual"] = next_usual(record.usual, took.total_seconds())
    if outcome is RunOutcome.LOST:
        told |= {"lost_at": now, "lost_run": run.locked_by}
    records.filter(name=name).update(**told)
    return run
