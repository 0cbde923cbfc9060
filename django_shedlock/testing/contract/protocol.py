"""
The protocol of a lock: a small model, with which a provider is compared.

Hypothesis plays the workers, an operator and the time. The unit of time is a thousand
seconds, so the milliseconds that really pass do not matter. To let time pass, the test
shifts what the store has written. A worker's own clock may run faster or slower.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import count

from django.db import transaction
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from django_shedlock.exceptions import LockLost
from django_shedlock.locks.configuration import LockConfiguration
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockState
from django_shedlock.providers.base import LockProvider
from django_shedlock.testing.contract.harness import Contract, force_release, try_from

TIME_UNIT = timedelta(seconds=1000)
names: Iterator[str] = (f"protocol-{number}" for number in count())


@dataclass
class Model:
    """What the protocol says about one record, by the store's clock."""

    now: int = 0
    lock_until: int = 0
    at_least_until: int = 0
    holder: str | None = None
    is_released: bool = True
    has_open_run: bool = False

    def acquire(self, at_most: int, at_least: int) -> bool:
        if self.lock_until > self.now:
            return False
        self.lock_until = self.now + at_most
        self.at_least_until = self.now + at_least
        self.is_released = False
        self.has_open_run = True
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
        # After a loss, a release keeps nothing.
        at_least_until = self.at_least_until if self.has_open_run else self.now
        self.lock_until = max(self.now, at_least_until)
        self.is_released = True
        self.has_open_run = False
        return True

    def lose(self, holder: str) -> None:
        """Account for the holder's run, if the record is still the holder's."""
        if self.holder == holder:
            self.has_open_run = False

    def force_release(self) -> bool:
        if self.state is LockState.FREE:
            return False
        self.lock_until = self.at_least_until = self.now
        self.is_released = True
        self.has_open_run = False
        return True

    @property
    def state(self) -> LockState:
        if self.lock_until > self.now:
            return LockState.HELD_AT_LEAST if self.is_released else LockState.RUNNING
        return LockState.EXPIRED if self.has_open_run else LockState.FREE


class Protocol(RuleBasedStateMachine):
    """Takes each step with the provider and with the model, and compares them."""

    provider: LockProvider
    pass_time: Callable[[LockProvider, str, timedelta], None] | None
    can_fence = False
    locks: Bundle[Lock] = Bundle("locks")

    def __init__(self) -> None:
        super().__init__()
        self.model: Model = Model()
        self.name: str = next(names)
        self.taken: list[Lock] = []
        self.local_deadlines: dict[str, int] = {}
        self.local_now: int = 0

    def knows_loss(self, lock: Lock) -> bool:
        """Return whether the worker knows the loss, after it asked the store."""
        return lock.lost.is_set() or (
            self.local_deadlines[lock.locked_by] <= self.local_now
            and not self.model.is_valid_for(lock.locked_by)
        )

    def refreshed(self, lock: Lock) -> int:
        """Return the deadline that the worker got if it had to ask the store."""
        left = round(lock.remaining() / TIME_UNIT)
        return self.local_now + left

    @rule(target=locks, at_most=st.integers(1, 5), at_least=st.integers(0, 5))
    def acquire(self, at_most: int, at_least: int) -> Lock | MultipleResults[Lock]:
        at_least = min(at_least, at_most)
        configuration = LockConfiguration(
            self.name, at_most * TIME_UNIT, at_least * TIME_UNIT
        )
        acquired = try_from(self.provider, configuration)
        assert isinstance(acquired, Lock) == self.model.acquire(at_most, at_least)
        if not isinstance(acquired, Lock):
            assert acquired.locked_by == self.model.holder
            return multiple()
        self.model.holder = acquired.locked_by
        self.local_deadlines[acquired.locked_by] = self.local_now + at_most
        self.taken.append(acquired)
        return acquired

    @rule(lock=locks, at_most=st.integers(1, 5))
    def extend(self, lock: Lock, at_most: int) -> None:
        knew, was_given_back = self.knows_loss(lock), not lock.is_ours
        try:
            lock.extend(at_most * TIME_UNIT)
        except LockLost:
            assert knew or was_given_back or not self.model.is_valid_for(lock.locked_by)
            if not was_given_back:
                # A background thread does this too, perhaps only after the next step.
                self.provider.account_for_loss(lock, has_ended=False)
                self.model.lose(lock.locked_by)
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

    @rule()
    def force_release(self) -> None:
        released = force_release(self.provider, self.name)
        assert released == self.model.force_release()

    @rule(lock=locks)
    def fence(self, lock: Lock) -> None:
        if not (self.can_fence and lock.is_ours):
            return
        try:
            with transaction.atomic():
                lock.fence()
        except LockLost:
            assert not self.model.is_valid_for(lock.locked_by)
            # The account of the loss may be rolled back with the transaction.
            self.provider.account_for_loss(lock, has_ended=False)
            self.model.lose(lock.locked_by)
        else:
            assert self.model.is_valid_for(lock.locked_by)

    @precondition(lambda self: self.pass_time is not None)
    @rule(by=st.integers(1, 3), drift=st.sampled_from([-1, 0, 0, 1]))
    def wait(self, by: int, drift: int) -> None:
        assert self.pass_time is not None
        self.pass_time(self.provider, self.name, by * TIME_UNIT)
        self.model.now += by
        self.local_now += by + drift
        for lock in self.taken:
            lock.lease_end -= (by + drift) * TIME_UNIT.total_seconds()

    @invariant()
    def states_agree(self) -> None:
        status = self.provider.status(self.name)
        if status is None:
            assert not self.model.state.is_held
        else:
            assert status.state is self.model.state

    @invariant()
    def at_most_one_holds_by_the_stores_clock(self) -> None:
        holders = [x for x in self.taken if self.model.is_valid_for(x.locked_by)]
        assert len(holders) <= 1

    @invariant()
    def tokens_grow(self) -> None:
        tokens = [lock.fencing_token for lock in self.taken]
        assert tokens == sorted(set(tokens))


