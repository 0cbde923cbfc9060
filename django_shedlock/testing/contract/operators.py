"""What operators see of locks, and what they do to them."""

from dataclasses import replace

from django_shedlock.locks.configuration import ZERO, LockConfiguration
from django_shedlock.locks.pauses import Pause
from django_shedlock.locks.status import NOT_FREE, LockHolder, LockState
from django_shedlock.providers.base import LockProvider, LockQuery
from django_shedlock.schedules.state import Start, Trigger
from django_shedlock.testing.contract.harness import (
    HOUR,
    MINUTE,
    Contract,
    configure,
    force_release,
    is_held,
    let_its_clock_move,
    pause,
    status_of,
    take_from,
    try_from,
)


class OperatorContract(Contract):
    """Operators read the statuses of locks, and release, extend and pause them."""

    def test_status_of_each_state(self, provider: LockProvider) -> None:
        """Statuses are in the order of names, with states by the store's clock."""
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
        for state in LockState:
            expected = 0 if state is LockState.PAUSED else 1
            assert provider.count(LockQuery(states=[state])) == expected
        assert provider.count() == 4
        only = provider.status("c")
        assert only is not None
        assert (only.name, only.state) == ("c", LockState.EXPIRED)
        assert provider.status("z") is None

    def test_only_some_locks_are_read(self, provider: LockProvider) -> None:
        """A query selects locks by names, patterns, states and number, in order."""
        for name in ("c:1", "a", "c:2", "b", "[c"):
            take_from(provider, configure(name))
        for query, wanted in [
            (LockQuery(names=["b", "z", "a"]), ["a", "b"]),
            (LockQuery(names=[]), []),
            (LockQuery(patterns=("c:*", "b")), ["b", "c:1", "c:2"]),
            (LockQuery(patterns=("c:*", "b"), limit=2), ["b", "c:1"]),
            (LockQuery(patterns=("?",), ignored=("a",)), ["b"]),
            (LockQuery(patterns=("[c",)), ["[c"]),
            (LockQuery(states=[LockState.FREE]), []),
        ]:
            assert [s.name for s in provider.statuses(query)] == wanted
            assert provider.count(query) == len(wanted)

    def test_urgent_locks_come_first(self, provider: LockProvider) -> None:
        """Urgent locks come first: expired, then running, and of each the oldest."""
        provider.release(take_from(provider, configure("free")))
        provider.release(take_from(provider, configure("kept", MINUTE, MINUTE)))
        self.outlast(take_from(provider, configure("dead", self.short)))
        for name in ("older", "newer", "ignored"):
            take_from(provider, configure(name))
            let_its_clock_move(provider)
        urgent = LockQuery(states=NOT_FREE, overdue_by=MINUTE, by_urgency=True)
        wanted = ["dead", "older", "newer", "ignored", "kept"]
        assert [s.name for s in provider.statuses(urgent)] == wanted
        some = replace(urgent, limit=3, ignored=("older", "n?wer", "x*"))
        assert [s.name for s in provider.statuses(some)] == ["dead", "ignored", "kept"]
        first = replace(urgent, limit=1)
        assert [s.name for s in provider.statuses(first)] == ["dead"]

    def test_kept_lock_is_released_by_an_operator(self, provider: LockProvider) -> None:
        """An operator's release ends ``lock_at_least_for``."""
        lock = take_from(provider, configure(lock_at_least_for=MINUTE))
        provider.release(lock)
        assert force_release(provider)
        assert not is_held(provider, configure())

    def test_running_lock_is_force_released(self, provider: LockProvider) -> None:
        """A job whose lock is force-released can neither extend nor release it."""
        lock = take_from(provider, configure(lock_at_least_for=MINUTE))
        assert force_release(provider)
        assert not provider.extend(lock, MINUTE)
        assert not provider.release(lock)
        assert not is_held(provider, configure())

    def test_operator_spares_the_next_acquisition(self, provider: LockProvider) -> None:
        """Only the acquisition that was read is released, extended or replaced."""
        seen_lock = take_from(provider, configure())
        seen = status_of(provider)
        provider.release(seen_lock)
        lock = take_from(provider, configure())
        assert not provider.replace(seen, ZERO)
        assert not provider.replace(seen, 2 * MINUTE)
        assert not provider.replace(seen, HOUR, locked_by="someone")
        status = status_of(provider)
        assert (status.locked_by, status.state) == (lock.locked_by, LockState.RUNNING)
        assert status.remaining <= MINUTE
        assert provider.replace(status, 2 * MINUTE)
        assert provider.replace(status, ZERO)

    def test_operator_changes_no_free_lock(self, provider: LockProvider) -> None:
        """An operator can't release, extend or replace a lock that is not held."""
        lock = take_from(provider, configure())
        seen = status_of(provider)
        provider.release(lock)
        for lasting, locked_by in [(ZERO, None), (HOUR, None), (HOUR, "someone")]:
            assert not provider.replace(seen, lasting, locked_by=locked_by)
            unknown = replace(seen, name="unknown")
            assert not provider.replace(unknown, lasting, locked_by=locked_by)
        assert not is_held(provider, configure())

    def test_expired_lock_is_force_released(self, provider: LockProvider) -> None:
        """An operator can release an expired lock; the holder's release is too late."""
        lock = take_from(provider, configure(lock_at_most_for=self.short))
        self.outlast(lock)
        status = status_of(provider)
        assert not provider.replace(replace(status, locked_by="someone"), ZERO)
        assert not provider.replace(status, HOUR)
        assert provider.replace(status, ZERO)
        assert status_of(provider).state is LockState.FREE
        assert not provider.replace(status, ZERO)
        assert not provider.release(lock)

    def test_paused_lock(self, provider: LockProvider) -> None:
        """Nobody acquires a paused lock until an operator releases it."""
        lock = pause(provider)
        status = status_of(provider)
        assert status.state is LockState.PAUSED
        assert status.pause == Pause("alice", "the mail server moves")
        holder = try_from(provider, configure())
        assert isinstance(holder, LockHolder)
        assert holder.reason == lock.locked_by
        by_operator = LockConfiguration("job", MINUTE, start=Start(Trigger.OPERATOR))
        assert isinstance(try_from(provider, by_operator), LockHolder)
        assert provider.replace(status, ZERO)
        take_from(provider, configure())

    def test_pause_replaces_a_pause(self, provider: LockProvider) -> None:
        """A pause can replace the pause that was read, and may end sooner."""
        lock = pause(provider)
        before, later = status_of(provider), Pause("bob", "the disk is full").identity()
        wrong = replace(before, locked_by="someone")
        assert not provider.replace(wrong, MINUTE, locked_by=later)
        assert status_of(provider).locked_by == before.locked_by
        assert provider.replace(before, MINUTE, locked_by=later)
        status = status_of(provider)
        assert (status.locked_by, status.state) == (later, LockState.PAUSED)
        assert status.remaining <= MINUTE
        assert status.fencing_token > before.fencing_token
        assert not provider.replace(before, HOUR, locked_by=before.locked_by)
        assert not provider.release(lock)

    def test_pause_that_has_ended(self, provider: LockProvider) -> None:
        """A lock whose pause has ended is free, because nobody died."""
        self.outlast(pause(provider, self.short))
        status = provider.status("job")
        assert status is None or not status.state.is_held
        take_from(provider, configure())

    def test_force_extend_never_shortens(self, provider: LockProvider) -> None:
        """An operator's extension never shortens a lease."""
        take_from(provider, configure())
        assert provider.replace(status_of(provider), self.short)
        assert status_of(provider).remaining > self.short
        assert provider.replace(status_of(provider), HOUR)
        status = status_of(provider)
        assert MINUTE < status.remaining <= HOUR

    def test_operator_may_run_a_lock_without_schedule(
        self, provider: LockProvider
    ) -> None:
        """An operator can run a job whose lock is only kept, and none that runs."""
        by_hand = LockConfiguration("job", MINUTE, start=Start(Trigger.OPERATOR))
        lock = take_from(provider, configure(lock_at_least_for=MINUTE))
        assert isinstance(try_from(provider, by_hand), LockHolder)
        assert provider.release(lock)
        assert is_held(provider, configure())
        take_from(provider, by_hand)
