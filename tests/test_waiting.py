"""The pauses of somebody who waits for a lock."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_shedlock import aexecute, attempts, execute, waiting
from django_shedlock.holders import CONTENDED, LockHolder
from django_shedlock.locks import Lock
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.test import held_elsewhere, locked_in_memory
from django_shedlock.waiting import LONGEST_PAUSE, SHORTEST_PAUSE, Waiting
from tests.support.waiting import PATIENCE

HOUR = timedelta(hours=1)
BUSY = LockHolder("somebody", HOUR)


def test_no_wait_gives_up_at_once() -> None:
    """Without wait= there is no second attempt."""
    assert Waiting(timedelta(0)).pause(BUSY) is None


def test_pauses_grow_to_a_second() -> None:
    """Each pause is jittered below a ceiling that doubles, up to a second."""
    waits = Waiting(HOUR)
    pauses = [waits.pause(BUSY) or 0 for _ in range(12)]
    ceilings = [min(SHORTEST_PAUSE * 2**n, LONGEST_PAUSE) for n in range(12)]
    for pause, ceiling in zip(pauses, ceilings, strict=True):
        assert ceiling / 2 <= pause <= ceiling


def test_two_waiters_do_not_march_in_step() -> None:
    """The jitter sets apart those who began to wait at the same moment."""
    first, second = Waiting(HOUR), Waiting(HOUR)
    assert [first.pause(BUSY) for _ in range(5)] != [
        second.pause(BUSY) for _ in range(5)
    ]


def test_pause_ends_with_the_holders_lease() -> None:
    """Nobody sleeps past the instant at which the lock can be had."""
    holder = LockHolder("somebody", timedelta(milliseconds=3))
    assert Waiting(HOUR).pause(holder) == pytest.approx(0.003)


def test_unknown_lease_is_no_busy_loop() -> None:
    """A holder of whom nothing is known is asked for after a pause, too."""
    assert (Waiting(HOUR).pause(CONTENDED) or 0) >= SHORTEST_PAUSE / 2


def test_tick_that_is_done_is_not_waited_for() -> None:
    """No waiting brings back a tick that has been run."""
    done = LockHolder("somebody", tick=datetime(2026, 1, 1, tzinfo=UTC))
    assert Waiting(HOUR).pause(done) is None


class Clock:
    """Stands for ``time``, which passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(waiting, "time", made)
    monkeypatch.setattr(attempts, "time", made)
    return made


def test_pause_ends_with_the_wait(clock: Clock) -> None:
    """The last pause is as long as what is left of the wait."""
    short = Waiting(timedelta(milliseconds=10))
    assert short.pause(BUSY) == pytest.approx(0.01)
    clock.sleep(0.01)
    assert short.pause(BUSY) is None


@pytest.mark.usefixtures("clock")
def test_waiting_is_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second of waiting takes a few attempts, not hundreds."""
    asked: list[str] = []
    real = MemoryLockProvider.take

    def take(self: MemoryLockProvider, lock: Lock) -> LockHolder | None:
        asked.append(lock.name)
        return real(self, lock)

    with locked_in_memory(), held_elsewhere("job"):
        monkeypatch.setattr(MemoryLockProvider, "take", take)
        assert not execute(lambda: 1, "job", wait="900ms").was_executed
    assert 2 <= len(asked) <= 12


def test_async_wait_does_not_block_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one task waits for a lock, the others of its loop go on."""
    pauses: list[float] = []

    def pause(*args: Any) -> float:
        pauses.append(PATIENCE)
        return PATIENCE

    async def body() -> None: ...

    async def main() -> None:
        waiter = asyncio.create_task(aexecute(body, "job", wait="1h"))
        while not pauses and not waiter.done():
            await asyncio.sleep(0.001)
        assert pauses
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter

    monkeypatch.setattr(Waiting, "pause", pause)
    with locked_in_memory(), held_elsewhere("job"):
        begun = time.monotonic()
        asyncio.run(main())
        assert time.monotonic() - begun < PATIENCE
