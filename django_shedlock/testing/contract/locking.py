"""What a lock does: exclusion, the lease, its extension, its release, its token."""

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import ClassVar

import pytest
from django.test import override_settings
from django.utils import timezone

from django_shedlock.background import closing
from django_shedlock.durations import LONGEST_DURATION
from django_shedlock.exceptions import InvalidLockConfiguration, LockLost
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockHolder, LockState
from django_shedlock.providers.base import LockProvider, LockQuery
from django_shedlock.testing.contract.harness import (
    HOUR,
    MINUTE,
    Contract,
    configure,
    is_held,
    status_of,
    take_at_last,
    take_from,
    try_from,
    wait_until_free,
)
from django_shedlock.testing.processes import HANG_LIMIT_SECONDS

ODD_NAMES = (
    *("job", "a/b", "a%2Fb", "a.b", "a b", ".", "..", "x:y", ":seen", "#name"),
    *("*", "[x]", "}", "a{b}c", "$lockUntil", "$$NOW", "zookeeper"),
    *("grün", "日本/:", "😀"),
)
"""Names that would mean something in some stores."""


class LockingContract(Contract):
    """A lock excludes all others until it is released, or its lease is over."""

    def test_lock_is_created_and_freed(self, provider: LockProvider) -> None:
        """A released lock can be acquired again."""
        lock = take_from(provider, configure())
        assert is_held(provider, configure())
        assert provider.release(lock)
        assert not is_held(provider, configure())

    def test_second_holder_is_told_who_holds(self, provider: LockProvider) -> None:
        """The second caller learns the holder and what is left of the lease."""
        lock = take_from(provider, configure())
        holder = try_from(provider, configure())
        assert isinstance(holder, LockHolder)
        assert holder.locked_by == lock.locked_by
        assert timedelta(0) < holder.remaining <= MINUTE

    def test_two_locks_are_independent(self, provider: LockProvider) -> None:
        """Releasing one lock leaves the other one held."""
        first = take_from(provider, configure("first"))
        take_from(provider, configure("second"))
        provider.release(first)
        assert not is_held(provider, configure("first"))
        assert is_held(provider, configure("second"))

    def test_lock_twice_in_a_row(self, provider: LockProvider) -> None:
        """The same caller acquires and releases a lock again and again."""
        for _ in range(2):
            assert provider.release(take_from(provider, configure()))

    def test_lease_times_out(self, provider: LockProvider) -> None:
        """A lock that nobody releases is free when its lease is over, not before."""
        lease, started = self.at_least(timedelta(milliseconds=400)), time.monotonic()
        take_from(provider, configure(lock_at_most_for=lease))
        wait_until_free(provider)
        assert time.monotonic() - started >= lease.total_seconds()

    def test_longest_lease(self, provider: LockProvider) -> None:
        """The longest lease of all is held."""
        take_from(provider, configure(lock_at_most_for=LONGEST_DURATION))
        assert is_held(provider, configure())

    def test_too_short_a_lease_is_refused(self, provider: LockProvider) -> None:
        """A lease that the store can't end in time is refused before the job runs."""
        shortest = provider.shortest_lease
        if shortest:
            with pytest.raises(InvalidLockConfiguration, match=r"'job'.*shortest"):
                try_from(provider, configure(lock_at_most_for=shortest / 2))
        take_from(provider, configure(lock_at_most_for=max(shortest, MINUTE)))

    def test_taken_ten_times_right_after_release(self, provider: LockProvider) -> None:
        """A lock can be acquired in the very instant after its release."""
        configuration = configure()
        for _ in range(10):
            assert provider.release(take_from(provider, configuration))

    def test_kept_for_lock_at_least_for(self, provider: LockProvider) -> None:
        """After a short run the lock stays held, but no longer than necessary."""
        keep = self.at_least(timedelta(milliseconds=400))
        started = time.monotonic()
        lock = take_from(provider, configure(lock_at_least_for=keep))
        assert provider.release(lock)
        was_held = is_held(provider, configure())
        assert was_held or time.monotonic() - started > keep.total_seconds()
        wait_until_free(provider)

    def test_two_of_four_minutes_at_least(self, provider: LockProvider) -> None:
        """A lock of 4 m at most and 2 m at least, released at once, stays for 2 m."""
        two, four = 2 * MINUTE, 4 * MINUTE
        provider.release(take_from(provider, configure("job", four, two)))
        status = status_of(provider)
        assert status.state is LockState.HELD_AT_LEAST
        assert timedelta(0) < status.remaining <= two

    def test_holder_whose_run_is_over(self, provider: LockProvider) -> None:
        """The second caller learns whether the lock is held by a run, or only kept."""
        lock = take_from(provider, configure(lock_at_least_for=MINUTE))
        running = try_from(provider, configure())
        assert provider.release(lock)
        kept = try_from(provider, configure())
        assert isinstance(running, LockHolder)
        assert isinstance(kept, LockHolder)
        assert (running.has_ended, kept.has_ended) == (False, True)
        assert running.locked_by == kept.locked_by == lock.locked_by

    def test_extend(self, provider: LockProvider) -> None:
        """An extended lock outlives its first lease."""
        lease = self.at_least(timedelta(milliseconds=600))
        lock = take_from(provider, configure(lock_at_most_for=lease))
        while not provider.extend(lock, MINUTE):
            assert not lock.remaining()  # the machine is too slow for so short a lease
            lock = take_from(provider, configure(lock_at_most_for=lease))
        time.sleep(lease.total_seconds())
        assert is_held(provider, configure())
        assert provider.release(lock)

    def test_extend_three_times(self, provider: LockProvider) -> None:
        """A lock can be extended again and again; each extension counts from now."""
        lock = take_from(provider, configure(lock_at_most_for=HOUR / 2))
        for lease in (HOUR, 2 * HOUR, 3 * HOUR):
            assert provider.extend(lock, lease)
            status = status_of(provider)
            assert lease - HOUR / 2 < status.remaining <= lease

    def test_expired_lock_is_not_extended(self, provider: LockProvider) -> None:
        """A lease that is over in the store stays over, whatever its holder counts."""
        lock = take_from(provider, configure(lock_at_most_for=self.short))
        self.end_lease(provider, lock)
        assert not provider.extend(lock, MINUTE)
        assert not is_held(provider, configure())

    def test_released_lock_is_not_extended(self, provider: LockProvider) -> None:
        """A released lock stays free."""
        lock = take_from(provider, configure())
        provider.release(lock)
        assert not provider.extend(lock, MINUTE)
        assert not is_held(provider, configure())

    def test_kept_lock_is_not_extended(self, provider: LockProvider) -> None:
        """A released lock that lock_at_least_for keeps is not extended either."""
        lock = take_from(provider, configure(lock_at_least_for=MINUTE))
        provider.release(lock)
        assert not provider.extend(lock, 2 * MINUTE)

    def test_extend_keeps_lock_at_least_for(self, provider: LockProvider) -> None:
        """lock_at_least_for counts from the start, whatever was extended."""
        keep = MINUTE
        lock = take_from(provider, configure(lock_at_least_for=keep))
        assert provider.extend(lock, 2 * MINUTE)
        assert provider.release(lock)
        status = status_of(provider)
        assert status.state is LockState.HELD_AT_LEAST
        assert timedelta(0) < status.remaining <= keep

    def test_lock_at_least_for_may_count_from_the_extension(
        self, provider: LockProvider
    ) -> None:
        """If extend() gets it, it counts from there, and a release keeps the lock."""
        lock = take_from(provider, configure())
        lock.extend("1h", lock_at_least_for="30m")
        assert provider.release(lock)
        status = status_of(provider)
        assert status.state is LockState.HELD_AT_LEAST
        assert MINUTE < status.remaining <= timedelta(minutes=30)

    def test_lock_is_kept_no_longer_after_its_clock_was_set_back(
        self, provider: LockProvider
    ) -> None:
        """A lock_at_least_for that begins in the future ends as if it began now."""
        if self.pass_time is None:
            return
        lock = take_from(provider, configure("job", 2 * HOUR, MINUTE))
        self.pass_time(provider, "job", -HOUR)
        assert provider.release(lock)
        assert timedelta(0) < status_of(provider).remaining <= MINUTE

    def test_heartbeat_is_of_this_acquisition(self, provider: LockProvider) -> None:
        """An extension by the former holder is not shown as one of the present."""
        former = take_from(provider, configure())
        assert provider.extend(former, MINUTE)
        assert status_of(provider).heartbeat_at is not None
        assert provider.release(former)
        take_from(provider, configure())
        assert status_of(provider).heartbeat_at is None

    def test_extend_never_shortens(self, provider: LockProvider) -> None:
        """Extending by less than what is left changes nothing."""
        lock = take_from(provider, configure(lock_at_most_for=HOUR))
        assert provider.extend(lock, self.short)
        status = status_of(provider)
        assert status.remaining > HOUR / 2

    def test_late_release_spares_the_next_holder(self, provider: LockProvider) -> None:
        """A holder whose lease ended does not release the next holder's lock."""
        late = take_from(provider, configure(lock_at_most_for=self.short))
        self.outlast(late)
        take_from(provider, configure())
        assert not provider.release(late)
        assert is_held(provider, configure())

    def test_late_extend_spares_the_next_holder(self, provider: LockProvider) -> None:
        """A holder whose lease ended does not extend the next holder's lock."""
        late = take_from(provider, configure(lock_at_most_for=self.short))
        self.outlast(late)
        take_from(provider, configure())
        assert not provider.extend(late, timedelta(hours=1))
        status = status_of(provider)
        assert status.remaining <= MINUTE

    def test_second_release_changes_nothing(self, provider: LockProvider) -> None:
        """Only the first release says that the lock was still ours."""
        lock = take_from(provider, configure())
        assert provider.release(lock)
        assert not provider.release(lock)

    def test_names_are_case_sensitive(self, provider: LockProvider) -> None:
        """Names that look alike to some collations are different locks."""
        names = {"job", "Job", "JOB", "jöb", "job.", "job x"}
        for name in names:
            take_from(provider, configure(name))
        found = {status_of(provider, name).name for name in names}
        assert found == names

    def test_names_are_taken_literally(self, provider: LockProvider) -> None:
        """Whatever characters a name has, its lock is listed, read and released."""
        locks = [take_from(provider, configure(name)) for name in ODD_NAMES]
        assert [s.name for s in provider.statuses()] == sorted(ODD_NAMES)
        for lock in locks:
            query = LockQuery(names=[lock.name])
            [status] = provider.statuses(query)
            assert (status.name, status.locked_by) == (lock.name, lock.locked_by)
            assert status_of(provider, lock.name).locked_by == lock.locked_by
            assert provider.extend(lock, 2 * MINUTE)
            assert provider.release(lock)

    def test_identities_are_taken_literally(self, provider: LockProvider) -> None:
        """Whatever characters the holder's identity has, the lock is the holder's."""
        for identity in ODD_NAMES:
            lock = Lock(provider, configure())
            lock.locked_by = identity
            assert provider.acquire(lock) is None
            assert status_of(provider).locked_by == identity
            assert provider.release(lock)

    def test_longest_name(self, provider: LockProvider) -> None:
        """Two names of 255 characters that differ in the last one are two locks."""
        take_from(provider, configure("é" * 254 + "a"))
        take_from(provider, configure("é" * 254 + "b"))
        assert is_held(provider, configure("é" * 254 + "a"))

    def test_token_grows_with_each_acquisition(self, provider: LockProvider) -> None:
        """Each acquisition has a greater token than the one before, and keeps it."""
        tokens = []
        for _ in range(3):
            lock = take_from(provider, configure())
            tokens.append(lock.fencing_token)
            assert status_of(provider).fencing_token == lock.fencing_token
            lock.release()
        assert tokens == sorted(set(tokens))

    def test_lost_lock_keeps_its_own_token(self, provider: LockProvider) -> None:
        """A late holder never gets the next holder's token."""
        late = take_from(provider, configure(lock_at_most_for=self.short))
        token = late.fencing_token
        self.outlast(late)
        other = take_from(provider, configure())
        assert late.fencing_token == token < other.fencing_token

    def test_unknown_token_of_a_lost_lock(self, provider: LockProvider) -> None:
        """A token that the store has not returned is unknown after the loss."""
        late = take_from(provider, configure(lock_at_most_for=self.short))
        self.outlast(late)
        take_from(provider, configure())
        late.known_token = None
        with pytest.raises(LockLost):
            late.fencing_token  # noqa: B018

    @pytest.mark.parametrize("use_tz", [True, False])
    def test_clock(self, provider: LockProvider, use_tz: bool) -> None:
        """now() is the store's clock, which runs, aware or naive as in the project."""
        with override_settings(USE_TZ=use_tz):
            first, here, second = provider.now(), timezone.now(), provider.now()
        assert timezone.is_aware(first) is use_tz
        assert first <= second
        assert abs(here - first) < 5 * MINUTE

    def test_threads_never_overlap(self, provider: LockProvider) -> None:
        """Eight threads on two locks lose no step of the counter of each lock."""
        counters = Counters(provider)
        with ThreadPoolExecutor(8) as pool:
            working = [pool.submit(closing, counters.work) for _ in range(8)]
            for worker in working:
                worker.result(HANG_LIMIT_SECONDS)
        assert counters.values == counters.expected(8)

    def test_threads_get_their_own_answers(self, provider: LockProvider) -> None:
        """Four threads that use one provider at once see each its own lock."""

        def work(name: str) -> None:
            for _ in range(10):
                lock = take_from(provider, configure(name))
                assert status_of(provider, name).locked_by == lock.locked_by
                assert provider.release(lock)

        with ThreadPoolExecutor(4) as pool:
            working = [pool.submit(closing, partial(work, name)) for name in "abcd"]
            for worker in working:
                worker.result(HANG_LIMIT_SECONDS)


class Counters:
    """Two counters, each increased slowly under a lock of its own."""

    names: ClassVar[tuple[str, ...]] = ("even", "odd")
    rounds: ClassVar[int] = 12

    def __init__(self, provider: LockProvider):
        self.provider = provider
        self.values: dict[str, int] = dict.fromkeys(self.names, 0)

    def work(self) -> None:
        for turn in range(self.rounds):
            name = self.names[turn % 2]
            lock = take_at_last(self.provider, configure(name))
            value = self.values[name]
            time.sleep(0.001)
            self.values[name] = value + 1
            assert self.provider.release(lock)

    def expected(self, workers: int) -> dict[str, int]:
        return dict.fromkeys(self.names, workers * self.rounds // 2)
