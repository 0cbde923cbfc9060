"""
Worker processes of the project in ``tests.support.queues``, on the tests' store.

Run as a program, it is the beginning of such a process: it ends itself, and what it
started, when the test's end of its standard input closes, however the test ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil

from tests.support.paths import ROOT
from tests.support.processes import addresses
from tests.support.queues.notes import Notes
from tests.support.waiting import PATIENCE


class Workers:
    """Starts the project's processes, and leaves none behind."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.notes = Notes(folder)
        self._stack = contextlib.ExitStack()
        Path(folder, "address.json").write_text(json.dumps(addresses()["default"]))

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *exception: Any) -> None:
        self._stack.close()

    def start(self, *command: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start ``python -m`` with this module and its arguments."""
        with Path(self.folder, "output").open("ab") as output:
            worker = subprocess.Popen(
                [sys.executable, "-m", "tests.support.queue_workers", *command],
                cwd=ROOT,
                env={
                    **os.environ,
                    "DJANGO_SETTINGS_MODULE": "tests.support.queues.settings",
                    "PYTHONPATH": str(ROOT),
                    "SHEDLOCK_TEST_FOLDER": str(self.folder),
                    **environment,
                },
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._stack.callback(_end, worker)
        return worker

    def finish(self, *workers: subprocess.Popen[bytes]) -> None:
        """Wait until these have ended, and fail if one did with an error."""
        for worker in workers:
            assert worker.wait(PATIENCE) == 0, str(self.notes)

    def call(self, *command: str) -> None:
        """Start a process and wait until it has ended."""
        self.finish(self.start(*command))

    def queued(self, query: str) -> list[Any]:
        """Return the rows that the query finds in the tables of the queues."""
        with contextlib.closing(
            sqlite3.connect(self.folder / "queues.sqlite3", timeout=PATIENCE)
        ) as file:
            return file.execute(query).fetchall()


def _end(worker: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
        _kill_family(worker.pid)
    worker.communicate()


def _end_with_the_test() -> None:
    # By its number: the file object's lock would be in the way of a normal end.
    os.read(0, 1)
    _kill_family(os.getpid())


def _kill_family(pid: int) -> None:
    for child in psutil.Process(pid).children(recursive=True):
        child.kill()  # RQ's forks have a group of their own
    os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_test, daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