def explore(contract: Contract, provider: LockProvider, *, examples: int) -> int:
    """Let Hypothesis search for steps that break the protocol; return how many runs."""
    first = _sequences()
    run_state_machine_as_test(
        machine_for(contract, provider),
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            # To shrink the steps that failed would take minutes in a real store.
            phases=[Phase.generate],
            derandomize=True,
            database=None,
        ),
    )
    return _sequences() - first


def machine_for(contract: Contract, provider: LockProvider) -> type[Protocol]:
    """Return the state machine of this provider, with the hook of its contract."""
    pass_time = contract.pass_time and staticmethod(contract.pass_time)
    attributes = {
        "provider": provider,
        "pass_time": pass_time,
        "can_fence": provider.can_fence,
    }
    return type("ProviderProtocol", (Protocol,), attributes)


def be_late_with(machine: Protocol, step: str, **arguments: int) -> None:
    """Let a worker with a slow clock take a step when another has the lock."""
    late = machine.acquire(at_most=1, at_least=0)
    machine.wait(by=1, drift=-1)
    other = machine.acquire(at_most=5, at_least=2)
    assert isinstance(late, Lock)
    assert isinstance(other, Lock)
    getattr(machine, step)(late, **arguments)
    machine.states_agree()
    machine.release(other)
    machine.states_agree()


def _sequences() -> int:
    # Each sequence has taken a name, and the names are numbered.
    return int(next(names).removeprefix("protocol-"))


class ProtocolContract(Contract):
    """After any sequence of steps the provider and the model agree."""

    examples_share = 0.25
    """
    The share of the examples of Hypothesis' profile.

    An example is up to 25 steps, each with several statements.
    """

    def test_protocol(self, provider: LockProvider) -> None:
        """Steps of workers, an operator and the time leave store and model equal."""
        examples = max(1, round(self.examples_share * settings().max_examples))
        assert explore(self, provider, examples=examples) >= examples

    def test_late_worker_changes_nothing(self, provider: LockProvider) -> None:
        """A worker whose clock is slow leaves another worker's lock alone."""
        if self.pass_time is None:  # test_late_release_spares_the_next_holder tests it
            return
        for step in ("release", "fence", "extend"):
            played = machine_for(self, provider)()
            arguments = {"at_most": 3} if step == "extend" else {}
            be_late_with(played, step, **arguments)
