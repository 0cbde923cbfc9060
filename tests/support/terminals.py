"""An interactive shell in a terminal, as people use it."""

from __future__ import annotations

import os
import pty
import select
import shlex
import subprocess
import sys
import termios
from collections.abc import Callable, Sequence
from contextlib import suppress

import psutil

from tests.support.runs import is_alive
from tests.support.waiting import PATIENCE, wait_for

CTRL_C = "\x03"
CTRL_Z = "\x1a"
TERMINAL = """
import fcntl, os, sys, termios

os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Begins a session of its own in a terminal, as a log-in does."""


class Shell:
    """A shell that does what is typed, and leaves no process of its session behind."""

    def __init__(self, environment: dict[str, str]):
        self._shown = ""
        self._ours, theirs = pty.openpty()
        _show_no_typing(theirs)
        self._process = subprocess.Popen(
            [sys.executable, "-c", TERMINAL, "/bin/sh", "-i"],
            env={**environment, "PS1": ""},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)

    def type(self, keys: str) -> None:
        """Press the keys."""
        os.write(self._ours, keys.encode())

    def run(self, command: Sequence[str], *, after: str = "", before: str = "") -> None:
        """Type a command, with what stands before and after it in its line."""
        self.type(f"{before} {shlex.join(command)} {after}\n")

    def read_until(
        self, line: str, meanwhile: Callable[[], None] = lambda: None
    ) -> str:
        """Return what is shown, up to the end of a line with this text."""

        def is_shown() -> bool:
            if select.select([self._ours], [], [], 0)[0]:
                self._shown += os.read(self._ours, 1000).decode()
            else:
                meanwhile()
            return "\n" in self._shown.partition(line)[2]

        wait_for(is_shown)
        before, _, rest = self._shown.partition(line)
        rest, _, self._shown = rest.partition("\n")
        return before + line + rest

    def number_after(
        self, word: str, meanwhile: Callable[[], None] = lambda: None
    ) -> int:
        """Return the number that is shown after the word."""
        shown = self.read_until(word, meanwhile)
        return int(shown.rpartition(word)[2].split()[0])

    def close(self) -> None:
        """End all that runs in this session."""
        killed = []
        for pid in psutil.pids():
            with suppress(ProcessLookupError):
                if os.getsid(pid) == self._process.pid:
                    os.kill(pid, 9)
                    killed.append(pid)
        self._process.wait(PATIENCE)
        os.close(self._ours)
        # Until a process has ended, it may write to the database of the next test.
        wait_for(lambda: not any(map(is_alive, killed)))


def _show_no_typing(terminal: int) -> None:
    attributes = termios.tcgetattr(terminal)
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)


def in_terminal(
    command: Sequence[str], environment: dict[str, str], *, columns: int
) -> str:
    """Return what the command shows in a terminal of so many columns."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (50, columns))
    size_and_colours = ("COLUMNS", "LINES", "NO_COLOR", "DJANGO_COLORS")
    known = {name: environment[name] for name in {*environment} - {*size_and_colours}}
    process = subprocess.Popen(
        command,
        env=known,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # the end of a terminal
        while chunk := os.read(ours, 4096):
            shown += chunk
    os.close(ours)
    assert process.wait(PATIENCE) == 0, shown
    return shown.decode().replace("\r\n", "\n")
