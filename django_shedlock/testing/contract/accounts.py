"""What the record says about the runs of a job: each is accounted for once."""

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
    """Return whether they are one instant, of a store that read its clock twice."""
    if one is None or other is None:
        return False
    return abs(aware(one) - aware(other)) < timedelta(seconds=5)


def start_for_request(provider: LockProvider) -> Lock:
    """Return a lock, not yet acquired, for a start that has read the open request."""
    asked_at = job_of(provider).asked_at
    assert asked_at is not None
    start = Start(Trigger.OPERATOR, request=asked_at)
    return Lock(provider, replace(configure(), start=start))


def forget_answer(lock: Lock) -> None:
    """Let it be as if the answer to its acquisition was lost."""
    lock.abandoned = lock.known_token = None


class AccountContract(Contract):
    """A run is open until its release, its loss, or somebody else accounts for it."""

    def take_short(self, provider: LockProvider) -> Lock:
        """Acquire the lock with a short lease."""
        return take_from(provider, configure(lock_at_most_for=self.short))

    def kill(self, provider: LockProvider) -> Lock:
        """Let a run begin, and its worker die; return when its lease is over."""
        lock = self.take_short(provider)
        self.outlast(lock)
        return lock

    # --- Runs that end by themselves ---

    def test_acquisition_opens_a_run(self, provider: LockProvider) -> None:
        """Until the run is over, nothing else is known of it."""
        lock = take_from(provider, configure())
        assert lock.abandoned is None
        assert job_of(provider) == JobState(open_run=lock.locked_by)

    def test_body_that_never_began_leaves_no_run(self, provider: LockProvider) -> None:
        """The lock is free at once, and the record is as before the acquisition."""
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
        """Another beat carries it out; a newer request is not overwritten."""
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
        """The next start of a scheduler is for it, too."""
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
        """A thread that a hanging store held up comes after the end of the body."""
        lock = self.kill(provider)
        provider.account_for_loss(lock, has_ended=True)
        ended = job_of(provider)
        assert ended.ended_at is not None
        provider.account_for_loss(lock, has_ended=False)
        assert job_of(provider) == ended

    def test_success_is_accounted_for(self, provider: LockProvider) -> None:
        """The record says whose run it was, when it began and ended, and how."""
        lock = take_from(provider, configure())
        before = status_of(provider)
        lock.began -= 10
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
        assert job.usual == pytest.approx(10, abs=5)
        assert not status_of(provider).needs_look

    def test_failures_are_counted_until_a_success(self, provider: LockProvider) -> None:
        """A success ends the count, and a failure leaves the last success known."""
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
        """It follows the successful runs, and one outlier hardly moves it."""
        expected = None
        for took in (100, 100, 36_000, 90, 1):
            lock = take_from(provider, configure())
            lock.began -= took
            assert provider.release(lock)
            expected = next_usual(expected, took)
            assert job_of(provider).usual == pytest.approx(expected, rel=0.05)

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
        """Its worker died or is late, and nobody has accounted for the run."""
        lock = self.kill(provider)
        assert status_of(provider).state is LockState.EXPIRED
        assert job_of(provider) == JobState(open_run=lock.locked_by)

    def test_next_acquisition_accounts_for_a_killed_run(
        self, provider: LockProvider
    ) -> None:
        """The run is abandoned when the lock is acquired again, and counted once."""
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
        """Four runs are accounted for; the fifth one by the sixth start or by force."""
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
        """A start with a schedule accounts for the run before, as any other does."""
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
        """The run is abandoned at once, and the next acquisition counts none."""
        lock = take_from(provider, configure())
        assert force_release(provider)
        job = job_of(provider)
        assert (job.open_run, job.last_run) == (None, lock.locked_by)
        assert (job.outcome, job.failures) == (RunOutcome.ABANDONED, 1)
        assert status_of(provider).state is LockState.FREE
        take_from(provider, configure())
        assert job_of(provider).failures == 1

    def test_forced_release_of_a_living_run(self, provider: LockProvider) -> None:
        """The run becomes a lost one when it ends, and was counted already."""
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
        """Its run is over, so only the lease is."""
        lock = take_from(provider, configure(lock_at_least_for=MINUTE))
        assert provider.release(lock)
        before = job_of(provider)
        assert force_release(provider)
        assert job_of(provider) == before

    def test_pause_accounts_for_a_killed_run(self, provider: LockProvider) -> None:
        """A pause opens no run, so nothing is counted when it has ended."""
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
        """The job's state stays as it was before both pauses."""
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
        """The run goes on with a longer lease."""
        lock = take_from(provider, configure())
        assert provider.replace(status_of(provider), HOUR)
        assert job_of(provider) == JobState(open_run=lock.locked_by)

    # --- Runs that have lost their locks ---

    def test_loss_is_noticed_before_the_next_start(
        self, provider: LockProvider
    ) -> None:
        """The run is lost while its body goes on, and nobody else counts it."""
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
        """It completes what the loss has written, and counts nothing again."""
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
        """Also if nobody took the lock since: its body ran on without protection."""
        lock = self.kill(provider)
        assert not lock.release()
        job = job_of(provider)
        assert (job.last_run, job.lost_run) == (lock.locked_by, lock.locked_by)
        assert (job.outcome, job.failures) == (RunOutcome.LOST, 1)
        assert (job.open_run, job.ended_at is None) == (None, False)
        assert status_of(provider).state is LockState.FREE

    def test_lost_lock_is_freed(self, provider: LockProvider) -> None:
        """After a loss the release ends the lease, and accounts for nothing more."""
        lock = take_from(provider, configure(lock_at_least_for=MINUTE))
        lock.declare_lost()
        # While the body goes on, nobody waits for the record.
        wait_for(lambda: job_of(provider).outcome == RunOutcome.LOST)
        before = job_of(provider)
        assert provider.release(lock)
        assert status_of(provider).state is LockState.FREE
        assert job_of(provider) == before

    def test_body_ends_after_the_next_has_begun(self, provider: LockProvider) -> None:
        """Its run was counted as abandoned, becomes a lost one, and spares the next."""
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
        """Only the loss is written; the last run is the other one."""
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
        """The job of the deleted record leaves the runs of the new one alone."""
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
        """No number comes twice, whatever became of the record."""
        if self.forget_record is None:
            return
        tokens = []
        for _ in range(3):
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
        """After a lost reply it is ours once, and the run before is counted once."""
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

    @pytest.mark.parametrize("succeeded", [True, False])
    def test_release_that_is_sent_again(
        self, provider: LockProvider, succeeded: bool
    ) -> None:
        """After a lost reply it is done, and the run is counted once."""
        lock = take_from(provider, configure())
        assert provider.release(lock, succeeded=succeeded)
        before = job_of(provider)
        assert not provider.release(lock, succeeded=succeeded)
        lock.was_release_tried = True
        assert provider.release(lock, succeeded=succeeded)
        assert job_of(provider) == before
        take_from(provider, configure())
        assert provider.release(lock, succeeded=succeeded)  # who came next is no loss

    def test_release_of_a_lost_lock_that_is_sent_again(
        self, provider: LockProvider
    ) -> None:
        """An operator accounted for the run, so it was never released."""
        lock = take_from(provider, configure())
        assert force_release(provider)
        lock.was_release_tried = True
        assert not provider.release(lock)

    # --- Acquisitions that are no runs ---

    def test_acquisition_without_a_run(self, provider: LockProvider) -> None:
        """It leaves what is known of the job alone, also if its holder dies."""
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
        """Somebody asks for a run of a job that never ran."""
        provider.request_run("job", "alice", "the mail was wrong")
        status = status_of(provider)
        assert status.state is LockState.FREE
        job = status.job
        assert (job.asked_by, job.asked_why) == ("alice", "the mail was wrong")
        assert job.asked_at is not None
        assert abs(aware(job.asked_at) - aware(provider.now())) < MINUTE

    def test_request_waits_while_the_job_runs(self, provider: LockProvider) -> None:
        """A start for it is refused, and the holder's release leaves it open."""
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
        """Only a start that was made for it carries it out."""
        provider.request_run("job", "alice", "again")
        assert provider.release(take_from(provider, configure()))
        assert job_of(provider).asked_by == "alice"

    @pytest.mark.parametrize("expression", [None, "* * * * *"])
    def test_request_is_carried_out_once(
        self, provider: LockProvider, expression: str | None
    ) -> None:
        """Of two starts that read the same request, one gets the lock."""
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
        """A start that has read the former request does not carry out the new one."""
        provider.request_run("job", "alice", "again")
        former = start_for_request(provider)
        let_its_clock_move(provider)
        provider.request_run("job", "bob", "for another reason")
        assert isinstance(provider.acquire(former), LockHolder)
        assert job_of(provider).asked_by == "bob"
        assert provider.acquire(start_for_request(provider)) is None

    def test_request_that_is_withdrawn(self, provider: LockProvider) -> None:
        """Nobody carries it out any more; another one stays."""
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
        provider.note_unrecorded("job")  # there is no record, and none is made
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
        """Those whose last run failed, was lost or abandoned, or is not recorded."""
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
        """A schedule leaves what is known of the job alone."""
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
