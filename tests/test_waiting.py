"""The pauses of somebody who waits for a lock."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest

from django_shedlock import aexecute, execute
from django_shedlock.holders import CONTENDED, LockHolder
from django_shedlock.locks import Lock
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.test import held_elsewhere, locked_in_memory
from django_shedlock.waiting import LONGEST_PAUSE, SHORTEST_PAUSE, Waiting

HOUR = timedelta(hours=1)
BUSY = LockHolder("somebody", HOUR)


def test_no_wait_gives_up_at_once() -> None:
    """Without wait= there is no second attempt."""
    assert Waiting(timedelta(0)).pause(BUSY) is None


def test_pauses_grow_to_a_second() -> None:
    """Each pause is jittered below a ceiling that doubles, up to a second."""
    waiting = Waiting(HOUR)
    pauses = [waiting.pause(BUSY) or 0 for _ in range(12)]
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


def test_pause_ends_with_the_wait() -> None:
    """The last pause is as long as what is left of the wait."""
    pause = Waiting(timedelta(milliseconds=10)).pause(BUSY)
    assert pause is not None
    assert pause <= 0.01


def test_waiting_is_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second of waiting takes a few attempts, not hundreds."""
    attempts: list[float] = []
    real = MemoryLockProvider.take

    def take(self: MemoryLockProvider, lock: Lock) -> LockHolder | None:
        attempts.append(time.monotonic())
        return real(self, lock)

    with locked_in_memory(), held_elsewhere("job"):
        monkeypatch.setattr(MemoryLockProvider, "take", take)
        assert not execute(lambda: 1, "job", wait="900ms").was_executed
    assert 2 <= len(attempts) <= 12


def test_async_wait_does_not_block_the_loop() -> None:
    """While one task waits for a lock, the others of its loop go on."""

    async def body() -> None: ...

    async def count_turns(turns: list[int]) -> None:
        while True:
            turns.append(1)
            await asyncio.sleep(0.01)

    async def main() -> int:
        turns: list[int] = []
        counting = asyncio.create_task(count_turns(turns))
        result = await aexecute(body, "job", wait="400ms")
        counting.cancel()
        assert not result.was_executed
        return len(turns)

    with locked_in_memory(), held_elsewhere("job"):
        assert asyncio.run(main()) > 5
