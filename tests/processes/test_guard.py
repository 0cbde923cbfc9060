"""The guard of ``manage.py shedlock run``: it starts the command, and may end it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from django_shedlock.processes import guard
from tests.support.paths import ROOT
from tests.support.waiting import wait_for


@pytest.mark.parametrize(
    ("program", "status", "problem"),
    [
        ("/no/such/program", 127, "not found"),
        ("no-such-program", 127, "not found"),
        (str(ROOT / "README.rst" / "program"), 127, "not found"),
        (str(ROOT / "README.rst"), 126, "Permission denied"),
    ],
)
def test_program_that_cannot_be_started(
    program: str, status: int, problem: str
) -> None:
    """The status and the message are like a shell's."""
    reader, writer = os.pipe()
    ended = subprocess.run(
        [sys.executable, guard.__file__, "become", str(writer), "", program],
        pass_fds=[writer],
        capture_output=True,
        text=True,
    )
    os.close(reader)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (status, f"{program}: {problem}\n")


def test_nothing_starts_without_its_guard(tmp_path: Path) -> None:
    """If the watcher has died, nobody would end what starts now."""
    reader, writer = os.pipe()
    os.close(reader)
    touch = ["touch", str(tmp_path / "ran")]
    ended = subprocess.run(
        [sys.executable, guard.__file__, "become", str(writer), "", *touch],
        pass_fds=[writer],
        capture_output=True,
        text=True,
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (126, "touch: Broken pipe\n")
    assert not Path(tmp_path, "ran").exists()


def watched(report: bytes, kill_after: float) -> None:
    """Let a process that has reported this die."""
    reader, writer = os.pipe()
    os.write(writer, report)
    os.close(writer)
    guard.watch(reader, kill_after)
    os.close(reader)


def test_process_that_dies_before_its_command() -> None:
    """There is nothing to end."""
    watched(b"", 600)


def test_command_that_has_ended() -> None:
    """A process that dies just after its command leaves nothing to end, either."""
    ended = subprocess.Popen(["true"], process_group=0)
    ended.wait()
    watched(b"%d" % -ended.pid, 600)


@pytest.mark.parametrize("has_group", [True, False])
def test_command_tidies_up(has_group: bool) -> None:
    """
    The guard sends SIGTERM to a command, even if the command is stopped.

    The guard waits no longer than the command takes to tidy up.
    """
    command = subprocess.Popen(
        ["sh", "-c", "trap 'exit 5' TERM; echo; while :; do sleep 0.05; done"],
        stdout=subprocess.PIPE,
        process_group=0 if has_group else None,
    )
    assert command.stdout is not None
    command.stdout.readline()
    os.kill(command.pid, signal.SIGSTOP)
    waiting = threading.Thread(target=command.wait)  # as the system's first process
    waiting.start()
    watched(b"%d" % (-command.pid if has_group else command.pid), 600)
    waiting.join()
    command.stdout.close()
    assert command.returncode == 5


def test_command_that_does_not_end_is_killed() -> None:
    """The guard kills a command that does not end within ``--kill-after``."""
    command = subprocess.Popen(
        ["sh", "-c", "trap '' TERM; echo; while :; do sleep 0.05; done"],
        stdout=subprocess.PIPE,
        process_group=0,
    )
    assert command.stdout is not None
    command.stdout.readline()
    watched(b"%d" % -command.pid, 0)
    wait_for(lambda: command.poll() is not None)
    command.stdout.close()
    assert command.returncode == -signal.SIGKILL
