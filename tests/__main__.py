"""
Run the suite on all stores at once: ``python -m tests [arguments of pytest]``.

They are those that ``SHEDLOCK_TEST_STORE`` names, separated by commas; else SQLite,
PostgreSQL, and MariaDB where ``SHEDLOCK_TEST_MARIADB_URL`` names one. The first runs
all but the slow tests, the others what databases may do differently; ``--all`` adds
the rest (``tests/support/once.py``).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import IO

import pytest

from tests.support.stores import (
    STORE_VARIABLE,
    chosen_stores,
    is_asked_for,
    is_failure,
    missing_reason,
)


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


MOST_WORKERS = 8
"""Servers have room for so many processes, and for those that tests start."""
WORKERS = min(1 + usable_cores(), MOST_WORKERS)
"""Processes of each store: more than cores, since many wait for something."""
MANY_STORES = 3
"""With this many, each gets one process fewer: no test waits long for a core."""


@dataclass
class Run:
    """The suite on one store, in processes of its own."""

    store: str
    process: subprocess.Popen[str]
    output: IO[str] | None

    @classmethod
    def start(
        cls, store: str, arguments: list[str], *, workers: int, is_first: bool
    ) -> Run:
        """Start it; only the first one prints what it does while it does it."""
        parallel = [f"--numprocesses={workers}", "--dist=worksteal"]
        others = [] if is_first else ["--without-once"]
        command = [sys.executable, "-m", "pytest", *parallel, *others, *arguments]
        output = None if is_first else tempfile.TemporaryFile("w+")  # noqa: SIM115
        environment = {**os.environ, STORE_VARIABLE: store}
        if is_first:
            print(f"\n=== {store} ===", flush=True)
        process = subprocess.Popen(command, env=environment, stdout=output, text=True)
        return cls(store, process, output)

    def result(self) -> str:
        """Wait for its end, and print what it has not printed yet."""
        status = self.process.wait()
        self.show()
        if status == pytest.ExitCode.NO_TESTS_COLLECTED and self.output is not None:
            return "nothing to run: the first store's run has it"
        return "FAILED" if status else "passed"

    def show(self) -> None:
        """Print what only the file has, once."""
        if self.output is None or self.output.closed:
            return
        print(f"\n=== {self.store} ===", flush=True)
        with self.output:
            self.output.seek(0)
            shutil.copyfileobj(self.output, sys.stdout)

    def end(self) -> None:
        """Leave no process behind; show how far it came."""
        self.process.terminate()
        self.process.wait()
        self.show()


def fails(store: str, reason: str) -> bool:
    """Return whether it is a failure that this store is missing, for this reason."""
    if os.environ.get(STORE_VARIABLE):  # by its name
        return True
    return is_asked_for(store) and is_failure(reason)


def main(arguments: list[str]) -> int:
    """Return 0 if the suite passed on every store that is there."""
    results: dict[str, str] = {}
    stores: list[str] = []
    runs: list[Run] = []
    for store in chosen_stores():
        if reason := missing_reason(store):
            result = "FAILED" if fails(store, reason) else "left out"
            results[store] = f"{result}: {reason}"
        else:
            stores.append(store)
    workers = WORKERS if len(stores) < MANY_STORES else WORKERS - 1
    try:
        for store in stores:
            run = Run.start(store, arguments, workers=workers, is_first=not runs)
            runs.append(run)
        results |= {run.store: run.result() for run in runs}
    except KeyboardInterrupt:  # of Ctrl-C they hear, too; a second one ends them
        for run in runs:
            run.process.wait()
        return 128 + signal.SIGINT
    finally:
        for run in runs:
            run.end()
    print()
    for store, result in results.items():
        print(f"{store:10}{result}")
    return int(any(result.startswith("FAILED") for result in results.values()))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    raise SystemExit(main(sys.argv[1:]))
