"""The heartbeat, on locks in memory."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn

import pytest
from django.dispatch import Signal
from django.test import override_settings

from django_shedlock import (
    Lock,
    LockLost,
    LockProviderError,
    aexecute,
    ahold,
    assert_locked,
    background,
    clocks,
    current_lock,
    execute,
    hold,
    locks,
)
from django_shedlock.clocks import Backoff, uptime
from django_shedlock.execution import keep_alive
from django_shedlock.execution.keep_alive import (
    LEASE_END_NOTICE,
    late_releases,
    lease_ends,
    watch_lease,
)
from django_shedlock.providers import get_provider
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.signals import (
    lock_extended,
    lock_lost,
    lock_released,
    logger,
)
from django_shedlock.testing import force_release, is_held, locked_in_memory
from django_shedlock.testing.contract.harness import force_extend, status_of
from tests.support.clocks import SleepingClock
from tests.support.leases import (
    LONG_NOTICE,
    age_own_count,
    beat_now,
    end_lease,
    end_own_count,
    is_kept_alive,
    lease_end,
    pass_time,
    wait_until_idle,
)
from tests.support.threads import NewThreads, counted_starts, is_idle, noted_wait
from tests.support.waiting import NEVER_SECONDS, PATIENCE, patience, wait_for

LEASE = timedelta(hours=1)
"""What really passes in a test is nothing to it."""
THIRD = LEASE / 3
HALF = LEASE / 2
SOON = timedelta(seconds=0.2)


@pytest.fixture(autouse=True)
def in_memory() -> Iterator[None]:
    with locked_in_memory():
        heartbeat = get_provider().heartbeats
        yield
    wait_for(lambda: is_idle(heartbeat))


@pytest.fixture
def heartbeats() -> NewThreads:
    return NewThreads("keep alive")


def test_lock_outlives_its_lease(heartbeats: NewThreads) -> None:
    """A short lease guards a long job, and is extended no more after it."""
    with hold("job", lock_at_most_for=LEASE, keep_alive=True) as lock:
        for _ in range(4):
            pass_time(THIRD, lock)
            assert LEASE - THIRD < lock.remaining() <= LEASE
        assert_locked()
        assert is_held("job")
        assert len(heartbeats) == 1
    assert not is_kept_alive(lock)
    assert not is_held("job")
    assert not lock.lost.is_set()


def test_thread_wakes_up_when_a_beat_is_due() -> None:
    """Nobody has to tell it that the time has come."""
    with hold("job", lock_at_most_for=LEASE, keep_alive=True) as lock:
        before = lease_end(lock)
        beat_now(lock, after=SOON)
        assert wait_for(lambda: lease_end(lock) > before)


def test_without_keep_alive_there_is_no_thread(heartbeats: NewThreads) -> None:
    """A plain lock costs no thread, and its lease ends."""
    with hold("job", lock_at_most_for=LEASE) as lock:
        assert not len(heartbeats)
        pass_time(LEASE, lock)
        assert lock.is_lost
        assert not is_held("job")


def test_one_thread_for_all_locks(heartbeats: NewThreads) -> None:
    """However many locks are kept alive, one thread does it, and they all live."""
    extended: list[str] = []

    def receiver(*, lock: Lock, **kwargs: Any) -> None:
        extended.append(lock.name)

    lock_extended.connect(receiver)
    names = [f"job {number}" for number in range(300)]
    with ExitStack() as stack:
        locks = [
            stack.enter_context(hold(name, lock_at_most_for=LEASE, keep_alive=True))
            for name in names
        ]
        for turn in range(1, 5):
            pass_time(THIRD, *locks)
            wait_for(lambda: Counter(extended) == dict.fromkeys(names, turn))  # noqa: B023
        assert len(heartbeats) == 1
        assert all(is_held(name) for name in names)
    lock_extended.disconnect(receiver)


def test_thousands_of_locks_in_a_row_start_few_threads() -> None:
    """The thread of one lock waits for the next one: a start costs more than that."""
    with counted_starts() as started:
        for _ in range(2000):
            with hold("job", lock_at_most_for=LEASE, keep_alive=True):
                pass
    # Two, and some more where the machine stands still for seconds.
    assert len(started) < 20
    names = {"django_shedlock keep alive", "django_shedlock lease ends"}
    assert names >= set(started)


def test_async_locks_in_a_row_start_few_threads() -> None:
    """Each body is watched, and all of them by one thread."""

    async def main() -> None:
        for _ in range(300):
            async with ahold("job", lock_at_most_for=LEASE):
                pass

    with counted_starts() as started:
        asyncio.run(main())
    assert started.count("django_shedlock lease ends") < 10


def test_loss_of_hundreds_of_locks_is_told_by_few_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Receivers that take their time hold up the next ones, and no end of a lease."""
    monkeypatch.setattr(background.Background, "hanging_after_seconds", NEVER_SECONDS)
    told: list[str] = []
    go_on, full = threading.Event(), noted_wait(monkeypatch)
    at_once = NewThreads("background")

    def receiver(*, lock: Lock, **kwargs: Any) -> None:
        wait_for(go_on.is_set)
        told.append(lock.name)

    names = [f"job {number}" for number in range(200)]
    with ExitStack() as stack, received_by(lock_lost, receiver):
        locks = [
            stack.enter_context(hold(name, lock_at_most_for=LEASE, keep_alive=True))
            for name in names
        ]
        for lock in locks:
            end_lease(lock)
        for lock in locks:
            wait_for(lock.lost.is_set)
        wait_for(full.is_set)
        assert len(at_once) == background.Background.thread_limit
        go_on.set()
        wait_for(lambda: sorted(told) == sorted(names))


