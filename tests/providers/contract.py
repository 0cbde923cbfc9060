"""What every provider must do: the behaviours of ShedLock's own provider tests."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from django.test import override_settings
from django.utils import timezone

from django_shedlock.locks.configuration import LockConfiguration
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.pauses import Pause
from django_shedlock.locks.states import LockHolder, LockState
from django_shedlock.providers.base import LockProvider
from django_shedlock.schedules.starts import Start, Trigger
from tests.support.locks import (
    MINUTE,
    configure,
    pause,
    take_at_last,
    take_from,
)
from tests.support.threads import run_threads

SHORT = timedelta(milliseconds=50)
HOUR = timedelta(hours=1)
WORKERS = 8
ROUNDS = 12


def is_held(provider: LockProvider, configuration: LockConfiguration) -> bool:
    lock = provider.acquire(configuration)
    if isinstance(lock, LockHolder):
        return True
    provider.release(lock)
    return False


def outlast(lock: Lock) -> None:
    """Let a short lease pass: no provider has to offer another way to its end."""
    time.sleep(SHORT.total_seconds() + 0.02)
    assert not lock.remaining()


class ProviderContract:
    """Subclass it with a fixture ``provider``."""

    def test_lock_is_created_and_freed(self, provider: LockProvider) -> None:
        """A released lock can be taken again."""
        lock = take_from(provider, configure())
        assert is_held(provider, configure())
        assert provider.release(lock)
        assert not is_held(provider, configure())

    def test_second_holder_is_told_who_holds(self, provider: LockProvider) -> None:
        """Who comes second learns the holder and what is left of the lease."""
        lock = take_from(provider, configure())
        holder = provider.acquire(configure())
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
        """The same caller takes and releases a lock again and again."""
        for _ in range(2):
            assert provider.release(take_from(provider, configure()))

    def test_lease_times_out(self, provider: LockProvider) -> None:
        """A lock that nobody releases is free when its lease of 50 ms is over."""
        lock = take_from(provider, configure(lock_at_most_for=SHORT))
        outlast(lock)
        assert not is_held(provider, configure())

    def test_taken_ten_times_right_after_release(self, provider: LockProvider) -> None:
        """A lock can be taken in the very instant after its release."""
        configuration = configure()
        for _ in range(10):
            assert provider.release(take_from(provider, configuration))

    def test_kept_for_lock_at_least_for(self, provider: LockProvider) -> None:
        """After a short run the lock stays held, and no longer than it has to."""
        keep = timedelta(milliseconds=400)
        started = time.monotonic()
        lock = take_from(provider, configure(lock_at_least_for=keep))
        taken = time.monotonic()
        assert provider.release(lock)
        assert is_held(provider, configure()) or time.monotonic() - started > 0.4
        time.sleep(max(0.0, taken + 0.45 - time.monotonic()))
        assert not is_held(provider, configure())

    def test_two_of_four_minutes_at_least(self, provider: LockProvider) -> None:
        """Released at once, a lock of 4 m at most and 2 m at least stays for 2 m."""
        two, four = 2 * MINUTE, 4 * MINUTE
        provider.release(take_from(provider, configure("job", four, two)))
        [status] = provider.statuses("job")
        assert status.state is LockState.HELD_AT_LEAST
        assert timedelta(0) < status.remaining <= two

    def test_extend(self, provider: LockProvider) -> None:
        """An extended lock outlives its first lease."""
        lease = timedelta(milliseconds=600)
        lock = take_from(provider, configure(lock_at_most_for=lease))
        while not provider.extend(lock, MINUTE):
            assert not lock.remaining()  # the machine is too slow for so short a lease
            lock = take_from(provider, configure(lock_at_most_for=lease))
        time.sleep(lease.total_seconds())
        assert is_held(provider, configure())
        assert provider.release(lock)

    def test_extend_three_times(self, provider: LockProvider) -> None:
        """A lock can be extended again and again, always from now on."""
        lock = take_from(provider, configure(lock_at_most_for=HOUR / 2))
        for lease in (HOUR, 2 * HOUR, 3 * HOUR):
            assert provider.extend(lock, lease)
            [status] = provider.statuses("job")
            assert lease - HOUR / 2 < status.remaining <= lease

    def test_expired_lock_is_not_extended(self, provider: LockProvider) -> None:
        """A lease that is over stays over."""
        lock = take_from(provider, configure(lock_at_most_for=SHORT))
        outlast(lock)
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
        [status] = provider.statuses("job")
        assert status.state is LockState.HELD_AT_LEAST
        assert timedelta(0) < status.remaining <= keep

    def test_lock_at_least_for_may_count_from_the_extension(
        self, provider: LockProvider
    ) -> None:
        """Given to extend(), it begins anew there, and a release keeps the lock."""
        lock = take_from(provider, configure())
        lock.extend("1h", lock_at_least_for="30m")
        assert provider.release(lock)
        [status] = provider.statuses("job")
        assert status.state is LockState.HELD_AT_LEAST
        assert MINUTE < status.remaining <= timedelta(minutes=30)

    def test_extend_never_shortens(self, provider: LockProvider) -> None:
        """Extending by less than what is left changes nothing."""
        lock = take_from(provider, configure(lock_at_most_for=HOUR))
        assert provider.extend(lock, SHORT)
        [status] = provider.statuses("job")
        assert status.remaining > HOUR / 2

    def test_late_release_spares_the_next_holder(self, provider: LockProvider) -> None:
        """A holder whose lease ended frees nobody else's lock, even here."""
        late = take_from(provider, configure(lock_at_most_for=SHORT))
        outlast(late)
        take_from(provider, configure())
        assert not provider.release(late)
        assert is_held(provider, configure())

    def test_late_extend_spares_the_next_holder(self, provider: LockProvider) -> None:
        """A holder whose lease ended extends nobody else's lock."""
        late = take_from(provider, configure(lock_at_most_for=SHORT))
        outlast(late)
        take_from(provider, configure())
        assert not provider.extend(late, timedelta(hours=1))
        [status] = provider.statuses("job")
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
        assert {status.name for status in provider.statuses()} == names

    def test_longest_name(self, provider: LockProvider) -> None:
        """Two names of 255 characters that differ in the last one are two locks."""
        take_from(provider, configure("é" * 254 + "a"))
        take_from(provider, configure("é" * 254 + "b"))
        assert is_held(provider, configure("é" * 254 + "a"))

    def test_token_grows_with_each_acquisition(self, provider: LockProvider) -> None:
        """Each acquisition has the number after the last one's."""
        tokens = []
        for _ in range(3):
            lock = take_from(provider, configure())
            tokens.append(lock.fencing_token)
            lock.release()
        assert tokens == [1, 2, 3]

    def test_token_of_a_lost_lock_is_none(self, provider: LockProvider) -> None:
        """Who lost the lock does not get the next holder's number."""
        late = take_from(provider, configure(lock_at_most_for=SHORT))
        outlast(late)
        take_from(provider, configure())
        assert provider.fencing_token(late) is None

    def test_status_of_each_state(self, provider: LockProvider) -> None:
        """Statuses come in the order of names, with states by the store's clock."""
        take_from(provider, configure("a"))
        keep = MINUTE
        provider.release(take_from(provider, configure("b", MINUTE, keep)))
        outlast(take_from(provider, configure("c", SHORT)))
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
        outlast(take_from(provider, configure("dead", SHORT)))
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
        outlast(take_from(provider, configure("dead", SHORT)))
        for name in ("older", "newer"):
            take_from(provider, configure(name))
            time.sleep(0.002)  # so that its job has run for longer than no time
        found = provider.late(None, timedelta(0))
        assert [s.name for s in found] == ["older", "newer"]
        assert [s.name for s in provider.late(None, timedelta(0), limit=1)] == ["older"]
        assert [*provider.late(None, MINUTE)] == [*provider.late(None, None)] == []

    @pytest.mark.parametrize("use_tz", [True, False])
    def test_clock(self, provider: LockProvider, use_tz: bool) -> None:
        """now() is the store's clock, in the form that the project uses, and runs."""
        with override_settings(USE_TZ=use_tz):
            first, here, second = provider.now(), timezone.now(), provider.now()
        assert timezone.is_aware(first) is use_tz
        assert first <= second
        assert abs(here - first) < 5 * MINUTE

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
        lock = take_from(provider, configure(lock_at_most_for=SHORT))
        outlast(lock)
        assert not provider.force_release("job")
        assert not provider.force_release("job", running=True, locked_by="someone")
        assert provider.force_release("job", running=True, locked_by=lock.locked_by)
        assert provider.statuses("job")[0].state is LockState.FREE
        assert not provider.force_release("job", running=True)
        assert not provider.release(lock)

    def test_paused_lock(self, provider: LockProvider) -> None:
        """Nobody acquires it, and only with force it is released."""
        lock = pause("job", provider)
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
        before = pause("job", provider)
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
        assert provider.fencing_token(after) == 2

    def test_pause_that_has_ended(self, provider: LockProvider) -> None:
        """Nobody died: the lock is free."""
        outlast(pause("job", provider, SHORT))
        assert provider.statuses("job")[0].state is LockState.FREE
        take_from(provider, configure())

    def test_force_extend_never_shortens(self, provider: LockProvider) -> None:
        """An operator lengthens a lease, and never shortens it."""
        take_from(provider, configure())
        assert provider.force_extend("job", SHORT)
        assert provider.force_extend("job", HOUR)
        [status] = provider.statuses("job")
        assert MINUTE < status.remaining <= HOUR

    def test_threads_never_overlap(self, provider: LockProvider) -> None:
        """Eight threads on two locks, each with a counter that must not lose a step."""
        counters = Counters(provider)
        run_threads(WORKERS, counters.work)
        assert counters.values == counters.expected(WORKERS)


class Counters:
    """Two counters, each increased slowly under a lock of its own."""

    names = ("even", "odd")

    def __init__(self, provider: LockProvider):
        self.provider = provider
        self.values = dict.fromkeys(self.names, 0)

    def work(self) -> None:
        for turn in range(ROUNDS):
            name = self.names[turn % 2]
            lock = take_at_last(self.provider, configure(name))
            value = self.values[name]
            time.sleep(0.001)
            self.values[name] = value + 1
            assert self.provider.release(lock)

    def expected(self, workers: int) -> dict[str, int]:
        return dict.fromkeys(self.names, workers * ROUNDS // 2)
