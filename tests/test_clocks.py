"""The clock of leases, and the pauses between two tries."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from django_shedlock import LockLost, ahold, clocks, hold
from django_shedlock.background import Timetable
from django_shedlock.clocks import Backoff, uptime
from django_shedlock.testing import locked_in_memory
from tests.support.waiting import PATIENCE, wait_for

HOUR = timedelta(hours=1)


def test_pauses_grow_to_a_second() -> None:
    """Each pause is jittered below a ceiling that doubles, up to a second."""
    backoff = Backoff(HOUR)
    pauses = [backoff.pause() or 0 for _ in range(12)]
    first, longest = Backoff.first_pause_seconds, Backoff.longest_pause_seconds
    ceilings = [min(first * 2**n, longest) for n in range(12)]
    for pause, ceiling in zip(pauses, ceilings, strict=True):
        assert ceiling / 2 <= pause <= ceiling


def test_two_waiters_do_not_march_in_step() -> None:
    """The jitter sets apart two that began to wait at the same moment."""
    first, second = Backoff(HOUR), Backoff(HOUR)
    assert [first.pause() for _ in range(5)] != [second.pause() for _ in range(5)]


class SuspendedClock:
    """Stands for ``time`` on a host that sleeps, where only one clock goes on."""

    CLOCK_BOOTTIME = 7

    def __init__(self) -> None:
        self.slept = 0.0

    def monotonic(self) -> float:
        return time.monotonic()

    def clock_gettime(self, clock: int) -> float:
        assert clock == self.CLOCK_BOOTTIME
        return time.monotonic() + self.slept


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[SuspendedClock]:
    clock = SuspendedClock()
    monkeypatch.setattr(clocks, "time", clock)
    with locked_in_memory():
        yield clock


def test_lease_ends_while_the_host_is_suspended(host: SuspendedClock) -> None:
    """A body that wakes up after its lease knows that the lock is lost."""
    with hold("job", lock_at_most_for="1h") as lock:
        host.slept += 3000
        assert not lock.is_lost
        assert lock.remaining() <= timedelta(seconds=600)
        host.slept += 600
        assert lock.is_lost
        assert lock.remaining() == timedelta(0)


def test_body_that_waits_is_told_after_a_suspension(host: SuspendedClock) -> None:
    """Nobody has to wake the thread that watches the ends of leases."""

    async def main() -> None:
        async with ahold("job", lock_at_most_for="1h"):
            host.slept += 3600
            await asyncio.wait_for(asyncio.Event().wait(), PATIENCE)

    with pytest.raises(LockLost, match="'job' was lost"):
        asyncio.run(main())


def test_thread_looks_at_what_is_due_all_the_time(host: SuspendedClock) -> None:
    """No wait is long, since it stands still while the host is suspended."""
    timetable, called = Timetable("of a test"), threading.Event()
    timetable.add("late", lambda: called.set(), uptime() + 3600)
    waits: list[float] = []
    wait = timetable._changed.wait

    def recorded(timeout: float) -> bool:
        waits.append(timeout)
        return wait(timeout)

    timetable._changed.wait = recorded  # type: ignore[assignment,method-assign]
    wait_for(lambda: waits)
    host.slept += 3600
    wait_for(called.is_set)
    assert max(waits) <= Timetable.watch_interval_seconds


def test_host_without_such_a_clock(host: SuspendedClock) -> None:
    """Elsewhere the monotonic clock has to do."""
    before = time.monotonic()
    del SuspendedClock.CLOCK_BOOTTIME
    try:
        assert before <= uptime() <= time.monotonic()
    finally:
        SuspendedClock.CLOCK_BOOTTIME = 7