def test_a_new_lock_with_a_short_lease_is_not_made_to_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread that waits for a long lease wakes up for a shorter one."""
    pauses: list[float] = []
    heartbeat = get_provider().heartbeats
    wait = heartbeat._changed.wait

    def waiting(pause: float) -> bool:
        pauses.append(pause)
        return wait(pause)

    monkeypatch.setattr(background.Timetable, "watch_interval_seconds", float("inf"))
    monkeypatch.setattr(heartbeat._changed, "wait", waiting)
    with hold("long", lock_at_most_for="100h", keep_alive=True):
        wait_for(lambda: pauses[-1:] > [THIRD.total_seconds()])
        with hold("short", lock_at_most_for=LEASE, keep_alive=True):
            wait_for(lambda: pauses[-1] <= THIRD.total_seconds())


def test_thread_that_could_not_be_started_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The job does not run without its heartbeat; the next one has it again."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            execute(list, "job", lock_at_most_for=LEASE, keep_alive=True)
    assert not is_held("job")
    with hold("job", lock_at_most_for=LEASE, keep_alive=True) as lock:
        before = lease_end(lock)
        beat_now(lock)
        assert wait_for(lambda: lease_end(lock) > before)


def test_thread_starts_again_after_its_end() -> None:
    """The heartbeat of one job's end does not stop the next one's."""
    for _ in range(20):
        with hold("job", lock_at_most_for=LEASE, keep_alive=True):
            time.sleep(0.002)
    with hold("job", lock_at_most_for=LEASE, keep_alive=True) as lock:
        for _ in range(4):
            pass_time(THIRD, lock)
        assert is_held("job")


def test_keeps_what_is_left_of_lock_at_least_for() -> None:
    """Keep-alive changes nothing of how long a lock is kept after its job."""
    options: Any = {"lock_at_most_for": LEASE, "lock_at_least_for": LEASE}
    with hold("job", **options, keep_alive=True) as lock:
        pass_time(HALF, lock)
    status = status_of(get_provider(), "job")
    assert timedelta(0) < status.remaining <= HALF


def failing(times: int) -> Any:
    """Return an extend() that fails so many times, and then works."""
    real = MemoryLockProvider.extend
    calls: list[float] = []

    def extend(self: MemoryLockProvider, lock: Lock, *args: Any, **how: Any) -> bool:
        calls.append(time.monotonic())
        if len(calls) <= times:
            raise LockProviderError("the store is down")
        return real(self, lock, *args, **how)

    return extend


def test_error_does_not_stop_the_heartbeat(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception in the heartbeat is logged and tried again."""
    monkeypatch.setattr(MemoryLockProvider, "extend", failing(2))
    with hold("job", lock_at_most_for=LEASE, keep_alive=True) as lock:
        pass_time(HALF, lock)
        wait_for(lambda: lock.remaining() > HALF)
        pass_time(HALF, lock)
        assert is_held("job")
        assert not lock.is_lost
    assert re.search(r"'job' could not be extended, and is lost in 1[78]", caplog.text)
    assert caplog.text.count("could not be extended") == 2


