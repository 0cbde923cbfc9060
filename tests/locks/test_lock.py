"""What a holder can do with its lock, on locks in memory."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NoReturn

import pytest

from django_shedlock import (
    InvalidLockConfiguration,
    Lock,
    LockLost,
    LockProviderError,
    ahold,
    assert_locked,
    hold,
    locks_held,
)
from django_shedlock.locks.lock import identity_of, split_identity
from django_shedlock.providers import get_provider
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.signals import lock_lost, lock_released
from django_shedlock.testing import force_release, is_held, locked_in_memory
from django_shedlock.testing.contract.harness import force_extend
from tests.support.leases import end_lease, end_own_count
from tests.support.locks import MINUTE, configure, status_of, take
from tests.support.processes import Parent, worker
from tests.support.threads import meeting_of, run_threads, running_threads
from tests.support.waiting import PATIENCE, wait_for

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def in_memory() -> Iterator[None]:
    with locked_in_memory():
        yield


@pytest.fixture
def lock() -> Lock:
    return take(configure("job"))


@pytest.fixture
def lost() -> Iterator[list[Lock]]:
    """The locks that lock_lost told of."""
    told: list[Lock] = []

    def receiver(*, lock: Lock, **kwargs: Any) -> None:
        told.append(lock)

    lock_lost.connect(receiver)
    yield told
    lock_lost.disconnect(receiver)


def fail(*args: Any, **options: Any) -> NoReturn:
    raise LockProviderError("the store is gone")


def test_repr_names_lock_and_holder(lock: Lock) -> None:
    """A lock in a log line or a traceback says which one it is."""
    assert repr(lock) == f"<Lock 'job' of {lock.locked_by}>"


def test_remaining_counts_from_before_the_store_was_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slow answer of the store never makes the holder believe in too long a lease."""
    real = MemoryLockProvider.acquire

    def slow_take(self: MemoryLockProvider, lock: Lock) -> Any:
        time.sleep(0.05)
        return real(self, lock)

    monkeypatch.setattr(MemoryLockProvider, "acquire", slow_take)
    lock = take(configure("job"))
    assert lock.remaining() <= MINUTE - timedelta(milliseconds=50)


