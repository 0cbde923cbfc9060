"""
Run the suite on all stores at once: ``python -m tests [arguments of pytest]``.

They are those that ``SHEDLOCK_TEST_STORE`` names, separated by commas; else SQLite,
PostgreSQL, and MariaDB where ``SHEDLOCK_TEST_MARIADB_URL`` names one. What does not
depend on the store runs with the first of them only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import IO

from tests.support.stores import (
    REQUIRED,
    STORE_VARIABLE,
    chosen_stores,
    is_asked_for,
    missing_reason,
)

WORKERS = 1 + (os.cpu_count() or 1)
"""Processes of each store: more than cores, since many wait for something."""


@dataclass
class Run:
    """The suite on one store, in processes of its own."""

    store: str
    process: subprocess.Popen[str]
    output: IO[str] | None

    @classmethod
    def start(cls, store: str, arguments: list[str], *, is_first: bool) -> Run:
        """Start it; only the first one prints what it does while it does it."""
        workers = [f"--numprocesses={WORKERS}", "--dist=worksteal"]
        others = [] if is_first else ["--without-once"]
        command = [sys.executable, "-m", "pytest", *workers, *others, *arguments]
        output = None if is_first else tempfile.TemporaryFile("w+")  # noqa: SIM115
        environment = {**os.environ, STORE_VARIABLE: store}
        if is_first:
            print(f"\n=== {store} ===", flush=True)
        process = subprocess.Popen(command, env=environment, stdout=output, text=True)
        return cls(store, process, output)

    def result(self) -> str:
        """Wait for its end, and print what it has not printed yet."""
        status = self.process.wait()
        if self.output is not None:
            print(f"\n=== {self.store} ===", flush=True)
            self.output.seek(0)
            shutil.copyfileobj(self.output, sys.stdout)
        return "FAILED" if status else "passed"


def main(arguments: list[str]) -> int:
    """Return 0 if the suite passed on every store that is there."""
    results, runs = {}, []
    for store in chosen_stores():
        reason = missing_reason(store)
        if reason:
            fails = os.environ.get(REQUIRED) and is_asked_for(store)
            results[store] = f"{'FAILED' if fails else 'left out'}: {reason}"
        else:
            runs.append(Run.start(store, arguments, is_first=not runs))
    results |= {run.store: run.result() for run in runs}
    print()
    for store, result in results.items():
        print(f"{store:10}{result}")
    return int(any(result.startswith("FAILED") for result in results.values()))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