def test_last_error_before_the_loss_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A store that answers after the lease, and with an error, is named in the log."""

    def fail_late(
        self: MemoryLockProvider, lock: Lock, *args: Any, **how: Any
    ) -> NoReturn:
        end_own_count(lock)
        raise LockProviderError("the store came back as a replica")

    monkeypatch.setattr(MemoryLockProvider, "extend", fail_late)
    with hold("job", lock_at_most_for=LEASE, keep_alive=True) as lock:
        pass_time(HALF, lock)
        told = "lost in 0.0 s: the store came back as a replica"
        wait_for(lambda: told in caplog.text)


def test_pauses_after_errors_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that fails is asked less and less often."""
    pauses: list[float] = []
    pause = Backoff.pause

    def noted(backoff: Backoff, longest: float) -> float:
        pauses.append(pause(backoff, longest))
        return pauses[-1]

    monkeypatch.setattr(Backoff, "pause", noted)
    monkeypatch.setattr(MemoryLockProvider, "extend", failing(1000))
    with hold("job", lock_at_most_for=LEASE) as lock:
        beat = keep_alive.Heartbeat(lock)
        assert all(beat() for _ in range(6))
    assert len(pauses) == 6
    assert pauses[-1] > 5 * pauses[0]


def test_errors_after_an_extension_are_paused_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A lease that somebody extends meanwhile does not let the heartbeat spin."""
    clock = SleepingClock()
    monkeypatch.setattr(clocks, "time", clock)
    monkeypatch.setattr(MemoryLockProvider, "extend", failing(1000))
    with hold("job", lock_at_most_for=LEASE) as lock:
        beat = keep_alive.Heartbeat(lock)
        assert beat()
        lock.lease_end += 2 * LEASE.total_seconds()
        clock.sleep(2 * LEASE.total_seconds())
        due = beat()
        assert due is not None
        assert due > clock.now


def test_errors_until_the_lease_ends_lose_the_lock(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A store that stays down makes the lock lost when its lease is over, once."""
    monkeypatch.setattr(MemoryLockProvider, "extend", failing(1000))
    lost: list[Lock] = []

    def receiver(*, lock: Lock, **kwargs: Any) -> None:
        lost.append(lock)

    lock_lost.connect(receiver)
    with hold("job", lock_at_most_for=LEASE, keep_alive=True) as lock:
        pass_time(HALF, lock)
        wait_for(lambda: "could not be extended" in caplog.text)
        assert is_held("job")
        pass_time(HALF, lock)
        wait_for(lock.lost.is_set)
        assert not lock.remaining()
        with pytest.raises(LockLost):
            assert_locked()
        wait_for(lambda: lost)  # the receivers are told after the event is set
    lock_lost.disconnect(receiver)
    assert lost == [lock]
    warnings = [r.getMessage() for r in caplog.records if " lost by " in r.getMessage()]
    assert len(warnings) == 1


def lose_one_of_two() -> None:
    """Lose a lock, and see that another one is kept alive."""
    with (
        hold("a", lock_at_most_for=LEASE, keep_alive=True) as a,
        hold("b", lock_at_most_for=LEASE, keep_alive=True) as b,
    ):
        force_release("a")
        pass_time(THIRD, a)
        wait_for(a.lost.is_set)
        for _ in range(4):
            pass_time(THIRD, b)
        assert is_held("b")
        assert not b.is_lost


def test_one_lost_lock_leaves_the_others_alive() -> None:
    """Losing one lock does not stop the heartbeat of the others."""
    lose_one_of_two()
    assert not is_held("b")


def leave(**kwargs: Any) -> NoReturn:
    raise SystemExit("a receiver ends its thread")


@contextmanager
def received_by(signal: Signal, receiver: Callable[..., Any]) -> Iterator[None]:
    signal.connect(receiver)
    try:
        yield
    finally:
        signal.disconnect(receiver)


