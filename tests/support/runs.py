"""``manage.py shedlock run`` in processes of its own."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil

from django_shedlock.locks.time_limits import TimeLimit
from tests.support.paths import ROOT
from tests.support.processes import addresses
from tests.support.run_conditions import measure_guard, nothing_left_once
from tests.support.waiting import NEVER_SECONDS, PATIENCE, STARTUP_PATIENCE, wait_for
from tests.support.warm import Command, killed_after

SETTINGS = """
from tests.support.lean_settings import *

for alias, address in {addresses!r}.items():
    DATABASES[alias].update(address)
SHEDLOCK_EXIT_TIMEOUT = {patience}
"""


@contextmanager
def limits_over_once(condition: Callable[[], bool]) -> Iterator[None]:
    """
    Let time limits be over as soon as the condition is true, and not before.

    It also holds in the processes that are forked meanwhile.
    """
    with patch.object(TimeLimit, "left", nothing_left_once(condition)):
        yield


class Runner:
    """Starts ``shedlock run`` in warm processes, and leaves none behind."""

    run_limit_seconds = PATIENCE

    def __init__(self) -> None:
        # Without the terminal of whoever runs the tests.
        self.prepare: list[Callable[[], Any]] = [os.setsid, measure_guard]
        self._stack = ExitStack()

    def start(self, *args: str) -> Any:
        """Start ``shedlock run`` with these arguments."""
        started = Command("shedlock", "run", *args, prepare=self.prepare)
        self._stack.callback(started.end)
        return started

    def run(self, *args: str, stdin: str = "") -> tuple[int, str, str]:
        """Return exit status, output and errors."""
        started = self.start(*args)
        out, err = started.communicate(stdin, timeout=self.run_limit_seconds)
        return started.returncode, out, err

    def close(self) -> None:
        self._stack.close()


class InterpreterRunner(Runner):
    """Starts it in new interpreters, as a cron daemon or a user does."""

    run_limit_seconds = STARTUP_PATIENCE

    def __init__(self, folder: Path):
        super().__init__()
        Path(folder, "run_settings.py").write_text(
            SETTINGS.format(addresses=addresses(), patience=NEVER_SECONDS)
        )
        self.command = [sys.executable, "-m", "django", "shedlock", "run"]
        self.environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "run_settings",
            "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        }

    def start(self, *args: str) -> subprocess.Popen[str]:
        """Start ``shedlock run`` with these arguments."""
        started = subprocess.Popen(
            [*self.command, *args],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=_listen_to_hangups,
            start_new_session=True,
        )
        self._stack.callback(_end, started)
        return started


def _listen_to_hangups() -> None:
    # Under nohup all would ignore them, and a shell can't trap what it ignores.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait(PATIENCE)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def sh(script: str) -> list[str]:
    """Return the command of a shell's script."""
    return ["--", "sh", "-c", script]


def with_child(script: str) -> list[str]:
    """Return the command of a script that runs another one, and waits for it."""
    return sh(f"sh -c {shlex.quote(script)} & wait")


def first_line(process: Any) -> str:
    """Return the next line of the output; one that never comes is empty."""
    with killed_after(PATIENCE, process):
        return str(process.stdout.readline()).strip()


def send(process: Any, number: signal.Signals) -> None:
    """Send a signal to a process that waits for its command."""
    # One that comes just before the wait is noticed late: Python's handler runs after
    # what it does in C.
    waiting = psutil.Process(process.pid)
    wait_for(lambda: waiting.status() == psutil.STATUS_SLEEPING)
    process.send_signal(number)


def guard_of(process: Any) -> psutil.Process:
    """Return the process that ends the command if ``shedlock run`` is killed."""
    children = psutil.Process(process.pid).children()
    [guard] = [each for each in children if "watch" in each.cmdline()]
    return guard


def is_alive(pid: int) -> bool:
    """Return whether the process runs; one that nobody waits for yet does not."""
    if sys.platform != "linux":
        command = ["ps", "-o", "stat=", "-p", str(pid)]
        found = subprocess.run(command, capture_output=True, text=True)
        return found.stdout.strip()[:1] not in {"", "Z"}
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
