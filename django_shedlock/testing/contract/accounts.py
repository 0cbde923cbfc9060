"""The accounts of runs: the record accounts for each run of a job once."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from django_shedlock.clocks import aware
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.pauses import Pause
from django_shedlock.locks.status import (
    JobState,
    LockHolder,
    LockState,
    RunOutcome,
    next_usual,
)
from django_shedlock.providers.base import LockProvider, LockQuery
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import Start, Trigger
from django_shedlock.testing.contract.harness import (
    HOUR,
    MINUTE,
    Contract,
    configure,
    force_release,
    let_its_clock_move,
    pause,
    status_of,
    take_from,
    try_from,
    wait_for,
)


def job_of(provider: LockProvider) -> JobState:
    """Return what the record says about the runs of the job."""
    return status_of(provider).job


def is_same_instant(one: datetime | None, other: datetime | None) -> bool:
    """Return whether both are the same instant, which a store may read twice."""
    if one is None or other is None:
        return False
    return abs(aware(one) - aware(other)) < timedelta(seconds=5)


def start_for_request(provider: LockProvider) -> Lock:
    """Return a lock, not yet acquired, for a start that carries out the request."""
    asked_at = job_of(provider).asked_at
    assert asked_at is not None
    start = Start(Trigger.OPERATOR, request=asked_at)
    return Lock(provider, replace(configure(), start=start))


def forget_answer(lock: Lock) -> None:
    """Forget what the store answered to the acquisition, as if the reply was lost."""
    lock.abandoned = lock.known_token = None


class AccountContract(Contract):
    """A run is open until it is released or lost, or somebody else accounts for it."""

    def take_short(self, provider: LockProvider) -> Lock:
        """Acquire the lock with a short lease."""
        return take_from(provider, configure(lock_at_most_for=self.short))

    def kill(self, provider: LockProvider) -> Lock:
        """Let a run begin, its worker die, and its lease end; return its lock."""
        lock = self.take_short(provider)
        self.outlast(lock)
        return lock

    # --- Runs that end by themselves ---

    def test_acquisition_opens_a_run(self, provider: LockProvider) -> None:
        """An acquisition opens a run, about which nothing else is known yet."""
        lock = take_from(provider, configure())
        assert lock.abandoned is None
        assert job_of(provider) == JobState(open_run=lock.locked_by)

    def test_body_that_never_began_leaves_no_run(self, provider: LockProvider) -> None:
        """If a body never began, its lock is free and the record is as before."""
        take_from(provider, configure()).release()
        before = job_of(provider)
        kept = configure(lock_at_least_for=MINUTE)
        lock = take_from(provider, kept)
        lock.never_began = True
        assert provider.release(lock, succeeded=False)
        assert job_of(provider) == before
        assert status_of(provider, "job").state is LockState.FREE

    def test_request_of_a_body_that_never_began_is_open_again(
        self, provider: LockProvider
    ) -> None:
        """A body that never began leaves its request open, or the newer request."""
        take_from(provider, configure()).release()
        for is_asked_again in (False, True):
            provider.request_run("job", "alice", "half of it failed")
            before = job_of(provider)
            start = Start(
                Trigger.OPERATOR, None, "alice", "half of it failed", before.asked_at
            )
            lock = Lock(provider, replace(configure(), start=start))
            assert provider.acquire(lock) is None
            assert job_of(provider).asked_at is None
            if is_asked_again:
                provider.request_run("job", "bob", "and once more")
            lock.never_began = True
            assert provider.release(lock, succeeded=False)
            after = job_of(provider)
            if is_asked_again:
                assert (after.asked_by, after.asked_why) == ("bob", "and once more")
            else:
                assert after == before

    def test_tick_of_a_body_that_never_began_is_not_used_up(
        self, provider: LockProvider
    ) -> None:
        """If a body never began, the next start of a scheduler runs the same tick."""
        if not provider.keeps_ticks:
            return
        yearly = replace(configure(), schedule=Schedule("0 0 1 1 *", "UTC"))
        lock = take_from(provider, yearly)
        lock.never_began = True
        assert provider.release(lock, succeeded=False)
        again = take_from(provider, yearly)
        assert again.tick == lock.tick
        assert provider.release(again)
        assert isinstance(try_from(provider, yearly), LockHolder)

    def test_loss_that_is_written_late_does_not_undo_the_end(
        self, provider: LockProvider
    ) -> None:
        """A loss that is written after the end of its body does not undo that end."""
        lock = self.kill(provider)
        provider.account_for_loss(lock, has_ended=True)
        ended = job_of(provider)
        assert ended.ended_at is not None
        provider.account_for_loss(lock, has_ended=False)
        assert job_of(provider) == ended

    def test_success_is_accounted_for(self, provider: LockProvider) -> None:
        """After a success the record has the run, its times and its outcome."""
        lock = take_from(provider, configure())
        before = status_of(provider)
        lock.ended = lock.began + 10
        assert provider.release(lock)
        job = job_of(provider)
        assert (job.open_run, job.last_run) == (None, lock.locked_by)
        assert (job.outcome, job.failures) == (RunOutcome.SUCCEEDED, 0)
        assert job.started_at is not None
        assert job.ended_at is not None
        assert is_same_instant(job.started_at, before.locked_at)
        assert is_same_instant(job.succeeded_at, job.ended_at)
        assert job.last_duration is not None
        assert ZERO <= job.last_duration < MINUTE
        assert job.usual == pytest.approx(10)
        assert not status_of(provider).needs_look

    def test_failures_are_counted_until_a_success(self, provider: LockProvider) -> None:
        """A success resets the failure count; a failure keeps the last success."""
        assert provider.release(take_from(provider, configure()))
        success = job_of(provider)
        for number in (1, 2):
            let_its_clock_move(provider)
            lock = take_from(provider, configure())
            assert provider.release(lock, succeeded=False)
            job = job_of(provider)
            assert (job.outcome, job.failures) == (RunOutcome.FAILED, number)
            assert (job.last_run, job.open_run) == (lock.locked_by, None)
            assert job.succeeded_at == success.succeeded_at
            assert job.ended_at != success.ended_at
            assert job.usual == success.usual
            assert status_of(provider).needs_look
        assert provider.release(take_from(provider, configure()))
        job = job_of(provider)
        assert (job.outcome, job.failures) == (RunOutcome.SUCCEEDED, 0)
        assert is_same_instant(job.succeeded_at, job.ended_at)
        assert job.succeeded_at != success.succeeded_at

    def test_usual_duration(self, provider: LockProvider) -> None:
        """The usual duration follows successes, and one outlier hardly moves it."""
        expected = None
        for took in (100, 100, 36_000, 90, 1):
            lock = take_from(provider, configure())
            lock.ended = lock.began + took
            assert provider.release(lock)
            expected = next_usual(expected, took)
            assert job_of(provider).usual == pytest.approx(expected, rel=0.001)

    def test_kept_lock_has_no_open_run(self, provider: LockProvider) -> None:
        """While ``lock_at_least_for`` keeps the lock, its run is over."""
        lock = take_from(provider, configure(lock_at_least_for=MINUTE))
        assert provider.release(lock)
        assert status_of(provider).state is LockState.HELD_AT_LEAST
        assert job_of(provider).outcome == RunOutcome.SUCCEEDED
        start = Start(Trigger.OPERATOR)
        by_operator = take_from(provider, replace(configure(), start=start))
        assert by_operator.abandoned is None
        job = job_of(provider)
        assert (job.open_run, job.failures) == (by_operator.locked_by, 0)

    @pytest.mark.parametrize("at_least", [ZERO, MINUTE], ids=["free", "kept"])
    def test_extended_run_stays_open(
        self, provider: LockProvider, at_least: timedelta
    ) -> None:
        """An extension or a heartbeat accounts for nothing."""
        lock = take_from(provider, configure(lock_at_least_for=at_least))
        assert provider.extend(lock, HOUR)
        assert provider.heartbeat(lock)
        assert status_of(provider).heartbeat_at is not None
        assert job_of(provider) == JobState(open_run=lock.locked_by)
        assert provider.release(lock)
        assert job_of(provider).failures == 0

    # --- Runs whose workers died ---

    def test_expired_lock_has_an_open_run(self, provider: LockProvider) -> None:
        """An expired lock has an open run: its worker died or is late."""
        lock = self.kill(provider)
        assert status_of(provider).state is LockState.EXPIRED
        assert job_of(provider) == JobState(open_run=lock.locked_by)

    def test_next_acquisition_accounts_for_a_killed_run(
        self, provider: LockProvider
    ) -> None:
        """The next acquisition counts a killed run once, as abandoned."""
        killed = self.kill(provider)
        lease_end = status_of(provider).lock_until
        lock = take_from(provider, configure())
        job = job_of(provider)
        assert (job.open_run, job.last_run) == (lock.locked_by, killed.locked_by)
        assert (job.outcome, job.failures) == (RunOutcome.ABANDONED, 1)
        assert job.succeeded_at is None
        assert job.started_at is not None
        assert job.ended_at is not None
        assert abs(aware(job.ended_at) - aware(lease_end)) < MINUTE
        assert job.started_at <= job.ended_at
        assert lock.abandoned is not None
        assert lock.abandoned.locked_by == killed.locked_by
        assert lock.abandoned.started_at == aware(job.started_at)
        assert lock.abandoned.ended_at == aware(job.ended_at)
        assert provider.release(lock)
        job = job_of(provider)
        assert (job.outcome, job.failures) == (RunOutcome.SUCCEEDED, 0)
        assert take_from(provider, configure()).abandoned is None

    @pytest.mark.parametrize("by_force", [False, True], ids=["next", "by force"])
    def test_job_that_was_killed_five_times(
        self, provider: LockProvider, by_force: bool
    ) -> None:
        """Each killed run is counted by the next start, the last one also by force."""
        abandoned = []
        for _ in range(5):
            lock = self.take_short(provider)
            abandoned.append(lock.abandoned and lock.abandoned.locked_by)
            last = lock.locked_by
            self.outlast(lock)
        assert job_of(provider).failures == 4
        assert status_of(provider).state is LockState.EXPIRED
        assert len(set(abandoned)) == 5
        if by_force:
            assert force_release(provider)
        else:
            take_from(provider, configure())
        job = job_of(provider)
        assert (job.failures, job.last_run) == (5, last)
        assert job.outcome == RunOutcome.ABANDONED

    def test_tick_accounts_for_a_killed_run(self, provider: LockProvider) -> None:
        """A start with a schedule accounts for the run before, like any other start."""
        if not provider.keeps_ticks:
            return
        killed = self.kill(provider)
        schedule = Schedule("* * * * *", "UTC")
        lock = take_from(provider, replace(configure(), schedule=schedule))
        job = job_of(provider)
        assert (job.open_run, job.last_run) == (lock.locked_by, killed.locked_by)
        assert (job.outcome, job.failures) == (RunOutcome.ABANDONED, 1)
        assert lock.abandoned is not None
        assert provider.release(lock)
        assert job_of(provider).outcome == RunOutcome.SUCCEEDED

    # --- What operators do ---

    def test_forced_release_accounts_for_a_dead_run(
        self, provider: LockProvider
    ) -> None:
        """A forced release counts a dead run, and the next acquisition counts none."""
        lock = take_from(provider, configure())
        assert force_release(provider)
        job = job_of(provider)
        assert (job.open_run, job.last_run) == (None, lock.locked_by)
        assert (job.outcome, job.failures) == (RunOutcome.ABANDONED, 1)
        assert status_of(provider).state is LockState.FREE
        take_from(provider, configure())
        assert job_of(provider).failures == 1

    def test_forced_release_of_a_living_run(self, provider: LockProvider) -> None:
        """A run whose lock is force-released is counted once, and ends as lost."""
        lock = take_from(provider, configure())
        assert force_release(provider)
        assert not provider.release(lock)
        provider.account_for_loss(lock, has_ended=True)
        job = job_of(provider)
        assert (job.outcome, job.failures) == (RunOutcome.LOST, 1)
        assert (job.last_run, job.lost_run) == (lock.locked_by, lock.locked_by)
        assert job.lost_at is not None
        assert job.ended_at is not None

    def test_forced_release_of_a_kept_lock_accounts_for_nothing(
        self, provider: LockProvider
    ) -> None:
        """A forced release of a kept lock ends its lease, and counts no run."""
        lock = take_from(provider, configure(lock_at_least_for=MINUTE))
        assert provider.release(lock)
        before = job_of(provider)
        assert force_release(provider)
        assert job_of(provider) == before

    def test_pause_accounts_for_a_killed_run(self, provider: LockProvider) -> None:
        """A pause accounts for a killed run, and opens no run of its own."""
        killed = self.kill(provider)
        paused = pause(provider, self.short)
        job = job_of(provider)
        assert (job.open_run, job.last_run) == (None, killed.locked_by)
        assert (job.outcome, job.failures) == (RunOutcome.ABANDONED, 1)
        self.outlast(paused)
        assert status_of(provider).state is LockState.FREE
        take_from(provider, configure())
        assert job_of(provider).failures == 1

    def test_pause_that_replaces_a_pause_opens_no_run(
        self, provider: LockProvider
    ) -> None:
        """A pause that replaces another leaves the job's state as before both."""
        assert provider.release(take_from(provider, configure()))
        before = job_of(provider)
        pause(provider)
        later = Pause("bob", "the disk is full").identity()
        assert provider.replace(status_of(provider), HOUR, locked_by=later)
        assert job_of(provider) == before
        assert force_release(provider)
        assert job_of(provider) == before

    def test_forced_extension_accounts_for_nothing(
        self, provider: LockProvider
    ) -> None:
        """A forced extension lengthens the lease, and the run stays open."""
        lock = take_from(provider, configure())
        assert provider.replace(status_of(provider), HOUR)
        assert job_of(provider) == JobState(open_run=lock.locked_by)

    # --- Runs that have lost their locks ---

    def test_loss_is_noticed_before_the_next_start(
        self, provider: LockProvider
    ) -> None:
        """A noticed loss is counted once, and the body may still run."""
        lock = self.kill(provider)
        provider.account_for_loss(lock, has_ended=False)
        job = job_of(provider)
        assert (job.open_run, job.last_run) == (None, lock.locked_by)
        assert (job.outcome, job.failures) == (RunOutcome.LOST, 1)
        assert job.started_at is not None
        assert job.ended_at is None
        assert job.may_still_run
        assert status_of(provider).state is LockState.FREE
        other = take_from(provider, configure())
        assert other.abandoned is None
        assert job_of(provider).failures == 1

    def test_end_of_a_lost_run(self, provider: LockProvider) -> None:
        """The end of a lost run completes its account, and counts nothing again."""
        lock = self.kill(provider)
        provider.account_for_loss(lock, has_ended=False)
        lost = job_of(provider)
        let_its_clock_move(provider)
        provider.account_for_loss(lock, has_ended=True)
        job = job_of(provider)
        assert job.ended_at is not None
        assert not job.may_still_run
        assert replace(job, ended_at=None) == lost

    def test_late_release_is_a_loss(self, provider: LockProvider) -> None:
        """A late release is a loss, even if nobody acquired the lock since."""
        lock = self.kill(provider)
        assert not lock.release()
        job = job_of(provider)
        assert (job.last_run, job.lost_run) == (lock.locked_by, lock.locked_by)
        assert (job.outcome, job.failures) == (RunOutcome.LOST, 1)
        assert (job.open_run, job.ended_at is None) == (None, False)
        assert status_of(provider).state is LockState.FREE

    def test_lost_lock_is_freed(self, provider: LockProvider) -> None:
        """After a loss, the release ends the lease and accounts for nothing more."""
        lock = take_from(provider, configure(lock_at_least_for=MINUTE))
        lock.declare_lost()

        def is_lost() -> bool:
            return job_of(provider).outcome == RunOutcome.LOST

        wait_for(is_lost)  # the record is written in the background
        before = job_of(provider)
        assert provider.release(lock)
        assert status_of(provider).state is LockState.FREE
        assert job_of(provider) == before

    def test_body_ends_after_the_next_has_begun(self, provider: LockProvider) -> None:
        """An abandoned run that ends during the next run becomes a lost run."""
        late = self.kill(provider)
        other = take_from(provider, configure())
        assert not provider.release(late)
        provider.account_for_loss(late, has_ended=True)
        job = job_of(provider)
        assert (job.open_run, job.last_run) == (other.locked_by, late.locked_by)
        assert (job.outcome, job.failures) == (RunOutcome.LOST, 1)
        assert job.lost_run == late.locked_by
        assert provider.release(other)
        job = job_of(provider)
        assert (job.last_run, job.outcome) == (other.locked_by, RunOutcome.SUCCEEDED)
        assert job.failures == 0

    def test_body_ends_after_the_next_has_ended(self, provider: LockProvider) -> None:
        """If a lost run ends after the next one, only its loss is written."""
        late = self.kill(provider)
        assert provider.release(take_from(provider, configure()))
        before = job_of(provider)
        provider.account_for_loss(late, has_ended=True)
        job = job_of(provider)
        assert job.lost_run == late.locked_by
        assert job.lost_at is not None
        assert replace(job, lost_at=None, lost_run=None) == before

    def test_record_that_is_deleted_while_a_job_runs(
        self, provider: LockProvider
    ) -> None:
        """A job whose record was deleted leaves the runs of the new record alone."""
        if self.forget_record is None:
            return
        late = take_from(provider, configure())
        self.forget_record(provider, "job")
        provider.account_for_loss(late, has_ended=True)
        assert provider.status("job") is None
        other = take_from(provider, configure())
        assert not provider.release(late)
        provider.account_for_loss(late, has_ended=True)
        job = job_of(provider)
        assert (job.open_run, job.last_run) == (other.locked_by, None)
        assert (job.outcome, job.failures) == (None, 0)
        assert provider.release(other)

    def test_token_grows_over_a_deleted_record(self, provider: LockProvider) -> None:
        """No token comes twice, even if the record is deleted, or made by others."""
        if self.forget_record is None:
            return
        tokens = []
        for _ in range(3):
            provider.register("job", Schedule("@hourly", "UTC"))
            lock = take_from(provider, configure())
            tokens.append(lock.fencing_token)
            assert provider.release(lock)
            self.forget_record(provider, "job")
            let_its_clock_move(provider, timedelta(milliseconds=2))
        assert tokens == sorted(set(tokens))

    # --- Requests that are sent again ---

    @pytest.mark.parametrize("is_over", [False, True], ids=["held", "expired"])
    def test_acquisition_that_is_sent_again(
        self, provider: LockProvider, is_over: bool
    ) -> None:
        """An acquisition repeated after a lost reply counts the run before once."""
        killed = self.kill(provider)
        lock = self.take_short(provider)
        if is_over:
            self.outlast(lock)
        forget_answer(lock)
        assert provider.acquire(lock) is None
        job = job_of(provider)
        assert (job.open_run, job.last_run) == (lock.locked_by, killed.locked_by)
        assert job.failures == 1
        assert lock.abandoned is not None
        assert lock.abandoned.locked_by == killed.locked_by

    @pytest.mark.parametrize("outcome", sorted(RunOutcome.of_own_release()))
    def test_release_that_is_sent_again(
        self, provider: LockProvider, outcome: RunOutcome
    ) -> None:
        """A release that is repeated after a lost reply counts the run once."""
        lock = take_from(provider, configure())
        succeeded = not outcome.is_bad
        if outcome.is_bad:
            lock.failed_outcome = outcome
        assert provider.release(lock, succeeded=succeeded)
        before = job_of(provider)
        assert (before.outcome, before.failures) == (outcome, outcome.is_bad)
        assert not provider.release(lock, succeeded=succeeded)
        lock.was_release_tried = True
        assert provider.release(lock, succeeded=succeeded)
        assert job_of(provider) == before
        take_from(provider, configure())
        # A later acquisition does not turn the release into a loss.
        assert provider.release(lock, succeeded=succeeded)

    def test_release_of_a_lost_lock_that_is_sent_again(
        self, provider: LockProvider
    ) -> None:
        """A repeated release fails if an operator has accounted for the run."""
        lock = take_from(provider, configure())
        assert force_release(provider)
        lock.was_release_tried = True
        assert not provider.release(lock)

    # --- Acquisitions that are no runs ---

    def test_acquisition_without_a_run(self, provider: LockProvider) -> None:
        """An acquisition without a run never changes what is known about the job."""
        assert provider.release(take_from(provider, configure()))
        before = job_of(provider)
        for is_released in (True, False):
            lock = Lock(
                provider, configure(lock_at_most_for=self.short), opens_run=False
            )
            assert provider.acquire(lock) is None
            assert job_of(provider) == before
            if is_released:
                assert provider.release(lock)
            else:
                self.outlast(lock)
            assert status_of(provider).state is LockState.FREE
            assert job_of(provider) == before

    # --- Requests to run now ---

    def test_request_is_on_the_record(self, provider: LockProvider) -> None:
        """The record keeps a request for a run of a job that never ran."""
        provider.request_run("job", "alice", "the mail was wrong")
        status = status_of(provider)
        assert status.state is LockState.FREE
        job = status.job
        assert (job.asked_by, job.asked_why) == ("alice", "the mail was wrong")
        assert job.asked_at is not None
        assert abs(aware(job.asked_at) - aware(provider.now())) < MINUTE

    def test_request_waits_while_the_job_runs(self, provider: LockProvider) -> None:
        """A request stays open while the job runs, and is carried out after it."""
        lock = take_from(provider, configure())
        provider.request_run("job", "alice", "again")
        start = start_for_request(provider)
        holder = provider.acquire(start)
        assert isinstance(holder, LockHolder)
        assert holder.locked_by == lock.locked_by
        assert provider.release(lock)
        assert job_of(provider).asked_by == "alice"
        assert provider.acquire(start) is None
        assert job_of(provider).asked_at is None

    def test_ordinary_start_leaves_a_request_open(self, provider: LockProvider) -> None:
        """An ordinary start leaves a request open."""
        provider.request_run("job", "alice", "again")
        assert provider.release(take_from(provider, configure()))
        assert job_of(provider).asked_by == "alice"

    @pytest.mark.parametrize("expression", [None, "* * * * *"])
    def test_request_is_carried_out_once(
        self, provider: LockProvider, expression: str | None
    ) -> None:
        """If two starts read the same request, one of them acquires the lock."""
        if expression and not provider.keeps_ticks:
            return
        provider.request_run("job", "alice", "again")
        first, second = (start_for_request(provider) for _ in range(2))
        if expression:
            schedule = Schedule(expression, "UTC")
            for lock in (first, second):
                lock.configuration = replace(lock.configuration, schedule=schedule)
        assert provider.acquire(first) is None
        job = job_of(provider)
        assert (job.asked_at, job.asked_by, job.asked_why) == (None, None, None)
        assert provider.release(first)
        assert isinstance(provider.acquire(second), LockHolder)
        assert job_of(provider).last_run == first.locked_by

    def test_request_that_is_made_anew(self, provider: LockProvider) -> None:
        """A start for a former request does not carry out a newer one."""
        provider.request_run("job", "alice", "again")
        former = start_for_request(provider)
        let_its_clock_move(provider)
        provider.request_run("job", "bob", "for another reason")
        assert isinstance(provider.acquire(former), LockHolder)
        assert job_of(provider).asked_by == "bob"
        assert provider.acquire(start_for_request(provider)) is None

    def test_request_that_is_withdrawn(self, provider: LockProvider) -> None:
        """A withdrawn request is not carried out, and other requests stay."""
        provider.request_run("job", "alice", "again")
        lock, asked_at = start_for_request(provider), job_of(provider).asked_at
        assert asked_at is not None
        assert not provider.withdraw_request("job", asked_at - MINUTE)
        assert job_of(provider).asked_by == "alice"
        assert provider.withdraw_request("job", asked_at)
        assert job_of(provider).asked_at is None
        assert not provider.withdraw_request("job", asked_at)
        assert isinstance(provider.acquire(lock), LockHolder)
        assert not provider.withdraw_request("unknown", asked_at)

    # --- What people look for ---

    def test_gap_in_the_history_is_noted(self, provider: LockProvider) -> None:
        """The record says when a run could not be written to the history."""
        provider.note_unrecorded("job")  # there is no record, and this makes none
        assert provider.status("job") is None
        lock = take_from(provider, configure())
        assert provider.release(lock)
        before = job_of(provider)
        provider.note_unrecorded("job")
        job = job_of(provider)
        assert job.unrecorded_at is not None
        assert replace(job, unrecorded_at=None) == before
        assert job.is_unrecorded
        assert status_of(provider).needs_look

    def test_jobs_that_need_a_look_are_found(self, provider: LockProvider) -> None:
        """Jobs whose last run failed, was lost, abandoned or not recorded are found."""
        for name in ("good", "failed", "lost", "gap"):
            lock = take_from(provider, configure(name))
            if name == "lost":
                provider.account_for_loss(lock, has_ended=True)
            provider.release(lock, succeeded=name != "failed")
        provider.note_unrecorded("gap")
        take_from(provider, configure("abandoned"))
        assert force_release(provider, "abandoned")
        take_from(provider, configure("running"))
        found = [each.name for each in provider.statuses(LockQuery(needs_look=True))]
        assert found == ["abandoned", "failed", "gap", "lost"]
        only = LockQuery(needs_look=True, states=[LockState.RUNNING])
        assert provider.count(only) == len(found) + 1

    def test_requested_lock_is_registered(self, provider: LockProvider) -> None:
        """Registering a schedule leaves the job's state and its request alone."""
        if not provider.keeps_ticks:
            return
        self.kill(provider)
        provider.request_run("job", "alice", "again")
        before = job_of(provider)
        provider.register("job", Schedule("@hourly", "UTC"))
        status = status_of(provider)
        assert status.schedule is not None
        assert status.job == before
        assert isinstance(try_from(provider, configure()), Lock)