@pytest.mark.parametrize("signal", [lock_lost, lock_extended])
def test_receiver_that_exits_ends_no_heartbeat(signal: Signal) -> None:
    """Whatever a receiver raises, the beats of the other locks go on."""
    with received_by(signal, leave):
        lose_one_of_two()
    assert not is_held("b")


@pytest.mark.parametrize("signal", [lock_lost, lock_extended])
def test_slow_receiver_costs_no_other_lock(signal: Signal) -> None:
    """While a receiver takes its time, the other locks are extended."""
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def receiver(**kwargs: Any) -> None:
        begun.set()
        go_on.wait(PATIENCE)
        ended.set()

    with (
        hold("a", lock_at_most_for=LEASE, keep_alive=True) as a,
        hold("b", lock_at_most_for=LEASE, keep_alive=True) as b,
        received_by(signal, receiver),
    ):
        if signal is lock_lost:
            force_release("a")
        pass_time(THIRD, a)
        wait_for(begun.is_set)
        for _ in range(4):
            pass_time(THIRD, b)
        assert not b.is_lost
        assert not ended.is_set()
        go_on.set()


def test_provider_that_exits_ends_no_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """A beat that raises more than an error is tried again, as any other."""
    real, calls = MemoryLockProvider.extend, []

    def extend(self: MemoryLockProvider, lock: Lock, *args: Any, **how: Any) -> bool:
        calls.append(lock)
        if len(calls) == 1:
            raise SystemExit("as a library does")
        return real(self, lock, *args, **how)

    monkeypatch.setattr(MemoryLockProvider, "extend", extend)
    with hold("job", lock_at_most_for=LEASE, keep_alive=True) as lock:
        pass_time(HALF, lock)
        wait_for(lambda: lock.remaining() > HALF)


@override_settings(
    SHEDLOCK_PROVIDERS={
        alias: {"BACKEND": "django_shedlock.providers.memory.MemoryLockProvider"}
        for alias in ("default", "hangs")
    }
)
def test_store_that_hangs_holds_up_no_beat_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each store has a heartbeat, so only its own locks wait for its answer."""
    beating, go_on = threading.Event(), threading.Event()
    real = MemoryLockProvider.extend

    def extend(self: MemoryLockProvider, lock: Lock, *args: Any, **how: Any) -> bool:
        if self.alias == "hangs":
            beating.set()
            wait_for(go_on.is_set)
        return real(self, lock, *args, **how)

    monkeypatch.setattr(MemoryLockProvider, "extend", extend)
    options: Any = {"lock_at_most_for": LEASE, "keep_alive": True}
    with hold("stuck", provider="hangs", **options) as stuck, hold("a", **options) as a:
        beat_now(stuck)
        wait_for(beating.is_set)
        for _ in range(4):
            pass_time(THIRD, a)
        assert not a.is_lost
        assert not go_on.is_set()
        go_on.set()


def test_end_of_the_lease_is_told_while_the_store_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The beat waits for an answer; that the lock is lost does not wait for it."""
    beating, go_on = threading.Event(), threading.Event()
    woken: list[float] = []

    def hang(self: MemoryLockProvider, lock: Lock, *args: Any, **how: Any) -> bool:
        beating.set()
        wait_for(go_on.is_set)
        return True

    monkeypatch.setattr(MemoryLockProvider, "extend", hang)
    monkeypatch.setattr(MemoryLockProvider, "status", lambda *_: None)
    with hold("job", lock_at_most_for=LEASE, keep_alive=True) as lock:
        with lock.watched_by(lambda: woken.append(uptime())):
            beat_now(lock)
            wait_for(beating.is_set)
            deadline = end_own_count(lock, after=SOON)
            wait_for(lock.lost.is_set)
        go_on.set()
        wait_for(lambda: not is_kept_alive(lock))
    assert deadline <= woken[0]


