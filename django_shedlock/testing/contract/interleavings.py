"""
Random steps of workers and operators, and what the record must say after each step.

A small model in Python says it. Each step is one call of the provider. After each step
a worker may die, or come back with a call that is too late.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django_shedlock.locks.configuration import ZERO, LockConfiguration
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.pauses import Pause
from django_shedlock.locks.status import LockState, RunOutcome
from django_shedlock.providers.base import LockProvider
from django_shedlock.schedules.state import BY_SCHEDULER, Start, Trigger
from django_shedlock.testing.contract.harness import (
    HOUR,
    Contract,
    let_its_clock_move,
    status_of,
)

STARTED_BY_OPERATOR = Start(Trigger.OPERATOR)


@dataclass
class Accounts:
    """What a record has to say."""

    holder: str = ""
    is_held: bool = False
    is_released: bool = True
    open_run: str | None = None
    last_run: str | None = None
    outcome: str | None = None
    failures: int = 0
    has_end: bool = False
    lost_run: str | None = None
    asked_at: datetime | None = None

    @property
    def state(self) -> LockState:
        if not self.is_held:
            return LockState.EXPIRED if self.open_run else LockState.FREE
        if self.is_released:
            return LockState.HELD_AT_LEAST
        is_paused = Pause.parse(self.holder) is not None
        return LockState.PAUSED if is_paused else LockState.RUNNING

    def abandon(self) -> None:
        """Account for the open run, if there is one, as abandoned."""
        if self.open_run is not None:
            self.account(self.open_run, RunOutcome.ABANDONED)
            self.failures += 1

    def account(self, run: str, outcome: RunOutcome) -> None:
        """Close the open run."""
        self.open_run, self.last_run = None, run
        self.outcome, self.has_end = outcome, True

    def may_start(self, start: Start) -> bool:
        """Return whether this start gets the lock."""
        if start.request is not None and start.request != self.asked_at:
            return False
        is_kept_only = self.is_held and self.is_released
        by_operator = start.trigger is Trigger.OPERATOR
        return not self.is_held or (is_kept_only and by_operator)

    def begin(self, holder: str, start: Start, *, opens_run: bool) -> None:
        """Let the holder acquire the lock."""
        self.abandon()
        self.holder, self.is_held, self.is_released = holder, True, False
        self.open_run = holder if opens_run else None
        if start.request is not None:
            self.asked_at = None

    def end(self, run: str, *, succeeded: bool, is_kept: bool) -> bool:
        """Let this run release the lock; return whether it was its own."""
        if not self.holder == self.open_run == run:
            return False
        outcome = RunOutcome.SUCCEEDED if succeeded else RunOutcome.FAILED
        self.account(run, outcome)
        self.failures = 0 if succeeded else self.failures + 1
        self.is_held, self.is_released = is_kept, True
        return True

    def free(self, holder: str) -> bool:
        """Let a holder without an open run release the lock; return whether it does."""
        if self.holder != holder or self.is_released:
            return False
        self.is_held, self.is_released = False, True
        return True

    def lose(self, run: str, *, has_ended: bool) -> None:
        """Account for the loss of this run."""
        if self.open_run == run:
            self.account(run, RunOutcome.LOST)
            self.failures += 1
            self.has_end = has_ended
        elif self.last_run == run and self.outcome in {
            RunOutcome.ABANDONED,
            RunOutcome.LOST,
        }:
            was_known = self.outcome == RunOutcome.LOST and self.has_end
            self.outcome, self.has_end = RunOutcome.LOST, has_ended or was_known
        self.lost_run = run


class Interleaving:
    """Takes the same random steps with a provider and with the model."""

    def __init__(self, contract: "InterleavingContract", provider: LockProvider):
        self.contract = contract
        self.provider = provider
        self.random: random.Random = random.Random(contract.seed)
        self.record: Accounts | None = None
        self.locks: list[Lock] = []
        often = [self.start, self.release, self.release_again, self.force_release]
        seldom = [self.pause_anew, self.forget]
        steps = [
            *(self.die, self.start_by_operator, self.pause, self.acquire_again),
            *(self.extend, self.lose, self.free, self.end_after_loss, self.request),
            *(self.carry_out, self.carry_out_late, self.withdraw),
        ]
        self.steps: list[Callable[[], None]]
        self.steps = [*(often * 8), *(steps * 3), *seldom]
        self.asked_at: datetime | None = None
        self.newest_token: int = 0

    def step(self) -> None:
        """Take one step, and compare."""
        step = self.random.choice(self.steps)
        step()
        self.compare(step.__name__)

    def compare(self, step: str) -> None:
        """Fail unless the store says what the model does."""
        status, record = self.provider.status("job"), self.record
        if record is None:
            assert status is None, step
            return
        assert status is not None, step
        job = status.job
        told = Accounts(
            status.locked_by,
            status.remaining > ZERO,
            record.is_released,  # the state shows it while the lock is held
            job.open_run,
            job.last_run,
            job.outcome,
            job.failures,
            job.ended_at is not None,
            job.lost_run,
            job.asked_at,
        )
        assert told == record, step
        assert status.state is record.state, step
        assert (job.started_at is None) == (record.last_run is None), step
        assert (job.asked_by is None) == (record.asked_at is None), step

    def some_lock(self) -> Lock | None:
        """Return a lock of one of the last three runs, mostly that of the last run."""
        return self.random.choice(self.locks[-1:] * 3 + self.locks[-3:] or [None])

    def begin(
        self,
        start: Start = BY_SCHEDULER,
        lease: timedelta = HOUR,
        *,
        opens_run: bool = True,
        identity: str | None = None,
    ) -> Lock | None:
        at_least = self.random.choice([ZERO, ZERO, HOUR]) if lease == HOUR else ZERO
        configuration = LockConfiguration("job", lease, at_least, start=start)
        lock = Lock(self.provider, configuration, opens_run=opens_run)
        lock.locked_by = identity or lock.locked_by
        holder = self.provider.acquire(lock)
        record = self.record or Accounts()
        assert (holder is None) == record.may_start(start)
        if holder is not None:
            return None
        abandoned = record.open_run
        record.begin(lock.locked_by, start, opens_run=opens_run)
        self.record = record
        if abandoned is not None:
            assert lock.abandoned is not None
            assert lock.abandoned.locked_by == abandoned
        assert lock.fencing_token > self.newest_token
        self.newest_token = lock.fencing_token
        if opens_run:
            self.locks.append(lock)
        return lock

    def start(self) -> None:
        self.begin()

    def start_by_operator(self) -> None:
        self.begin(STARTED_BY_OPERATOR)

    def die(self) -> None:
        lock = self.begin(lease=self.contract.short)
        if lock is not None and self.record is not None:
            self.contract.end_lease(self.provider, lock)
            self.record.is_held = False

    def pause(self) -> None:
        identity = Pause("alice", "no reason").identity()
        self.begin(STARTED_BY_OPERATOR, opens_run=False, identity=identity)

    def acquire_again(self) -> None:
        lock, record = self.some_lock(), self.record
        if lock and record and record.holder == lock.locked_by == record.open_run:
            assert self.provider.acquire(lock) is None

    def release(self) -> None:
        if (lock := self.some_lock()) is None:
            return
        succeeded = self.random.random() < 0.5
        released = self.provider.release(lock, succeeded=succeeded)
        run, is_kept = lock.locked_by, lock.lock_at_least_for > ZERO
        if self.record is None:
            assert not released
        elif lock.lost.is_set():
            assert released == self.record.free(run)
        else:
            was_ours = self.record.end(run, succeeded=succeeded, is_kept=is_kept)
            assert released == was_ours

    def release_again(self) -> None:
        lock, record = self.some_lock(), self.record
        if lock is None or record is None or lock.lost.is_set():
            return
        has_ended = record.outcome in RunOutcome.of_own_release()
        if has_ended and record.last_run == lock.locked_by:
            lock.was_release_tried = True
            assert self.provider.release(lock)
            lock.was_release_tried = False

    def free(self) -> None:
        """Let a lost run release what is left of its lease."""
        for lock in self.locks[-3:]:
            if lock.lost.is_set():
                released = self.provider.release(lock)
                was_ours = self.record is not None and self.record.free(lock.locked_by)
                assert released == was_ours

    def extend(self) -> None:
        if (lock := self.some_lock()) is None:
            return
        record = self.record
        is_holder = record is not None and record.holder == lock.locked_by
        is_ours = is_holder and record and record.is_held and not record.is_released
        assert self.provider.extend(lock, HOUR) == bool(is_ours)

    def lose(self) -> None:
        if (lock := self.some_lock()) is not None:
            lock.lost.set()
            self.provider.account_for_loss(lock, has_ended=False)
            if self.record is not None:
                self.record.lose(lock.locked_by, has_ended=False)

    def end_after_loss(self) -> None:
        if (lock := self.some_lock()) is not None:
            self.provider.account_for_loss(lock, has_ended=True)
            if self.record is not None:
                self.record.lose(lock.locked_by, has_ended=True)

    def force_release(self) -> None:
        if (record := self.record) is not None:
            released = self.provider.replace(status_of(self.provider), ZERO)
            was_open = record.open_run is not None
            assert released == (record.is_held or was_open)
            if released:
                record.abandon()
                record.is_held, record.is_released = False, True

    def pause_anew(self) -> None:
        if (record := self.record) is not None:
            later = Pause("bob", "another reason").identity()
            status = status_of(self.provider)
            replaced = self.provider.replace(status, HOUR, locked_by=later)
            assert replaced == record.is_held
            if replaced:
                record.begin(later, STARTED_BY_OPERATOR, opens_run=False)
                self.newest_token = status_of(self.provider).fencing_token

    def request(self) -> None:
        self.provider.request_run("job", "alice", "it was wrong")
        self.record = self.record or Accounts()
        self.record.asked_at = status_of(self.provider).job.asked_at
        assert self.record.asked_at is not None

    def carry_out(self) -> None:
        if self.record is not None and self.record.asked_at is not None:
            self.asked_at = self.record.asked_at
            self.begin(Start(Trigger.OPERATOR, request=self.asked_at))

    def carry_out_late(self) -> None:
        """Start for a request that may be closed or replaced by now."""
        if self.asked_at is not None:
            self.begin(Start(Trigger.OPERATOR, request=self.asked_at))

    def withdraw(self) -> None:
        if self.asked_at is not None:
            withdrawn = self.provider.withdraw_request("job", self.asked_at)
            record = self.record
            is_open = record is not None and record.asked_at == self.asked_at
            assert withdrawn == is_open
            if record is not None and is_open:
                record.asked_at = None

    def forget(self) -> None:
        """Let somebody delete the record."""
        if self.contract.forget_record is not None:
            self.contract.forget_record(self.provider, "job")
            self.record = None
            # Some stores' tokens are the clock's milliseconds, and may be ahead of it.
            let_its_clock_move(self.provider, timedelta(milliseconds=50))


class InterleavingContract(Contract):
    """After any order of single steps, the record says what it has to say."""

    steps = 300
    """How many random steps are taken."""
    seed = 1
    """Another seed leads to other steps."""

    def test_interleaved_steps(self, provider: LockProvider) -> None:
        """Each run is accounted for once, whatever happens in between."""
        interleaving = Interleaving(self, provider)
        for _ in range(self.steps):
            interleaving.step()
