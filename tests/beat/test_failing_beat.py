"""A beat that ends by an exception, as no beat should."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest

from django_shedlock import scheduler_lock
from django_shedlock.beat.looks import Look
from django_shedlock.beat.loop import BeatLoop
from tests.support.beats import KEPT, PAUSE, beats_in, when_it_waits
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.once, pytest.mark.django_db(transaction=True)]


def test_jobs_that_wait_for_room_do_not_begin(tmp_path: Path) -> None:
    """Jobs that wait for room do not begin while a failing beat ends the others."""
    with beats_in(tmp_path) as beats:
        prepare = partial(fail_when_two_have_begun, tmp_path)
        options = ["--jobs", "2", "--no-catch-up", "--stop-timeout", "0s"]
        host = beats.start(*options, prepare=prepare)
        when_it_waits(host)
        beats.step()
        _, errors = host.communicate()
    assert errors.endswith("ZeroDivisionError: by nobody\n")
    assert len(begun(tmp_path)) == 2


def fail_when_two_have_begun(folder: Path) -> None:
    """Have three jobs at each tick, beside that of all hosts of these tests."""

    def look_after_children(loop: BeatLoop) -> None:
        if len(begun(folder)) == 2:
            raise ZeroDivisionError("by nobody")
        really(loop)

    def due_to_us(look: Look, busy: object = ()) -> object:
        return [each for each in due(look, busy) if each.name != "each minute"]

    really, due = BeatLoop._look_after_children, Look.due
    for patched in (
        patch.object(BeatLoop, "_look_after_children", look_after_children),
        patch.object(Look, "due", due_to_us),
    ):
        patched.__enter__()
        KEPT.append(patched)
    for name in ("first", "second", "third"):
        lock = scheduler_lock(name, schedule="* * * * *")
        KEPT.append(lock(partial(run, folder)))


def begun(folder: Path) -> list[int]:
    """Return the processes of the bodies that have begun, in their order."""
    file = folder / "begun"
    return [int(pid) for pid in file.read_text().split()] if file.exists() else []


def run(folder: Path) -> None:
    """Go on until SIGTERM. The second body ends when the beat has reaped the first."""
    with (folder / "begun").open("a") as file:
        print(os.getpid(), file=file)
    try:
        while True:
            time.sleep(PAUSE)
    finally:
        first = begun(folder)[0]
        if first != os.getpid():
            wait_for(lambda: is_reaped(first))


def is_reaped(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False
