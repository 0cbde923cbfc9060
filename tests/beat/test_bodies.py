"""Bodies of a beat, of which a few run at once, each in a process of its own."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from django_shedlock.beat.bodies import Bodies
from django_shedlock.locks.status import LockState
from django_shedlock.processes import child
from django_shedlock.providers import get_provider
from django_shedlock.registry.jobs import Job
from tests.support.runs import is_alive
from tests.support.waiting import PATIENCE, wait_for

pytestmark = [pytest.mark.once, pytest.mark.django_db(transaction=True)]

AT_ONCE = timedelta(0)
LATE = timedelta(seconds=PATIENCE)
PAUSE = 0.05
"""Seconds between two looks for a signal."""
PR_SET_CHILD_SUBREAPER = 36


class Named:
    """Bodies that write their names into a folder, and go on until they may end."""

    def __init__(self, folder: Path, bodies: Bodies):
        self.folder, self.bodies = folder, bodies

    def add(
        self, key: str, name: str = "", body: Callable[[], object] | None = None
    ) -> None:
        self.bodies.add(key, self._run, name or key, body or self._wait)

    def let_end(self, name: str) -> None:
        """Let the body of this name end."""
        (self.folder / f"{name} may end").touch()

    def wait_for(self, *names: str) -> None:
        """Wait until these have begun, and no others."""
        self.turn_until(lambda: self.begun() == [*names])

    def turn_until(self, condition: Callable[[], Any]) -> None:
        """Let the bodies wait again and again, as a beat does."""

        def turn() -> Any:
            self.bodies.wait(0)
            return condition()

        wait_for(turn)

    def end_of_all(self) -> None:
        """Wait until nothing runs."""
        self.turn_until(lambda: not self.bodies._running)

    def begun(self) -> list[str]:
        """Return those that have begun, in their order."""
        log = self.folder / "begun"
        return log.read_text().split() if log.exists() else []

    def _run(self, name: str, body: Callable[[], object]) -> None:
        with (self.folder / "begun").open("a") as log:
            print(name, file=log)
        self._name = name
        body()

    def _wait(self) -> None:
        wait_for((self.folder / f"{self._name} may end").exists)


@pytest.fixture
def bodies(tmp_path: Path) -> Iterator[Named]:
    made = Bodies(2)
    with made.signals.handled():
        yield Named(tmp_path, made)
        made.end(AT_ONCE)


def test_so_many_run_at_once(bodies: Named) -> None:
    """The others begin in their order, as soon as there is room."""
    for name in ("one", "two", "three", "four"):
        bodies.add(name)
    bodies.turn_until(lambda: sorted(bodies.begun()) == ["one", "two"])
    bodies.bodies.wait(0)
    assert len(bodies.begun()) == 2
    bodies.let_end("two")
    bodies.turn_until(lambda: bodies.begun()[2:] == ["three"])
    bodies.let_end("one")
    bodies.turn_until(lambda: bodies.begun()[3:] == ["four"])


def test_same_key_waits_for_the_end(bodies: Named) -> None:
    """And the newest of those that wait is the one that counts."""
    bodies.add("job", "first")
    bodies.wait_for("first")
    bodies.add("job", "second")
    bodies.add("job", "third")
    bodies.add("other")
    bodies.wait_for("first", "other")
    bodies.let_end("first")
    bodies.wait_for("first", "other", "third")


def test_body_that_fails_is_logged(bodies: Named, child_log: Path) -> None:
    """Others go on."""
    bodies.add("job", "failing", body=lambda: print(1 // 0))
    bodies.wait_for("failing")
    bodies.add("job", "next")
    bodies.wait_for("failing", "next")
    error = child_log.read_text()
    assert "job failed." in error
    assert "ZeroDivisionError" in error


def test_sigchld_that_is_ignored(tmp_path: Path) -> None:
    """As a parent may have left it; still a job's next run follows its last."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        made = Bodies(1)
        with made.signals.handled():
            named = Named(tmp_path, made)
            for name in ("first", "second"):
                named.add("job", name, body=bool)
                named.end_of_all()
                assert named.begun()[-1] == name
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_two_signals_interrupt_once(bodies: Named) -> None:
    """`pkill -f "shedlock beat"` tells the body, and so does the beat."""
    begun, tidying = bodies.folder / "begun tidying", bodies.folder / "tidied"
    ready = bodies.folder / "ready"

    def work() -> None:
        try:
            ready.touch()
            wait_for(lambda: False)
        finally:
            begun.touch()
            time.sleep(10 * PAUSE)
            tidying.touch()

    bodies.add("job", body=work)
    bodies.turn_until(ready.exists)
    [running] = bodies.bodies._running.values()
    running.send(signal.SIGTERM)
    bodies.turn_until(begun.exists)
    running.send(signal.SIGTERM)
    bodies.end_of_all()
    assert tidying.exists()


def test_coroutine_gets_the_signal(bodies: Named) -> None:
    """It is cancelled, tidies up, and releases its lock."""
    file = bodies.folder / "tidied up"

    async def work() -> None:
        try:
            (bodies.folder / "ready").touch()
            await asyncio.sleep(PATIENCE)
        finally:
            file.touch()

    bodies.add("job", body=Job("job", work).start)
    bodies.turn_until((bodies.folder / "ready").exists)
    bodies.bodies.end(LATE)
    assert file.exists()
    assert get_provider().status("job").state is LockState.FREE


