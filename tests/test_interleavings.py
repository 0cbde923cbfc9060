"""Threads that are interleaved in every way in which it matters."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.waiting import STARTUP_PATIENCE

pytestmark = pytest.mark.once

FRONTRUN = Path(sys.executable).with_name("frontrun")


Found = dict[str, tuple[bool | None, int]]


@pytest.fixture(scope="module")
def found() -> Found:
    """Return of each whether it is right in all ways, and how many were tried."""
    pytest.importorskip("frontrun", reason="install the group 'test-all'")
    explored = subprocess.run(
        [FRONTRUN, "python", "-m", "tests.interleavings"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=STARTUP_PATIENCE,
        check=True,
    )
    result: Found = json.loads(explored.stdout)
    return result


def test_one_of_three_threads_writes_a_lock_in_memory(found: Found) -> None:
    """Of those that have read the same entry one replaces it, in whatever order."""
    is_right, count = found["MemoryLockProvider"]
    assert is_right
    assert count > 1


def test_work_that_comes_as_the_thread_ends_is_done(found: Found) -> None:
    """A timetable's thread sees the new work, or another one is started for it."""
    is_right, count = found["Timetable"]
    assert is_right
    assert count > 1


@pytest.mark.parametrize("twin", ["CarelessProvider", "CarelessTimetable"])
def test_broken_twin_is_found(twin: str, found: Found) -> None:
    """Without the mutex, or the condition around the last look, some way is wrong."""
    is_right, _ = found[twin]
    assert is_right is False
