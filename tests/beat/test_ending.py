"""The orderly end of a beat, with a job that is no process."""

from __future__ import annotations

import signal
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from django_shedlock.beat.ending import OrderlyEnd
from django_shedlock.beat.looks import EndTimes
from tests.support.waiting import NEVER_SECONDS

LATE = timedelta(seconds=NEVER_SECONDS)


class OneJob:
    """Stands for the started jobs, and for the only one of them."""

    name = "job"
    has_unreleased = False

    def __init__(self) -> None:
        self.running = {self.name: self}
        self.looks = 0
        self.was_ended = False

    def look(self) -> list[Any]:
        """End by itself at the third look, and earlier only after SIGTERM."""
        self.looks += 1
        if self.was_ended or self.looks == 3:
            self.running.clear()
        return []

    def end(self, kill_after: timedelta) -> None:
        self.was_ended = True

    def read_and_release_dead(self) -> None:
        """Have nothing to release."""


@pytest.mark.parametrize(
    ("stop_timeout", "is_ended"), [(LATE, False), (timedelta(0), True)]
)
def test_job_may_finish_within_the_stop_timeout(
    stop_timeout: timedelta, *, is_ended: bool
) -> None:
    """A SIGTERM to the beat is passed on only once the stop timeout is over."""
    jobs: Any = OneJob()
    signals: Any = SimpleNamespace(received=[signal.SIGTERM], wait=lambda seconds: None)
    times = EndTimes(stop_timeout, kill_after=LATE)
    assert OrderlyEnd(jobs, signals, times, [].append).run()
    assert jobs.was_ended is is_ended
    assert not jobs.running