def test_body_that_is_killed_is_logged(
    bodies: Named, caplog: pytest.LogCaptureFixture
) -> None:
    """As where the host has no memory left: nobody else would tell."""
    bodies.add("job", body=lambda: os.kill(os.getpid(), signal.SIGKILL))
    bodies.turn_until(lambda: caplog.messages)
    assert caplog.messages == ["job was killed by signal 9."]


def test_body_that_is_killed_takes_its_group_along(bodies: Named) -> None:
    """What it had started would go on without the lock."""
    file = bodies.folder / "pid"

    def work() -> None:
        started = subprocess.Popen(["sleep", "1000"])
        file.write_text(str(started.pid))
        os.kill(os.getpid(), signal.SIGKILL)

    bodies.add("job", body=work)
    bodies.turn_until(lambda: file.exists() and file.read_text())
    bodies.end_of_all()
    wait_for(lambda: not is_alive(int(file.read_text())))


@pytest.mark.skipif(sys.platform != "linux", reason="it has subreapers")
@pytest.mark.parametrize("is_first", [True, False])
def test_first_process_of_a_container(
    bodies: Named, monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    """Orphans become its own, and stay zombies until it waits for them."""
    libc, file = ctypes.CDLL(None), bodies.folder / "pid"
    monkeypatch.setattr(child, "is_first_process", lambda: is_first)

    def work() -> None:
        file.write_text(str(subprocess.Popen(["true"]).pid))

    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        bodies.add("job", body=work)
        bodies.turn_until(lambda: file.exists() and file.read_text())
        orphan = int(file.read_text())
        bodies.end_of_all()
        wait_for(lambda: not is_alive(orphan))
        if is_first:
            bodies.turn_until(lambda: not Path(f"/proc/{orphan}").exists())
        else:  # they are for others to wait for
            bodies.bodies.wait(0)
            os.waitpid(orphan, 0)
    finally:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 0)


@pytest.mark.parametrize(("pid", "is_first"), [(1, True), (2, False)])
def test_which_process_is_the_first(
    monkeypatch: pytest.MonkeyPatch, pid: int, is_first: bool
) -> None:
    """Another one leaves orphans to the first process of its host."""
    monkeypatch.setattr(os, "getpid", lambda: pid)
    assert child.is_first_process() is is_first


def tidy_up(file: Path, begun: Path) -> None:
    try:
        begun.touch()
        while True:  # a signal just before a long wait is handled after it
            time.sleep(PAUSE)
    finally:
        file.touch()


def test_end_is_told(bodies: Named) -> None:
    """A body that gets SIGTERM may tidy up, and end() waits for that."""
    file = bodies.folder / "tidied up"
    begun = bodies.folder / "can tidy up"
    bodies.add("job", body=partial(tidy_up, file, begun))
    bodies.turn_until(begun.exists)
    bodies.bodies.end(LATE)
    assert file.exists()


def go_on(folder: Path, on_sigterm: Any = signal.SIG_IGN) -> None:
    signal.signal(signal.SIGTERM, on_sigterm)
    child = subprocess.Popen(["sh", "-c", 'trap "" TERM; sleep 1000'])
    (folder / "pids").write_text(f"{os.getpid()} {child.pid}")
    while child.poll() is None:
        time.sleep(PATIENCE)


def pids(bodies: Named) -> list[int]:
    file = bodies.folder / "pids"
    bodies.turn_until(lambda: file.exists() and len(file.read_text().split()) == 2)
    return [int(pid) for pid in file.read_text().split()]


def test_what_goes_on_is_killed(bodies: Named) -> None:
    """With all that it has started, when the grace is over."""
    bodies.add("job", body=partial(go_on, bodies.folder))
    stubborn = pids(bodies)
    bodies.bodies.end(AT_ONCE)
    wait_for(lambda: not any(map(is_alive, stubborn)))


def tell_parent(number: int, frame: object) -> None:
    os.kill(os.getppid(), signal.SIGTERM)


def test_another_signal_ends_the_grace(bodies: Named) -> None:
    """Somebody who asks twice does not want to wait."""
    bodies.add("job", body=partial(go_on, bodies.folder, tell_parent))
    stubborn = pids(bodies)
    bodies.bodies.end(LATE)
    wait_for(lambda: not any(map(is_alive, stubborn)))


def test_signal_ends_a_wait(bodies: Named) -> None:
    """Also one that came just before; and nothing starts after it."""
    os.kill(os.getpid(), signal.SIGTERM)
    bodies.add("job")
    bodies.bodies.wait(PATIENCE)
    assert bodies.bodies.is_ending
    bodies.bodies.wait(0)
    assert bodies.begun() == []


def test_no_process_can_be_started(
    bodies: Named, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The body waits for a better time."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "fork", refuse)
        bodies.add("job")
        bodies.bodies.wait(0)
    assert "No process can be started for 'job': no room" in caplog.text
    bodies.wait_for("job")


def refuse() -> int:
    raise BlockingIOError("no room")
