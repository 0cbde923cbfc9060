"""What a process that died leaves behind, and what another one does with it."""

from dataclasses import replace
from datetime import timedelta

from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import InterruptedBodyError, LockState, RunOutcome
from django_shedlock.providers.base import LockProvider
from django_shedlock.schedules.state import Start
from django_shedlock.testing.contract.harness import (
    HOUR,
    Contract,
    configure,
    let_its_clock_move,
    status_of,
    take_from,
)


def left_behind(lock: Lock) -> Lock:
    """Return the lock of a process that died, as another process knows it."""
    return Lock(lock.provider, lock.configuration, locked_by=lock.locked_by)


class LeftBehindContract(Contract):
    """The lock of a process that died is released by another one."""

    def test_acquisition_has_the_identity_that_was_chosen(
        self, provider: LockProvider
    ) -> None:
        """Whoever chose its random part knows an acquisition without asking."""
        start = Start(acquisition="c0ffee")
        lock = take_from(provider, replace(configure(), start=start))
        assert lock.locked_by.endswith(":c0ffee")
        assert status_of(provider).locked_by == lock.locked_by
        assert provider.release(lock)

    def test_killed_body_is_accounted_for(self, provider: LockProvider) -> None:
        """Its run has failed, and its lock is free at once."""
        acquired = take_from(provider, configure())
        lock = left_behind(acquired)
        assert lock.release(InterruptedBodyError("signal 9"))
        status = status_of(provider)
        assert (status.state, status.job.failures) == (LockState.FREE, 1)
        assert (status.job.outcome, status.job.last_run) == (
            RunOutcome.FAILED,
            acquired.locked_by,
        )
        assert not lock.release(InterruptedBodyError("signal 9"))
        assert status_of(provider).job == status.job

    def test_killed_body_whose_lease_is_over_is_accounted_for(
        self, provider: LockProvider
    ) -> None:
        """It has not lost its lock to anybody, so its run has failed."""
        acquired = take_from(provider, configure(lock_at_most_for=self.short))
        self.outlast(acquired)
        lock = left_behind(acquired)
        lock.lease_end = acquired.lease_end
        assert lock.release(InterruptedBodyError("signal 9"))
        job = status_of(provider).job
        assert (job.outcome, job.lost_run) == (RunOutcome.FAILED, None)

    def test_process_that_holds_nothing_is_left_alone(
        self, provider: LockProvider
    ) -> None:
        """Its lock is another's by now, which is no loss that anybody reports."""
        acquired = take_from(provider, configure())
        assert provider.release(acquired)
        other = take_from(provider, configure())
        before = status_of(provider)
        lock = left_behind(acquired)
        for never_began in (False, True):
            lock.never_began = never_began
            assert not lock.release(InterruptedBodyError("signal 9"))
            assert not lock.is_lost
        after = status_of(provider)
        assert (after.locked_by, after.job) == (before.locked_by, before.job)
        assert provider.release(other)

    def test_process_without_a_record_is_left_alone(
        self, provider: LockProvider
    ) -> None:
        """Nothing is made or changed for an acquisition that never was."""
        lock = Lock(provider, configure(), locked_by="web-1:7:c0ffee")
        assert not lock.release(InterruptedBodyError("signal 9"))
        assert provider.status("job") is None


class DeletionContract(Contract):
    """A record of no use can be deleted."""

    flags: tuple[str, ...] = ("deletes_records",)

    def test_unused_record_is_deleted(self, provider: LockProvider) -> None:
        """After a release it can go, and the next acquisition has a greater token."""
        lock = take_from(provider, configure())
        token = lock.fencing_token
        assert not provider.delete_unused("job", ZERO)
        assert provider.release(lock)
        assert not provider.delete_unused("job", HOUR)
        assert status_of(provider).locked_by == lock.locked_by
        let_its_clock_move(provider)
        assert provider.delete_unused("job", ZERO)
        assert provider.status("job") is None
        assert not provider.delete_unused("job", ZERO)
        # Some stores' tokens are the clock's milliseconds, and may be ahead of it.
        let_its_clock_move(provider, timedelta(milliseconds=50))
        again = take_from(provider, configure())
        assert again.fencing_token > token
        assert provider.release(again)

    def test_lock_without_a_run_is_deleted_after_its_lease(
        self, provider: LockProvider
    ) -> None:
        """Nobody has to release it, as when a beat was killed."""
        wanted = configure(lock_at_most_for=self.short)
        lock = Lock(provider, wanted, opens_run=False)
        assert provider.acquire(lock) is None
        self.outlast(lock)
        let_its_clock_move(provider)
        assert provider.delete_unused("job", ZERO)
        assert provider.status("job") is None

    def test_record_with_an_open_run_is_not_deleted(
        self, provider: LockProvider
    ) -> None:
        """Somebody has to account for the run of a worker that died."""
        lock = take_from(provider, configure(lock_at_most_for=self.short))
        self.outlast(lock)
        let_its_clock_move(provider)
        assert not provider.delete_unused("job", ZERO)
        assert status_of(provider).job.open_run == lock.locked_by

    def test_record_with_a_request_is_not_deleted(self, provider: LockProvider) -> None:
        """Somebody has to carry the request out, or to withdraw it."""
        provider.request_run("job", "alice", "again")
        let_its_clock_move(provider)
        assert not provider.delete_unused("job", ZERO)
        assert status_of(provider).job.asked_by == "alice"
