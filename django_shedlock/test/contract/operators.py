"""What operators see of locks, and do to them."""

from __future__ import annotations

import time
from datetime import timedelta

from django_shedlock.locks.configuration import LockConfiguration
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.pauses import Pause
from django_shedlock.locks.states import LockHolder, LockState
from django_shedlock.providers.base import LockProvider
from django_shedlock.schedules.state import Start, Trigger
from django_shedlock.test.contract.harness import (
    HOUR,
    MINUTE,
    Contract,
    configure,
    is_held,
    take_from,
)


def pause(provider: LockProvider, lasting: timedelta = HOUR) -> Lock:
    """Acquire the lock as an operator does, so that its job does not run."""
    start = Start(Trigger.OPERATOR)
    lock = Lock(provider, LockConfiguration("job", lasting, start=start))
    lock.locked_by = Pause("alice", "the mail server moves").identity()
    assert provider.take(lock) is None
    return lock


class OperatorContract(Contract):
    """Statuses tell what the store knows; force releases, extends and pauses."""

    def test_status_of_each_state(self, provider: LockProvider) -> None:
        """Statuses come in the order of names, with states by the store's clock."""
        take_from(provider, configure("a"))
        keep = MINUTE
        provider.release(take_from(provider, configure("b", MINUTE, keep)))
        self.outlast(take_from(provider, configure("c", self.short)))
        provider.release(take_from(provider, configure("d")))
        assert [(s.name, s.state) for s in provider.statuses()] == [
            ("a", LockState.RUNNING),
            ("b", LockState.HELD_AT_LEAST),
            ("c", LockState.EXPIRED),
            ("d", LockState.FREE),
        ]
        assert provider.state_counts() == {
            **dict.fromkeys(LockState, 1),
            LockState.PAUSED: 0,
        }
        assert [s.name for s in provider.statuses("c")] == ["c"]
        assert not list(provider.statuses("z"))

    def test_only_some_locks_are_read(self, provider: LockProvider) -> None:
        """Of the names that are asked for, those that exist; in their order."""
        for name in ("c", "a", "b"):
            take_from(provider, configure(name))
        assert [s.name for s in provider.statuses_of(["c", "z", "a"])] == ["a", "c"]
        assert [*provider.statuses_of([])] == []

    def test_candidates_are_held_or_expired(self, provider: LockProvider) -> None:
        """Free locks are not read; the expired ones come first, each the oldest."""
        provider.release(take_from(provider, configure("free")))
        provider.release(take_from(provider, configure("kept", MINUTE, MINUTE)))
        self.outlast(take_from(provider, configure("dead", self.short)))
        for name in ("older", "newer", "ignored"):
            take_from(provider, configure(name))
            time.sleep(0.002)  # SQLite's clock has milliseconds
        wanted = ["dead", "older", "newer", "ignored", "kept"]
        assert [s.name for s in provider.candidates(MINUTE)] == wanted
        some = provider.candidates(MINUTE, limit=3, ignored=["older", "n?wer", "x*"])
        assert [s.name for s in some] == ["dead", "ignored", "kept"]
        assert [s.name for s in provider.candidates(MINUTE, limit=1)] == ["dead"]

    def test_late_locks_run_for_longer(self, provider: LockProvider) -> None:
        """Only jobs that run, and for longer than this; the longest comes first."""
        provider.release(take_from(provider, configure("kept", MINUTE, MINUTE)))
        self.outlast(take_from(provider, configure("dead", self.short)))
        for name in ("older", "newer"):
            take_from(provider, configure(name))
            time.sleep(0.002)  # so that its job has run for longer than no time
        found = provider.late(None, timedelta(0))
        assert [s.name for s in found] == ["older", "newer"]
        assert [s.name for s in provider.late(None, timedelta(0), limit=1)] == ["older"]
        assert [*provider.late(None, MINUTE)] == [*provider.late(None, None)] == []

    def test_kept_lock_is_force_released(self, provider: LockProvider) -> None:
        """An operator needs no force where no job runs."""
        keep = MINUTE
        lock = take_from(provider, configure(lock_at_least_for=keep))
        assert not provider.force_release("job")
        provider.release(lock)
        assert provider.force_release("job")
        assert not is_held(provider, configure())

    def test_running_lock_is_force_released(self, provider: LockProvider) -> None:
        """With force a running job loses its lock, and its release changes nothing."""
        keep = MINUTE
        lock = take_from(provider, configure(lock_at_least_for=keep))
        assert provider.force_release("job", running=True)
        assert not provider.extend(lock, MINUTE)
        assert not provider.release(lock)
        assert not is_held(provider, configure())

    def test_force_release_of_another_acquisition(self, provider: LockProvider) -> None:
        """Given a holder, only that acquisition's lock is released or extended."""
        lock = take_from(provider, configure())
        assert not provider.force_release("job", running=True, locked_by="someone")
        assert not provider.force_extend("job", 2 * MINUTE, locked_by="someone")
        assert provider.force_extend("job", 2 * MINUTE, locked_by=lock.locked_by)
        assert provider.force_release("job", running=True, locked_by=lock.locked_by)

    def test_force_release_of_a_free_lock(self, provider: LockProvider) -> None:
        """There is nothing to release or extend where nothing is held."""
        provider.release(take_from(provider, configure()))
        assert not provider.force_release("job", running=True)
        assert not provider.force_extend("job", MINUTE)
        assert not provider.force_release("unknown", running=True)

    def test_expired_lock_is_force_released(self, provider: LockProvider) -> None:
        """With force, since its job may still run; whose release is then too late."""
        lock = take_from(provider, configure(lock_at_most_for=self.short))
        self.outlast(lock)
        assert not provider.force_release("job")
        assert not provider.force_release("job", running=True, locked_by="someone")
        assert provider.force_release("job", running=True, locked_by=lock.locked_by)
        assert provider.statuses("job")[0].state is LockState.FREE
        assert not provider.force_release("job", running=True)
        assert not provider.release(lock)

    def test_paused_lock(self, provider: LockProvider) -> None:
        """Nobody acquires it, and only with force it is released."""
        lock = pause(provider)
        [status] = provider.statuses("job")
        assert status.state is LockState.PAUSED
        assert status.pause == Pause("alice", "the mail server moves")
        holder = provider.acquire(configure())
        assert isinstance(holder, LockHolder)
        assert holder.reason == lock.locked_by
        by_operator = LockConfiguration("job", MINUTE, start=Start(Trigger.OPERATOR))
        assert isinstance(provider.acquire(by_operator), LockHolder)
        assert not provider.force_release("job")
        assert provider.force_release("job", running=True, locked_by=lock.locked_by)
        take_from(provider, configure())

    def test_pause_is_taken_over(self, provider: LockProvider) -> None:
        """From the acquisition that is named, and from no other one."""
        before = pause(provider)
        after = Lock(provider, configure())
        after.locked_by = Pause("bob", "the disk is full").identity()
        assert not provider.take_over(after, "someone")
        assert provider.statuses("job")[0].locked_by == before.locked_by
        assert provider.take_over(after, before.locked_by)
        [status] = provider.statuses("job")
        assert (status.locked_by, status.state) == (after.locked_by, LockState.PAUSED)
        assert status.remaining <= MINUTE
        assert not provider.take_over(before, before.locked_by)
        assert not provider.release(before)

    def test_pause_that_has_ended(self, provider: LockProvider) -> None:
        """Nobody died: the lock is free."""
        self.outlast(pause(provider, self.short))
        assert not any(s.state.is_held for s in provider.statuses("job"))
        take_from(provider, configure())

    def test_force_extend_never_shortens(self, provider: LockProvider) -> None:
        """An operator lengthens a lease, and never shortens it."""
        take_from(provider, configure())
        assert provider.force_extend("job", self.short)
        assert provider.force_extend("job", HOUR)
        [status] = provider.statuses("job")
        assert MINUTE < status.remaining <= HOUR

    def test_operator_may_run_a_lock_without_schedule(
        self, provider: LockProvider
    ) -> None:
        """So it is where there are no ticks, only ``lock_at_least_for``."""
        assert provider.release(
            take_from(provider, configure(lock_at_least_for=MINUTE))
        )
        start = Start(Trigger.OPERATOR)
        take_from(provider, LockConfiguration("job", MINUTE, start=start))