def test_answer_after_the_loss_is_not_the_last_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was told to be lost stays lost, though the store extended it at last."""
    with hold("job", lock_at_most_for=LEASE, keep_alive=True) as lock:
        lock.declare_lost()
        beat_now(lock)
        wait_for(lambda: not is_kept_alive(lock))
        assert lock.is_lost


def test_lease_that_ends_while_the_store_is_asked_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process may stand still at that very moment, for longer than the lease."""
    with hold("job", lock_at_most_for=LEASE) as lock:
        questions = get_provider().questions
        monkeypatch.setattr(questions, "add", lambda *_: end_own_count(lock))
        end_own_count(lock, after=LEASE_END_NOTICE)
        notice = LEASE_END_NOTICE.total_seconds()
        assert watch_lease(lock, notice)
        assert not watch_lease(lock, notice)
        assert lock.lost.is_set()


def test_slow_refresh_makes_no_other_lease_look_extended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the store answered about the others is as old as the answer."""
    refreshed: list[str] = []
    passed = 0.0

    def refresh_slowly(lock: Lock) -> None:
        nonlocal passed
        refreshed.append(lock.name)
        passed = THIRD.total_seconds()

    with ExitStack() as stack:
        first, second = (
            stack.enter_context(hold(name, lock_at_most_for=LEASE))
            for name in ("a", "b")
        )
        monkeypatch.setattr(Lock, "refresh", refresh_slowly)
        monkeypatch.setattr(locks.lock, "uptime", lambda: uptime() + passed)
        age_own_count(first, by=THIRD)
        for lock in (first, second):
            lock.provider.questions.add(lock, lambda: None, math.inf)
        keep_alive.refresh_ending(first.provider)
    assert refreshed == ["a"]


def test_store_is_asked_once_before_each_end_of_the_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A lease that was extended meanwhile has another end, and another question."""
    asked: list[object] = []
    questions = get_provider().questions
    monkeypatch.setattr(questions, "add", lambda *entry: asked.append(entry))
    with hold("job", lock_at_most_for="1m") as lock:
        notice = LEASE_END_NOTICE.total_seconds()
        work = partial(watch_lease, lock, notice)
        assert work() == lock.lease_end - notice
        assert asked == []
        soon = end_own_count(lock, after=LEASE_END_NOTICE)
        assert work() == soon
        assert len(asked) == 1
        later = end_own_count(lock, after=2 * LEASE_END_NOTICE)
        assert work() == later - notice
        assert len(asked) == 1


def test_end_of_the_lease_does_not_wait_for_the_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A store that does not answer whether the lease is longer delays nothing."""
    asked, go_on = threading.Event(), threading.Event()

    def hang(*args: object) -> Iterator[NoReturn]:
        asked.set()
        wait_for(go_on.is_set)
        return iter(())

    monkeypatch.setattr(MemoryLockProvider, "statuses", hang)
    monkeypatch.setattr(keep_alive, "LEASE_END_NOTICE", LONG_NOTICE)
    with hold("job", lock_at_most_for=LEASE, keep_alive=True) as lock:
        end_own_count(lock, after=LONG_NOTICE / 2)
        wait_for(asked.is_set)
        end_own_count(lock)
        wait_for(lock.lost.is_set)
        go_on.set()


def test_end_of_an_inner_body_leaves_the_lease_watched() -> None:
    """The outer body still has to learn of the loss at once."""

    async def main() -> None:
        async with ahold("job", lock_at_most_for=LEASE) as lock:
            async with ahold("job"):
                pass
            assert lock in lease_ends.entries
        assert lock not in lease_ends.entries

    asyncio.run(main())


def test_lock_that_is_released_early_is_not_watched() -> None:
    """A lock that is released early is no longer watched, and is not lost."""
    with hold("job", lock_at_most_for=LEASE, keep_alive=True) as lock:
        assert lock.release()
        beat_now(lock)
        wait_for(lambda: not is_kept_alive(lock))
        end_own_count(lock)
        wait_for(lambda: lock not in lease_ends.entries)
        assert not lock.lost.is_set()


def test_release_during_a_beat_is_no_loss(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A lock that its body releases while the heartbeat extends it was not lost."""
    real = MemoryLockProvider.extend
    extending, released = threading.Event(), threading.Event()

    def extend(self: MemoryLockProvider, lock: Lock, *args: Any, **how: Any) -> bool:
        extending.set()
        wait_for(released.is_set)
        return real(self, lock, *args, **how)

    monkeypatch.setattr(MemoryLockProvider, "extend", extend)
    with caplog.at_level(logging.WARNING):
        with hold("job", lock_at_most_for=LEASE, keep_alive=True) as lock:
            beat_now(lock)
            wait_for(extending.is_set)
        released.set()
        wait_until_idle(lock)
    assert not lock.lost.is_set()
    assert caplog.text == ""