def test_extension_counts_from_before_the_store_was_asked(
    lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An extension counts from before the store is asked, even with a slow answer."""
    real = MemoryLockProvider.extend

    def slow_extend(self: MemoryLockProvider, *arguments: Any, **how: Any) -> bool:
        time.sleep(0.05)
        return real(self, *arguments, **how)

    monkeypatch.setattr(MemoryLockProvider, "extend", slow_extend)
    lock.extend("1h")
    assert lock.remaining() <= HOUR - timedelta(milliseconds=50)


def test_nothing_remains_after_the_lease(lock: Lock) -> None:
    """What remains is never negative, and a lock with nothing left is lost."""
    end_lease(lock)
    assert lock.remaining() == timedelta(0)
    assert lock.is_lost
    assert not lock.is_active


def test_release_tells_once_whether_the_lock_was_ours(lock: Lock) -> None:
    """A second release does nothing, and tells nobody."""
    told: list[bool] = []

    def receiver(*, released: bool, **kwargs: Any) -> None:
        told.append(released)

    lock_released.connect(receiver)
    try:
        assert [lock.release(), lock.release()] == [True, False]
    finally:
        lock_released.disconnect(receiver)
    assert told == [True]


def test_released_lock_is_not_lost(lock: Lock, lost: list[Lock]) -> None:
    """Who gave the lock back holds nothing, and lost nothing."""
    lock.release()
    assert not lock.is_active
    end_own_count(lock)
    assert not lock.is_lost
    assert lost == []


def test_release_that_failed_may_be_tried_again(
    lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the store is away the lock stays ours, and is released when it is back."""
    with monkeypatch.context() as broken:
        broken.setattr(MemoryLockProvider, "release", fail)
        with pytest.raises(LockProviderError, match="the store is gone"):
            lock.release()
        assert lock.is_active
    assert lock.release()
    assert not is_held("job")


class Queued:
    """Stands for a mutex, and counts who asks for it."""

    def __init__(self, mutex: Any):
        self._mutex = mutex
        self.asked = 0

    def __enter__(self) -> None:
        self.asked += 1
        self._mutex.acquire()

    def __exit__(self, *error: object) -> None:
        self._mutex.release()


@pytest.mark.parametrize("first_fails", [False, True])
def test_two_threads_release_one_after_the_other(
    lock: Lock, lost: list[Lock], monkeypatch: pytest.MonkeyPatch, *, first_fails: bool
) -> None:
    """The second one has nothing to do, unless the first one fails; nothing is lost."""
    real, calls = MemoryLockProvider.release, []
    begun, go_on = threading.Event(), threading.Event()
    results: list[object] = []

    def release(self: MemoryLockProvider, lock: Lock, **options: Any) -> bool:
        calls.append(lock)
        begun.set()
        wait_for(go_on.is_set)
        if first_fails and len(calls) == 1:
            fail()
        return real(self, lock, **options)

    def try_to_release() -> None:
        try:
            results.append(lock.release())
        except LockProviderError:
            results.append("failed")

    queue: Any = Queued(lock._releasing)
    monkeypatch.setattr(lock, "_releasing", queue)
    monkeypatch.setattr(MemoryLockProvider, "release", release)
    with running_threads(1, try_to_release):
        wait_for(begun.is_set)
        with running_threads(1, try_to_release):
            wait_for(lambda: queue.asked == 2)
            go_on.set()
    # Whoever was first may write down its result last.
    assert Counter(results) == Counter(["failed" if first_fails else False, True])
    assert lost == []
    assert not is_held("job")


def test_loss_is_told_though_the_release_fails(
    lock: Lock, lost: list[Lock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost lock is reported although its release fails."""
    end_lease(lock)
    monkeypatch.setattr(MemoryLockProvider, "release", fail)
    with pytest.raises(LockProviderError):
        lock.release()
    assert lost == [lock]


def test_unanswered_release_of_our_own_is_no_loss(
    lock: Lock, lost: list[Lock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heartbeat that finds the lock released then does not tell that it is lost."""
    real = MemoryLockProvider.release

    def release(self: MemoryLockProvider, lock: Lock, **options: Any) -> NoReturn:
        real(self, lock, **options)
        fail()

    monkeypatch.setattr(MemoryLockProvider, "release", release)
    with pytest.raises(LockProviderError):
        lock.release()
    with pytest.raises(LockLost):
        lock.extend()
    assert lost == []
    assert not lock.lost.is_set()


def test_release_of_a_taken_lock_is_a_loss(lock: Lock, lost: list[Lock]) -> None:
    """Who finds at the end that another one has the lock is told so."""
    end_lease(lock)
    other = take(configure("job"))
    assert not lock.release()
    assert lost == [lock]
    assert other.is_active


def test_extend_without_a_duration_takes_the_configured_one() -> None:
    """extend() alone gives the lease its full length again."""
    lock = take(configure("job", HOUR))
    end_own_count(lock)
    lock.extend()
    assert HOUR / 2 < lock.remaining() <= HOUR


def test_extend_never_shortens(lock: Lock) -> None:
    """A shorter lease than what is left changes nothing."""
    lock.extend("1h")
    lock.extend("1s")
    assert lock.remaining() > timedelta(minutes=30)
    assert status_of(get_provider(), "job").remaining > timedelta(minutes=30)


def test_extension_keeps_at_least_unless_it_is_given(lock: Lock) -> None:
    """The release counts by what was asked for last."""
    lock.extend("1h", lock_at_least_for="5s")
    lock.extend("1h")
    assert lock.lock_at_least_for == timedelta(seconds=5)


@pytest.mark.parametrize("at_least", ["-1s", "soon", "2h"])
def test_bad_at_least_of_an_extension_names_the_lock(lock: Lock, at_least: str) -> None:
    """
    A bad lock_at_least_for of an extension is refused before the store is asked.

    A value longer than the lease is refused too.
    """
    before = lock.remaining()
    with pytest.raises(InvalidLockConfiguration, match="'job'.*lock_at_least_for"):
        lock.extend("1h", lock_at_least_for=at_least)
    assert lock.remaining() <= before
    assert lock.lock_at_least_for == timedelta(0)


@pytest.mark.parametrize("lease", [0, "-PT5S", "soon", "", True])
def test_bad_extension_names_the_lock(lock: Lock, lease: Any) -> None:
    """A lease that is none is refused, and the lock goes on."""
    with pytest.raises(InvalidLockConfiguration, match="'job'"):
        lock.extend(lease)
    assert lock.is_active


def test_store_that_fails_to_extend_loses_nothing(
    lock: Lock, lost: list[Lock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease that the store confirmed before is still the holder's."""
    monkeypatch.setattr(MemoryLockProvider, "extend", fail)
    with pytest.raises(LockProviderError):
        lock.extend("1h")
    assert lock.is_active
    assert lost == []


def test_extend_of_a_taken_lock_is_a_loss(lock: Lock, lost: list[Lock]) -> None:
    """LockLost says who lost what, and the release after it is harmless."""
    force_release("job")
    other = take(configure("job"))
    with pytest.raises(LockLost, match=f"'job' can't be extended: {lock.locked_by}"):
        lock.extend()
    assert lost == [lock]
    assert not lock.release()
    assert other.is_active


def test_expired_lease_that_an_operator_extended_is_extended(lock: Lock) -> None:
    """The store is asked before the holder's own count makes a lock lost."""
    end_own_count(lock)
    assert lock.is_lost
    lock.extend("1h")
    assert not lock.is_lost


def test_expired_lease_that_an_operator_extended_is_released(lock: Lock) -> None:
    """The release asks the store before it says that the lock was lost."""
    end_own_count(lock)
    assert lock.release()
    assert not lock.lost.is_set()


def test_expired_lease_is_lost_if_the_store_is_silent(
    lock: Lock, lost: list[Lock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an answer, the holder's own count decides."""
    monkeypatch.setattr(MemoryLockProvider, "extend", fail)
    end_own_count(lock)
    with pytest.raises(LockLost) as told:
        lock.extend()
    assert str(told.value.__cause__) == "the store is gone"
    assert lost == [lock]


def test_what_was_lost_stays_lost(lock: Lock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost lock stays lost, even if the store answers again."""
    end_own_count(lock)
    with monkeypatch.context() as down, pytest.raises(LockLost):
        down.setattr(MemoryLockProvider, "extend", fail)
        lock.extend()
    with pytest.raises(LockLost):
        lock.extend()


def test_refresh_learns_of_an_operators_extension(lock: Lock) -> None:
    """What an operator did in the store becomes what the holder believes."""
    assert force_extend(get_provider(), "job", HOUR)
    assert lock.refresh()
    assert lock.remaining() > timedelta(minutes=59)


def test_refresh_of_a_lease_that_is_over(lock: Lock) -> None:
    """Nothing is left of it, and it stays so."""
    end_lease(lock)
    assert not lock.refresh()


STEPS: dict[str, Callable[[Lock], Any]] = {
    "extend": lambda lock: lock.extend(),
    "fence": lambda lock: lock.fence(),
}


@pytest.mark.parametrize("step", STEPS)
def test_released_lock_can_do_nothing_but_is_not_lost(
    step: str, lock: Lock, lost: list[Lock], caplog: pytest.LogCaptureFixture
) -> None:
    """After its own release a holder is refused, without a false alarm."""
    lock.release()
    take(configure("job"))
    with caplog.at_level(logging.WARNING), pytest.raises(LockLost, match="'job'"):
        STEPS[step](lock)
    assert (lost, lock.is_lost, caplog.text) == ([], False, "")


def test_taken_lock_is_lost_at_the_next_step(lock: Lock, lost: list[Lock]) -> None:
    """The next extension tells the holder of a taken lock that it is lost."""
    force_release("job")
    take(configure("job"))
    with pytest.raises(LockLost, match="'job'"):
        lock.extend()
    assert lost == [lock]


def test_token_that_is_not_known_is_not_that_of_another(
    lock: Lock, lost: list[Lock]
) -> None:
    """Where the acquisition has not told it, a later holder's token is none of ours."""
    lock.known_token = None
    force_release("job")
    take(configure("job"))
    with pytest.raises(LockLost, match="'job'"):
        _ = lock.fencing_token
    assert lost == [lock]


def test_token_that_is_known_stays_the_locks_own(lock: Lock) -> None:
    """A lock keeps its fencing token, which is lower than the next lock's token."""
    token = lock.fencing_token
    force_release("job")
    other = take(configure("job"))
    assert lock.fencing_token == token < other.fencing_token


def test_fence_that_finds_the_lock_taken_is_a_loss(
    lock: Lock, lost: list[Lock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """fence() raises, so that the caller's transaction rolls back."""
    monkeypatch.setattr(MemoryLockProvider, "fence", lambda *args: False)
    with pytest.raises(LockLost, match="Let the transaction roll back"):
        lock.fence()
    assert lost == [lock]


def test_fence_that_finds_the_lock_ours_is_silent(
    lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the lock is ours, fence() returns."""
    monkeypatch.setattr(MemoryLockProvider, "fence", lambda *args: True)
    lock.fence()
    assert lock.is_active


def test_fencing_token_is_read_once(
    lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of an acquisition never changes, so the store is asked once."""
    token = lock.fencing_token
    monkeypatch.setattr(MemoryLockProvider, "status", fail)
    assert lock.fencing_token == token


def test_end_of_a_body_waits_until_its_loss_is_told(
    lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release of a lost lock waits until the receivers of lock_lost have ended."""
    monkeypatch.setattr(Lock, "receivers_timeout_seconds", 60)
    begun, told = threading.Event(), []

    def receiver(**kwargs: Any) -> None:
        begun.set()
        time.sleep(0.3)
        lock.declare_lost()  # nobody waits for himself
        told.append(lock)

    with lost_in_another_thread(lock, receiver):
        wait_for(begun.is_set)
        assert not lock.release()
        assert told == [lock]


def test_end_of_a_body_does_not_wait_for_ever(
    lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receiver that hangs in another thread keeps no body from its end."""
    monkeypatch.setattr(Lock, "receivers_timeout_seconds", 0.05)
    begun, end = threading.Event(), threading.Event()

    def receiver(**kwargs: Any) -> None:
        begun.set()
        end.wait(PATIENCE)

    with lost_in_another_thread(lock, receiver) as heartbeat:
        wait_for(begun.is_set)
        assert not lock.release()
        assert heartbeat.is_alive()
        end.set()


@contextmanager
def lost_in_another_thread(
    lock: Lock, receiver: Callable[..., None]
) -> Iterator[threading.Thread]:
    """Let a thread, such as the heartbeat's, tell the receiver of the loss."""
    force_release("job")
    lock_lost.connect(receiver)
    heartbeat = threading.Thread(target=lock.declare_lost)
    heartbeat.start()
    try:
        yield heartbeat
        heartbeat.join()
    finally:
        lock_lost.disconnect(receiver)


def test_loss_is_told_once_however_many_see_it(lock: Lock, lost: list[Lock]) -> None:
    """The heartbeat, the body and the release may all see that the lock is lost."""
    meeting = meeting_of(8)
    woken: list[int] = []

    def declare() -> None:
        meeting.wait()
        lock.declare_lost()

    with lock.watched_by(lambda: woken.append(1)):
        run_threads(8, declare, meeting)
    assert (lost, woken) == ([lock], [1])


def test_watcher_is_not_called_after_its_body(lock: Lock) -> None:
    """Who watched a lock hears nothing once the watching ended."""
    woken: list[int] = []
    with lock.watched_by(lambda: woken.append(1)):
        pass
    lock.declare_lost()
    assert woken == []


def test_watcher_that_fails_keeps_nobody_from_being_told(
    lock: Lock, lost: list[Lock], caplog: pytest.LogCaptureFixture
) -> None:
    """The failure is logged, and so is the loss."""
    woken: list[int] = []

    def fail() -> None:
        raise RuntimeError("no news, please")

    with lock.watched_by(fail), lock.watched_by(lambda: woken.append(1)):
        lock.declare_lost()
    assert (lost, woken) == ([lock], [1])
    assert "no news, please" in caplog.text
    assert "Lock 'job' lost" in caplog.text


def test_async_twins_do_what_they_are_named_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """aextend(), afence() and arelease() are extend(), fence() and release()."""
    fenced: list[Lock] = []

    def fence(self: MemoryLockProvider, lock: Lock) -> bool:
        fenced.append(lock)
        return True

    monkeypatch.setattr(MemoryLockProvider, "fence", fence)

    async def main() -> None:
        async with ahold("job", lock_at_most_for="1m") as lock:
            await lock.aextend("1h", "5s")
            assert lock.remaining() > timedelta(minutes=30)
            assert lock.lock_at_least_for == timedelta(seconds=5)
            await lock.aextend("1h", "0s")
            await lock.afence()
            assert fenced == [lock]
            assert await lock.arelease()
            assert not is_held("job")

    asyncio.run(main())


def test_event_loop_goes_on_while_a_release_waits_for_another(
    lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread waits for the first release, and the loop has other things to do."""
    real, calls = MemoryLockProvider.release, []
    begun, go_on = threading.Event(), threading.Event()

    def release(self: MemoryLockProvider, lock: Lock, **options: Any) -> bool:
        calls.append(lock)
        begun.set()
        wait_for(go_on.is_set)
        return real(self, lock, **options)

    async def main() -> bool:
        second = asyncio.create_task(lock.arelease())
        await asyncio.to_thread(wait_for, lambda: queue.asked == 2)
        go_on.set()
        return await second

    queue: Any = Queued(lock._releasing)
    monkeypatch.setattr(lock, "_releasing", queue)
    monkeypatch.setattr(MemoryLockProvider, "release", release)
    with running_threads(1, lock.release):
        wait_for(begun.is_set)
        assert not asyncio.run(main())
    assert calls == [lock]
    assert not is_held("job")


def test_released_lock_asks_its_store_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second release does nothing, also when the lease would be over by now."""

    async def main() -> None:
        async with ahold("job", lock_at_most_for="1m") as lock:
            assert await lock.arelease()
            lock.lease_end = 0.0
            with monkeypatch.context() as patched:
                patched.setattr(MemoryLockProvider, "status", None)
                patched.setattr(MemoryLockProvider, "release", None)
                assert not await lock.arelease()

    asyncio.run(main())


def fork_under_a_lock(parent: Parent) -> tuple[int, bool]:
    """Return how the child of a holder ended, and whether the parent still holds."""
    with hold("forked", lock_at_most_for="1m") as lock:
        child = os.fork()
        if not child:
            os._exit(0 if believes_in_nothing(lock) else 1)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert_locked()
        record = status_of(get_provider(), "forked")
        return status, record.locked_by == lock.locked_by and record.state.is_held


def believes_in_nothing(lock: Lock) -> bool:
    """Whether this process neither holds, extends nor releases its parent's lock."""
    try:
        lock.extend()
    except LockLost:
        return not (
            lock.is_active or lock.lost.is_set() or lock.release() or locks_held()
        )
    return False


@pytest.mark.django_db(transaction=True)
def test_forked_child_does_not_hold_its_parents_lock() -> None:
    """A child can't release, extend or count what its parent holds."""
    with worker(fork_under_a_lock) as holder:
        assert holder.result() == (0, True)


def new_identity() -> str:
    """Return the identity of one more acquisition."""
    return Lock(None, configure()).locked_by


def test_identity_is_host_process_and_random() -> None:
    """An operator sees where a lock is held; chance tells acquisitions apart."""
    host, pid, chance = new_identity().split(":")
    assert (host, pid) == (socket.gethostname(), str(os.getpid()))
    assert len(chance) == 16


def test_each_acquisition_has_its_own_identity() -> None:
    """Two acquisitions of one thread of one host are not the same (W1, W2)."""
    assert len({new_identity() for _ in range(100)}) == 100


def test_identity_of_a_long_host_name_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The column has 255 characters, and Kubernetes long names."""
    monkeypatch.setattr(socket, "gethostname", lambda: "h" * 253)
    identity_of.cache_clear()
    assert len(new_identity()) <= 255
    identity_of.cache_clear()


@pytest.mark.parametrize(
    ("locked_by", "host", "pid"),
    [
        ("web-1:7:a", "web-1", 7),
        ("fe80::1:7:a", "fe80::1", 7),
        ("java-host", "java-host", None),
        ("a:b", "a:b", None),
        ("a:b:c", "a:b:c", None),
        (f"a:{'9' * 5000}:c", f"a:{'9' * 5000}:c", None),
    ],
)
def test_holder_has_a_host_and_a_process(
    locked_by: str, host: str, pid: int | None
) -> None:
    """A run has both apart; who wrote another form is taken for a host."""
    assert split_identity(locked_by) == (host, pid)
