"""Worker processes of the project in ``tests.contrib.queues``, on the tests' store."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from django_shedlock.models import LockRecord
from tests.contrib.queues.notes import Notes
from tests.contrib.queues.tied import kill_family
from tests.support.paths import ROOT
from tests.support.processes import addresses
from tests.support.waiting import STARTUP_PATIENCE, wait_for


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
                [sys.executable, "-m", "tests.contrib.queues.tied", *command],
                cwd=ROOT,
                env={
                    **os.environ,
                    "DJANGO_SETTINGS_MODULE": "tests.contrib.queues.settings",
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
            assert worker.wait(STARTUP_PATIENCE) == 0, str(self.notes)

    def wait_for_beat(self, name: str) -> None:
        """Wait until a heartbeat has extended the lock."""
        record = LockRecord.objects.filter(name=name)
        before = record.get().lock_until
        wait_for(lambda: record.get().lock_until > before, STARTUP_PATIENCE)

    def call(self, *command: str) -> None:
        """Start a process and wait until it has ended."""
        self.finish(self.start(*command))

    def queued(self, query: str) -> list[Any]:
        """Return the rows that the query finds in the tables of the queues."""
        with contextlib.closing(
            sqlite3.connect(self.folder / "queues.sqlite3", timeout=STARTUP_PATIENCE)
        ) as file:
            return file.execute(query).fetchall()


def _end(worker: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
        kill_family(worker.pid)
    worker.communicate()
