"""
The protocol of a lock: a small model of it, and each provider held against it.

Hypothesis plays the workers, an operator and the time. Its unit is a thousand seconds,
so that the milliseconds which really pass never matter. Time passes by shifting what
the store has written; a worker's own clock may run faster or slower than that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from django.db import transaction
from django.db.models import F
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from django_shedlock import LockConfiguration, LockLost
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.states import LockState
from django_shedlock.models import LockRecord
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.providers.memory import MemoryLockProvider
from tests.support.leases import age_entry, age_own_count

UNIT = timedelta(seconds=1000)
names = (f"protocol-{number}" for number in count())


@dataclass
class Model:
    """What the protocol says: one record, by the store's clock."""

    now: int = 0
    lock_until: int = 0
    at_least_until: int = 0
    holder: str | None = None
    is_released: bool = True
    token: int = 0

    def acquire(self, at_most: int, at_least: int) -> bool:
        if self.lock_until > self.now:
            return False
        self.lock_until = self.now + at_most
        self.at_least_until = self.now + at_least
        self.is_released = False
        self.token += 1
        return True

    def is_held_by(self, holder: str) -> bool:
        return self.holder == holder and not self.is_released

    def is_valid_for(self, holder: str) -> bool:
        return self.is_held_by(holder) and self.lock_until > self.now

    def extend(self, holder: str, at_most: int) -> bool:
        if not self.is_valid_for(holder):
            return False
        self.lock_until = max(self.lock_until, self.now + at_most)
        return True

    def release(self, holder: str) -> bool:
        if not self.is_held_by(holder):
            return False
        self.lock_until = max(self.now, self.at_least_until)
        self.is_released = True
        return True

    def force_release(self, *, running: bool) -> bool:
        if self.state is LockState.FREE or not (running or self.is_released):
            return False
        self.lock_until = self.at_least_until = self.now
        self.is_released = True
        return True

    @property
    def state(self) -> LockState:
        if self.lock_until > self.now:
            return LockState.HELD_AT_LEAST if self.is_released else LockState.RUNNING
        return LockState.FREE if self.is_released else LockState.EXPIRED


class Protocol(RuleBasedStateMachine):
    """Every step, taken by the provider and by the model."""

    provider: LockProvider
    pass_time: Callable[[LockProvider, str, timedelta], None]
    can_fence = False
    locks = Bundle("locks")

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.name = next(names)
        self.taken: list[Lock] = []
        self.local_deadlines: dict[str, int] = {}
        self.local_now = 0

    def knows_loss(self, lock: Lock) -> bool:
        """Whether the worker takes the lock for lost, after it asked the store."""
        return lock.lost.is_set() or (
            self.local_deadlines[lock.locked_by] <= self.local_now
            and not self.model.is_valid_for(lock.locked_by)
        )

    def refreshed(self, lock: Lock) -> int:
        """Return the deadline that the worker got if it had to ask the store."""
        left = round(lock.remaining() / UNIT)
        return self.local_now + left

    @rule(target=locks, at_most=st.integers(1, 5), at_least=st.integers(0, 5))
    def acquire(self, at_most: int, at_least: int) -> Any:
        at_least = min(at_least, at_most)
        configuration = LockConfiguration(self.name, at_most * UNIT, at_least * UNIT)
        acquired = self.provider.acquire(configuration)
        assert isinstance(acquired, Lock) == self.model.acquire(at_most, at_least)
        if not isinstance(acquired, Lock):
            assert acquired.locked_by == self.model.holder
            return multiple()
        self.model.holder = acquired.locked_by
        assert acquired.fencing_token == self.model.token
        self.local_deadlines[acquired.locked_by] = self.local_now + at_most
        self.taken.append(acquired)
        return acquired

    @rule(lock=locks, at_most=st.integers(1, 5))
    def extend(self, lock: Lock, at_most: int) -> None:
        knew, was_given_back = self.knows_loss(lock), not lock.is_ours
        try:
            lock.extend(at_most * UNIT)
        except LockLost:
            assert knew or was_given_back or not self.model.is_valid_for(lock.locked_by)
        else:
            assert self.model.extend(lock.locked_by, at_most)
            deadline = self.local_now + at_most
            self.local_deadlines[lock.locked_by] = max(
                self.local_deadlines[lock.locked_by], deadline, self.refreshed(lock)
            )

    @rule(lock=locks)
    def release(self, lock: Lock) -> None:
        knew, was_given_back = self.knows_loss(lock), not lock.is_ours
        released = lock.release()
        if was_given_back:
            assert not released
        else:
            owned = self.model.release(lock.locked_by)
            assert released == (owned and not knew)

    @rule(running=st.booleans())
    def force_release(self, *, running: bool) -> None:
        released = self.provider.force_release(self.name, running=running)
        assert released == self.model.force_release(running=running)

    @rule(lock=locks)
    def fence(self, lock: Lock) -> None:
        if not (self.can_fence and lock.is_ours):
            return
        try:
            with transaction.atomic():
                lock.fence()
        except LockLost:
            assert not self.model.is_valid_for(lock.locked_by)
        else:
            assert self.model.is_valid_for(lock.locked_by)

    @rule(by=st.integers(1, 3), drift=st.sampled_from([-1, 0, 0, 1]))
    def wait(self, by: int, drift: int) -> None:
        type(self).pass_time(self.provider, self.name, by * UNIT)
        self.model.now += by
        self.local_now += by + drift
        for lock in self.taken:
            age_own_count(lock, (by + drift) * UNIT)

    @invariant()
    def states_agree(self) -> None:
        for status in self.provider.statuses(self.name):
            assert status.state is self.model.state

    @invariant()
    def at_most_one_holds_by_the_stores_clock(self) -> None:
        holders = [x for x in self.taken if self.model.is_valid_for(x.locked_by)]
        assert len(holders) <= 1

    @invariant()
    def tokens_are_never_reused(self) -> None:
        tokens = [lock.fencing_token for lock in self.taken]
        assert tokens == sorted(set(tokens))


