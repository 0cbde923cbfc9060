"""How tests wait: a failure ends a wait soon, a machine that stands still does not."""

from __future__ import annotations

import asyncio
from multiprocessing.synchronize import Barrier
from types import SimpleNamespace

import pytest

from tests.support import waiting
from tests.support.processes import Parent, race
from tests.support.threads import meeting_of, run_threads, running_threads
from tests.support.waiting import PATIENCE, patience, wait_for


class Machine:
    """The clock of a machine that stands still in each pause."""

    def __init__(self, standstill: float):
        self.now, self.pauses = 0.0, 0
        self._standstill = standstill

    def sleep(self, seconds: float) -> None:
        self.pauses += 1
        self.now += seconds + self._standstill


@pytest.mark.parametrize(("standstill", "pauses"), [(0, 1500), (60, PATIENCE)])
def test_standstill_uses_up_one_step(
    standstill: float, pauses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit of a wait counts the time in which its process runs."""
    machine = Machine(standstill)
    clock = SimpleNamespace(monotonic=lambda: machine.now, sleep=machine.sleep)
    monkeypatch.setattr(waiting, "time", clock)
    with pytest.raises(AssertionError, match="did not happen within 15 seconds"):
        wait_for(lambda: False, pause=0.01)
    assert machine.pauses == pytest.approx(pauses, abs=2)


def test_coroutine_that_does_not_end_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body of ``patience()`` that waits for nothing is given up."""
    monkeypatch.setattr(waiting, "PATIENCE", 0.2)

    async def wait_for_ever() -> None:
        async with patience():
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        asyncio.run(wait_for_ever())


def fail_alone(parent: Parent, barrier: Barrier) -> None:
    """Let one racer fail while the others wait for it."""
    if barrier.wait() == 0:
        raise ZeroDivisionError("the first error")
    barrier.wait()


def test_error_of_a_process_ends_the_race() -> None:
    """The error of one racer is reported while the others wait for it."""
    with pytest.raises(AssertionError, match="ZeroDivisionError: the first error"):
        race(4, fail_alone)


def test_results_of_a_race_are_those_of_all_its_processes() -> None:
    """Each racer's result is returned, whoever ends first."""
    assert sorted(race(3, meet)) == [0, 1, 2]


def meet(parent: Parent, barrier: Barrier) -> int:
    return barrier.wait()


def test_error_of_a_thread_ends_the_race() -> None:
    """The first error is raised, and not that of the barrier which it breaks."""
    meeting = meeting_of(4)

    def fail_alone() -> None:
        if meeting.wait() == 0:
            raise ZeroDivisionError("the first error")
        meeting.wait()

    with pytest.raises(ZeroDivisionError, match="the first error"):
        run_threads(4, fail_alone, meeting)


def test_error_of_the_body_ends_the_race() -> None:
    """The threads do not wait for the body that has failed."""
    meeting = meeting_of(3)
    with (
        pytest.raises(ZeroDivisionError),
        running_threads(2, meeting.wait, meeting),
    ):
        raise ZeroDivisionError
    assert meeting.broken
