"""How a job in some worker's process and its test tell each other what happened."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from django_shedlock import assert_locked
from tests.support.waiting import STARTUP_PATIENCE


class Notes:
    """Files in a folder: what happened is counted, what may happen is there."""

    def __init__(self, folder: Path):
        self.folder = folder

    def __str__(self) -> str:
        """Return what the test's processes have printed."""
        return Path(self.folder, "output").read_text()

    def write(self, event: str) -> None:
        """Note that this happened once more."""
        with Path(self.folder, event).open("a") as file:
            file.write("x")

    def count(self, event: str) -> int:
        """Return how often this happened."""
        file = self.folder / event
        return file.stat().st_size if file.exists() else 0

    def wait_for(self, event: str, times: int = 1) -> None:
        """Wait until this happened as often; fail if that takes too long."""
        deadline = time.monotonic() + STARTUP_PATIENCE
        while self.count(event) < times:
            assert time.monotonic() < deadline, f"no {event}, {times} times: {self}"
            time.sleep(0.01)


def notes() -> Notes:
    """Return the notes of the test that started this process."""
    return Notes(Path(os.environ["SHEDLOCK_TEST_FOLDER"]))


def run_until_allowed() -> str:
    """Be the body of a job, which lasts until the test has seen what it waits for."""
    assert_locked()
    notes().write("run")
    notes().wait_for("may end")
    assert_locked()
    notes().write("end")
    return "sent"


def note_skip(**kwargs: Any) -> None:
    """Tell the test that a job was skipped."""
    notes().write("skip")