def pass_time_in_memory(provider: Any, name: str, by: timedelta) -> None:
    age_entry(provider, name, by)


def pass_time_in_database(provider: LockProvider, name: str, by: timedelta) -> None:
    columns = ("locked_at", "lock_until", "lock_at_least_until", "released_at")
    LockRecord.objects.filter(name=name).update(**{c: F(c) - by for c in columns})


class MemoryProtocol(Protocol):
    """The memory's provider."""

    provider = MemoryLockProvider("default")
    pass_time = staticmethod(pass_time_in_memory)


class DatabaseProtocol(Protocol):
    """The database's provider, which can also fence."""

    provider = DatabaseLockProvider("default")
    pass_time = staticmethod(pass_time_in_database)
    can_fence = True


def sequences() -> int:
    """Return how many sequences have begun, by the names that they took."""
    return int(next(names).removeprefix("protocol-"))


def explore(machine: type[Protocol], *, examples: int) -> int:
    """Let Hypothesis look for steps that break the protocol; return how often."""
    first = sequences()
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
        ),
    )
    return sequences() - first


def be_late_with(machine: Protocol, step: Callable[[Lock], None]) -> None:
    """Let a worker whose clock is slow take a step when another has its lock."""
    late = machine.acquire(at_most=1, at_least=0)
    machine.wait(by=1, drift=-1)
    other = machine.acquire(at_most=5, at_least=2)
    step(late)
    machine.states_agree()
    machine.release(other)
    machine.states_agree()


def check_known_steps(machine: type[Protocol]) -> None:
    """Check what Hypothesis finds only in many examples."""
    be_late_with(played := machine(), played.release)
    be_late_with(played := machine(), played.fence)
    be_late_with(played := machine(), lambda lock: played.extend(lock, at_most=3))


def test_memory_is_safe_from_the_late() -> None:
    """A worker that is late changes nothing about the lock of another."""
    check_known_steps(MemoryProtocol)


@pytest.mark.django_db
def test_database_is_safe_from_the_late() -> None:
    """A worker that is late changes nothing about the lock of another."""
    check_known_steps(DatabaseProtocol)


def test_memory_follows_the_protocol() -> None:
    """No sequence of steps brings the memory's provider and the model apart."""
    assert explore(MemoryProtocol, examples=80) >= 80


@pytest.mark.django_db
def test_database_follows_the_protocol() -> None:
    """No sequence of steps brings the database's provider and the model apart."""
    assert explore(DatabaseProtocol, examples=25) >= 25