def test_body_that_raises_ends_the_heartbeat() -> None:
    """A job that fails leaves neither beat nor lock behind."""
    with pytest.raises(ZeroDivisionError):
        execute(lambda: 1 / 0, "job", lock_at_most_for=LEASE, keep_alive=True)
    assert not get_provider().heartbeats.entries
    assert not is_held("job")


def test_keep_alive_outside_the_main_thread() -> None:
    """A job may be kept alive from any thread."""
    results: list[Any] = []

    def work() -> None:
        with hold("job", lock_at_most_for=LEASE, keep_alive=True) as lock:
            for _ in range(4):
                pass_time(THIRD, lock)
            results.append(is_held("job"))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert results == [True]


@override_settings(
    SHEDLOCK_PROVIDERS={
        "default": {
            "BACKEND": "django_shedlock.providers.memory.MemoryLockProvider",
            "OPTIONS": {"keep_alive": True},
        }
    }
)
def test_provider_may_keep_all_its_locks_alive() -> None:
    """keep_alive of the provider is the default, and the option overrides it."""
    with hold("job", lock_at_most_for=LEASE) as lock:
        for _ in range(4):
            pass_time(THIRD, lock)
        assert is_held("job")
    with hold("job", lock_at_most_for=LEASE, keep_alive=False) as lock:
        pass_time(LEASE, lock)
        assert not is_held("job")


def run_lost(lose: Callable[[], Any], **options: Any) -> list[str]:
    """Run an async body that loses its lock; return its steps."""
    steps: list[str] = []

    async def body() -> None:
        steps.append("begun")
        lose()
        try:
            await asyncio.sleep(60)
        finally:
            steps.append("cleaned up")
        steps.append("ended")

    async def main() -> None:
        with pytest.raises(LockLost, match="'job' was lost by .* cancelled"):
            async with patience():
                await aexecute(body, "job", lock_at_most_for=LEASE, **options)
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()

    asyncio.run(main())
    return steps


def test_async_body_of_a_lost_lock_is_cancelled() -> None:
    """After a force-release an async body is cancelled, and its caller told."""

    def lose() -> None:
        force_release("job")
        beat_now(current_lock())

    assert run_lost(lose, keep_alive=True) == ["begun", "cleaned up"]


def test_loss_that_is_known_is_not_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is slow does not delay the cancellation: nobody asks it again."""
    asked: list[object] = []

    def statuses(self: MemoryLockProvider, query: object) -> Iterator[NoReturn]:
        asked.append(query)
        return iter(())

    def lose() -> None:
        force_release("job")
        monkeypatch.setattr(MemoryLockProvider, "statuses", statuses)
        beat_now(current_lock())

    assert run_lost(lose, keep_alive=True) == ["begun", "cleaned up"]
    assert asked == []


def end_own_count_soon() -> None:
    end_own_count(current_lock(), after=SOON)


def test_async_body_is_cancelled_when_its_lease_ends() -> None:
    """An async body without keep-alive is cancelled when its lease ends."""

    def lose() -> None:
        force_release("job")
        end_own_count_soon()

    assert run_lost(lose) == ["begun", "cleaned up"]


def test_async_body_that_an_operator_extended_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Shortly before its lease ends, the store is asked whether it is longer."""
    monkeypatch.setattr(keep_alive, "LEASE_END_NOTICE", LONG_NOTICE)

    async def body() -> str:
        lock = current_lock()
        force_extend(get_provider(), "job", 2 * LEASE)
        end_own_count(lock, after=LONG_NOTICE / 2)
        async with patience():
            while lock.remaining() < LEASE:
                await asyncio.sleep(0.005)
        return "done"

    result = asyncio.run(aexecute(body, "job", lock_at_most_for=LEASE))
    assert result.value == "done"


def test_async_body_is_kept_alive() -> None:
    """The same heartbeat keeps the locks of async bodies."""

    async def body() -> str:
        for _ in range(4):
            await asyncio.to_thread(pass_time, THIRD, current_lock())
        assert_locked()
        return "done"

    result = asyncio.run(aexecute(body, "job", lock_at_most_for=LEASE, keep_alive=True))
    assert result.value == "done"
    assert not is_held("job")


