"""The launcher of ``manage.py shedlock run``: how it signals, and what it can't see."""

from __future__ import annotations

import errno
import marshal
import os
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from django_shedlock.processes import launcher
from django_shedlock.processes.launcher import Guardian
from tests.support.paths import ROOT
from tests.support.waiting import PATIENCE

DESCENDANTS = launcher._descendants
TERMINATED = [(-7, signal.SIGTERM), (-7, signal.SIGCONT)]


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command be the only descendant: those of the tests are no command's."""
    monkeypatch.setattr(launcher, "_descendants", lambda: {7: 7})


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return which process or group is sent which signal from now on."""
    signals: list[tuple[int, int]] = []

    def note(pid: int, number: int) -> None:
        signals.append((pid, number))

    monkeypatch.setattr(os, "kill", note)
    return signals


def guardian(*, has_terminal: bool = False) -> Guardian:
    return Guardian(b"backup", 7, grace=3600, has_terminal=has_terminal)


def test_command_is_asked_to_end_once(sent: list[tuple[int, int]]) -> None:
    """Whatever sees the lost lock, and if this process ends then, one grace counts."""
    watched = guardian()
    watched.end()
    watched.end()
    assert sent == TERMINATED


def test_group_that_has_ended_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal may come too late."""

    def fail(pid: int, number: int) -> None:
        raise ProcessLookupError

    monkeypatch.setattr(os, "kill", fail)
    assert not guardian().send(signal.SIGTERM)


def test_other_user_is_named_once(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The signals that follow the first one can't be sent either: that is no news."""

    def refuse(pid: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "kill", refuse)
    guardian().end()
    assert capfd.readouterr().err == (
        "Command 'backup', process 7, can't be sent SIGTERM, so it goes on: "
        "Operation not permitted\n"
    )


@pytest.mark.parametrize("is_of_others", [False, True])
@pytest.mark.parametrize(("has_terminal", "target"), [(True, 7), (False, -7)])
def test_system_without_proc(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    sent: list[tuple[int, int]],
    has_terminal: bool,
    target: int,
    is_of_others: bool,
) -> None:
    """
    In a terminal the command is signalled; elsewhere its group, as always.

    In a new PID namespace, /proc may still be that of the other processes.
    """
    in_folder = partial(DESCENDANTS, str(tmp_path))
    monkeypatch.setattr(launcher, "_descendants", in_folder)
    if is_of_others:
        Path(tmp_path, "1").mkdir()
        Path(tmp_path, "1", "stat").touch()
        Path(tmp_path, "self").symlink_to("1")
    guardian(has_terminal=has_terminal).send(signal.SIGTERM)
    assert sent == [(target, signal.SIGTERM)]


def test_too_many_open_files(
    monkeypatch: pytest.MonkeyPatch, sent: list[tuple[int, int]]
) -> None:
    """Where /proc can't be read, no process is overlooked: the group is signalled."""

    def refuse(*args: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(launcher, "_descendants", DESCENDANTS)
    monkeypatch.setattr(launcher, "open", refuse, raising=False)
    guardian().send(signal.SIGTERM)
    assert sent == [(-7, signal.SIGTERM)]


def test_nobody_is_left_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a terminal nothing but the command is waited for."""
    monkeypatch.setattr(launcher, "_descendants", partial(DESCENDANTS, "/nowhere"))
    watched = guardian(has_terminal=True)
    watched._status = 0
    assert not watched.send(0)


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
    capfd: pytest.CaptureFixture[str], program: str, status: int, problem: str
) -> None:
    """The status and the message are like a shell's."""
    assert launcher.become([program.encode()], {}) == status
    assert capfd.readouterr().err == f"{program}: {problem}\n"


def test_order_that_does_not_come(tmp_path: Path) -> None:
    """Without it there is nothing to run: the process that asked has died."""
    with (tmp_path / "empty").open("wb+") as empty:
        ended = subprocess.run(
            [sys.executable, launcher.__file__, str(empty.fileno()), "1"],
            pass_fds=[empty.fileno()],
            check=False,
        )
    assert ended.returncode == 128 + signal.SIGTERM


def test_nothing_starts_after_the_process_that_asked(tmp_path: Path) -> None:
    """It may be killed just when it has sent its order."""
    touch = [b"touch", os.fsencode(tmp_path / "ran")]
    sent = marshal.dumps((touch, {}, PATIENCE, False))
    ours, theirs = socket.socketpair()
    with theirs:
        with ours:
            ours.sendall(sent)
        ended = subprocess.run(
            [sys.executable, launcher.__file__, str(theirs.fileno()), str(len(sent))],
            pass_fds=[theirs.fileno()],
            check=False,
        )
    assert ended.returncode == 128 + signal.SIGTERM
    assert not Path(tmp_path, "ran").exists()
