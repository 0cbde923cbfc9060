"""What callers learn when the store has done something, and its reply is lost."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.pauses import Pause
from django_shedlock.locks.status import JobState, LockState, RunOutcome
from django_shedlock.providers.base import LockProvider
from django_shedlock.schedules.cron import Schedule
from django_shedlock.testing.contract.harness import (
    HOUR,
    MINUTE,
    Contract,
    configure,
    pause,
    status_of,
    take_from,
)

ALL_REPLIES = 1000
"""No client sends a change again so often."""
YEARLY = Schedule("0 0 1 1 *", "UTC")


class LostReplyContract(Contract):
    """
    A change whose reply is lost is done, or its error ``is_uncertain``.

    It is never reported as refused, and a caller that sends it again learns that it was
    done.
    """

    hooks: tuple[str, ...] = ("lose_replies",)

    @pytest.fixture(params=[1, ALL_REPLIES], ids=["one", "all"])
    def lost_count(self, request: pytest.FixtureRequest) -> int:
        """Return how many replies are lost: a client may send a change again."""
        count: int = request.param
        return count

    @contextmanager
    def losing(self, provider: LockProvider, lost_count: int) -> Iterator[None]:
        """Lose the replies to the body's change, which may raise an uncertain error."""
        assert self.lose_replies is not None
        failure: LockProviderError | None = None
        with self.lose_replies(provider, lost_count):
            try:
                yield
            except LockProviderError as error:
                failure = error
        if failure is not None:
            assert failure.is_uncertain, "the store has done it"
            assert "'job'" in str(failure)

    def test_acquisition_whose_reply_is_lost(
        self, provider: LockProvider, lost_count: int
    ) -> None:
        """Nobody else "holds" it, and the same lock finds that it is its own."""
        lock, holder = Lock(provider, configure()), None
        with self.losing(provider, lost_count):
            holder = provider.acquire(lock)
        assert holder is None
        assert status_of(provider).locked_by == lock.locked_by
        assert provider.acquire(lock) is None
        status = status_of(provider)
        assert status.job == JobState(open_run=lock.locked_by)
        assert status.fencing_token == lock.fencing_token
        assert provider.release(lock)

    def test_tick_whose_reply_is_lost(
        self, provider: LockProvider, lost_count: int
    ) -> None:
        """The same lock runs the tick that it was given."""
        if not provider.keeps_ticks:
            return
        lock = Lock(provider, replace(configure(), schedule=YEARLY))
        holder = None
        with self.losing(provider, lost_count):
            holder = provider.acquire(lock)
        assert holder is None
        assert provider.acquire(lock) is None
        ticks = status_of(provider).schedule_state
        assert lock.tick == ticks.tick == ticks.due_at
        assert provider.release(lock)
        ticks = status_of(provider).schedule_state
        assert lock.tick is not None
        assert ticks.due_at == next(YEARLY.ticks_after(lock.tick))

    def test_acquisition_in_doubt_is_given_back(
        self, provider: LockProvider, lost_count: int
    ) -> None:
        """A caller that does not run the body frees the lock, and leaves no run."""
        take_from(provider, configure()).release()
        before = status_of(provider).job
        lock = Lock(provider, configure(lock_at_least_for=MINUTE))
        with self.losing(provider, lost_count):
            provider.acquire(lock)
        lock.never_began = True
        assert provider.release(lock, succeeded=False)
        status = status_of(provider)
        assert (status.state, status.job) == (LockState.FREE, before)

    def test_killed_run_is_counted_once_although_a_reply_is_lost(
        self, provider: LockProvider, lost_count: int
    ) -> None:
        """The acquisition that is sent again knows the run that it accounted for."""
        killed = take_from(provider, configure(lock_at_most_for=self.short))
        self.outlast(killed)
        lock = Lock(provider, configure())
        with self.losing(provider, lost_count):
            provider.acquire(lock)
        assert provider.acquire(lock) is None
        assert lock.abandoned is not None
        assert lock.abandoned.locked_by == killed.locked_by
        job = status_of(provider).job
        assert (job.failures, job.last_run) == (1, killed.locked_by)

    def test_extension_whose_reply_is_lost(
        self, provider: LockProvider, lost_count: int
    ) -> None:
        """The lock is not lost: its lease is longer, and it can be extended again."""
        lock, extended = take_from(provider, configure()), True
        with self.losing(provider, lost_count):
            extended = provider.extend(lock, HOUR)
        assert extended
        assert status_of(provider).remaining > HOUR / 2
        assert provider.extend(lock, 2 * HOUR)
        assert provider.release(lock)

    @pytest.mark.parametrize("error", [None, ValueError()], ids=["success", "failure"])
    def test_release_whose_reply_is_lost(
        self, provider: LockProvider, lost_count: int, error: ValueError | None
    ) -> None:
        """The release that is sent again is done, and its run is counted once."""
        lock, released = take_from(provider, configure()), True
        with self.losing(provider, lost_count):
            released = lock.release(error)
        assert released
        status = status_of(provider)
        assert (status.state, status.job.last_run) == (LockState.FREE, lock.locked_by)
        lock.was_release_tried = True
        assert provider.release(lock, succeeded=error is None)
        assert status_of(provider).job == status.job
        outcome = RunOutcome.FAILED if error else RunOutcome.SUCCEEDED
        assert (status.job.outcome, status.job.failures) == (outcome, bool(error))
        assert not lock.lost.is_set()

    def test_loss_whose_reply_is_lost(
        self, provider: LockProvider, lost_count: int
    ) -> None:
        """A loss that is written again is counted once."""
        lock = take_from(provider, configure(lock_at_most_for=self.short))
        self.outlast(lock)
        with self.losing(provider, lost_count):
            provider.account_for_loss(lock, has_ended=True)
        provider.account_for_loss(lock, has_ended=True)
        job = status_of(provider).job
        assert (job.outcome, job.failures) == (RunOutcome.LOST, 1)

    def test_forced_release_whose_reply_is_lost(
        self, provider: LockProvider, lost_count: int
    ) -> None:
        """An operator is not told that the lock was another's by then."""
        take_from(provider, configure())
        status, released = status_of(provider), True
        with self.losing(provider, lost_count):
            released = provider.replace(status, ZERO)
        assert released
        assert status_of(provider).state is LockState.FREE

    def test_pause_whose_reply_is_lost(
        self, provider: LockProvider, lost_count: int
    ) -> None:
        """A pause that replaced another one was not too late."""
        pause(provider)
        later, replaced = Pause("bob", "the disk is full").identity(), True
        status = status_of(provider)
        with self.losing(provider, lost_count):
            replaced = provider.replace(status, HOUR, locked_by=later)
        assert replaced
        assert status_of(provider).locked_by == later

    def test_request_whose_reply_is_lost(
        self, provider: LockProvider, lost_count: int
    ) -> None:
        """A request is open once it is made, and closed once it is withdrawn."""
        with self.losing(provider, lost_count):
            provider.request_run("job", "alice", "again")
        job, withdrawn = status_of(provider).job, True
        assert job.asked_by == "alice"
        assert job.asked_at is not None
        with self.losing(provider, lost_count):
            withdrawn = provider.withdraw_request("job", job.asked_at)
        assert withdrawn
        assert status_of(provider).job.asked_at is None
