"""What this package starts in a process of its own waits for its store at its end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connections

from django_shedlock.testing import is_held
from tests.support.beats import beats_in, when_it_waits
from tests.support.runs import InterpreterRunner, first_line, sh
from tests.support.servers import Server, answers, own_server
from tests.support.waiting import PATIENCE, wait_for
from tests.support.warm import Command, killed_after

pytestmark = [pytest.mark.servers_only, pytest.mark.django_db(transaction=True)]
FAILED = "could not be released, and is tried again"
FILE_MAX_BYTES = 100_000


@pytest.fixture
def server() -> Iterator[Server]:
    with own_server() as made:
        yield made


def test_wrapper_waits_for_its_store(
    server: Server, interpreter: InterpreterRunner
) -> None:
    """The lock of shedlock run is free as soon as its store is back."""
    wrapper = interpreter.start("job", *sh("echo inside; read line"))
    assert first_line(wrapper) == "inside"
    server.stop()
    assert wrapper.stdin is not None
    wrapper.stdin.write("go on\n")
    wrapper.stdin.flush()
    assert wrapper.stderr is not None
    with killed_after(PATIENCE, wrapper):
        assert FAILED in wrapper.stderr.readline()
    server.start()
    assert wrapper.wait(PATIENCE) == 0
    wait_for(lambda: not is_held("job"))


def errors_of(host: Command) -> bytes:
    """Return its errors so far. They are in a file, whose position it shares."""
    return os.pread(host.stderr.fileno(), FILE_MAX_BYTES, 0)


def stay_inside(folder: Path) -> None:
    """Be inside the lock until the test lets it go on."""
    (folder / "inside").touch()
    wait_for((folder / "go on").exists)


def test_job_of_a_beat_waits_for_its_store(server: Server, tmp_path: Path) -> None:
    """The lock of a forked body is free as soon as its store is back."""
    with beats_in(tmp_path) as beats:
        host = beats.start("--no-catch-up", body=stay_inside)
        when_it_waits(host)
        beats.step()
        wait_for((tmp_path / "inside").exists)
        server.stop()
        connections["default"].close()
        (tmp_path / "go on").touch()
        wait_for(lambda: FAILED.encode() in errors_of(host))
        server.start()
        wait_for(answers)
        wait_for(lambda: not is_held("each minute"))
        host.send_signal(signal.SIGTERM)
        assert host.wait(PATIENCE) == 0