def test_cancellation_by_others_stays_a_cancellation() -> None:
    """Only a lost lock turns into LockLost."""

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                async with ahold("job", keep_alive=True):
                    await asyncio.sleep(30)

    asyncio.run(main())
    assert not is_held("job")


def test_async_body_may_release_early() -> None:
    """A body that gives its lock back goes on without it."""

    async def body() -> str:
        lock = current_lock()
        assert await lock.arelease()
        end_own_count(lock)
        await asyncio.to_thread(wait_for, lambda: lock not in lease_ends.entries)
        await asyncio.sleep(0)  # where a cancellation would strike
        return "done"

    assert asyncio.run(aexecute(body, "job", lock_at_most_for=LEASE)).value == "done"


def refuse_releases(
    monkeypatch: pytest.MonkeyPatch, times: int, go_on: threading.Event | None = None
) -> list[Lock]:
    """
    Let the store refuse so many releases; return those it was asked for.

    The others it carries out once the test lets it ``go_on``.
    """
    real, asked = MemoryLockProvider.release, []

    def release(self: MemoryLockProvider, lock: Lock, **options: Any) -> bool:
        asked.append(lock)
        if len(asked) <= times:
            raise LockProviderError("the store is down")
        assert go_on is None or go_on.wait(PATIENCE)
        return real(self, lock, **options)

    monkeypatch.setattr(MemoryLockProvider, "release", release)
    return asked


def test_refused_release_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In the background, until it works; the log tells when, and history its end."""
    outcomes: list[Any] = []

    def receiver(*, released: bool, exception: Any, **kwargs: Any) -> None:
        outcomes.append((released, exception))

    caplog.set_level(logging.INFO)
    go_on = threading.Event()
    asked = refuse_releases(monkeypatch, 3, go_on)
    with received_by(lock_released, receiver):
        assert execute(lambda: 7, "job", lock_at_most_for=LEASE).value == 7
        assert is_held("job")
        go_on.set()
        wait_for(lambda: not is_held("job"))
        wait_for(lambda: not late_releases.entries)
    assert len(asked) == 4
    assert outcomes == [(True, None)]
    assert re.search(r"'job' was released, \d+\.\d s late", caplog.text)


def log_raises(*args: object, **options: object) -> NoReturn:
    raise ConnectionError("no server")


def test_refused_release_is_tried_again_though_nobody_can_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A handler that raises keeps no lock from its release."""
    monkeypatch.setattr(logger.logger, "handle", log_raises)
    refuse_releases(monkeypatch, 3)
    with hold("job", lock_at_most_for=LEASE):
        pass
    wait_for(lambda: not is_held("job"))


def test_end_of_the_lease_is_told_though_nobody_can_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A lock is marked as lost even if another lock's watcher and the log raise."""
    monkeypatch.setattr(logger.logger, "handle", log_raises)
    options: Any = {"lock_at_most_for": LEASE, "keep_alive": True}
    with hold("a", **options) as a, hold("b", **options) as b, a.watched_by(log_raises):
        for lock in (a, b):
            force_release(lock.name)
            end_own_count(lock)
            wait_for(lock.lost.is_set)


def test_release_that_is_refused_until_the_lease_ends_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    A refused release is given up when the lease ends.

    Another caller may hold the lock from then on.
    """
    asked = refuse_releases(monkeypatch, 1000)
    with hold("job", lock_at_most_for=LEASE) as lock:
        pass
    wait_for(lambda: len(asked) > 1)
    end_lease(lock)
    wait_for(lambda: lock not in late_releases.entries)
    assert "'job' was not released before its lease ended" in caplog.text


def test_release_that_no_thread_can_try_again_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The body's result is kept all the same."""

    def refuse(thread: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    refuse_releases(monkeypatch, 1)
    with monkeypatch.context() as full:
        full.setattr(late_releases, "_thread", None)
        full.setattr(threading.Thread, "start", refuse)
        assert execute(lambda: 7, "job").value == 7
    assert "can't be released in the background: can't start" in caplog.text
