"""
Run the suite on each store in turn: ``python -m tests [arguments of pytest]``.

The stores are those that ``SHEDLOCK_TEST_STORE`` names, separated by commas; else
SQLite, PostgreSQL, and MariaDB where ``SHEDLOCK_TEST_MARIADB_URL`` names one. The first
runs all but the slow tests and those beside other libraries, the others what databases
may do differently; ``--all`` adds the rest (``tests/support/tiers.py``).

``python -m tests --nightly`` runs what takes hours (``tests/nightly.py``).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import nightly
from tests.support.stores import (
    STORE_VARIABLE,
    chosen_stores,
    is_asked_for,
    is_failure,
    missing_reason,
)
from tests.support.tiers import (
    ALL,
    ALL_VARIABLE,
    OTHER_STORES,
    SLOW,
    TESTS,
    files_of_each_store,
)

NIGHTLY = "--nightly"
MOST_WORKERS = 8
"""Servers have room for so many processes, and for those that tests start."""


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def pytest_arguments(arguments: list[str], *, is_first: bool) -> list[str]:
    """Return the arguments of pytest for the first store, or for another one."""
    workers = min(usable_cores(), MOST_WORKERS)
    parallel = [f"--numprocesses={workers}", "--dist=worksteal"]
    if is_first:
        return [*parallel, *arguments]
    others = [*parallel, OTHER_STORES]
    is_all = ALL in arguments or bool(os.environ.get(ALL_VARIABLE))
    if is_all or any(map(names_tests, arguments)):
        return [*others, *arguments]
    # Only these files have what this run wants: the rest is not even imported.
    return [*others, "-m", f"not {SLOW}", *arguments, *files_of_each_store()]


def names_tests(argument: str) -> bool:
    """Return whether this argument of pytest names tests by their file or folder."""
    path = Path(argument.partition("::")[0]).resolve()
    return path.exists() and path.is_relative_to(TESTS)


def run(store: str, arguments: list[str], *, is_first: bool) -> str:
    """Run the suite on the store, and return the result as a word or sentence."""
    print(f"\n=== {store} ===", flush=True)
    chosen = pytest_arguments(arguments, is_first=is_first)
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *chosen],
        env={**os.environ, STORE_VARIABLE: store},
    )
    try:
        status = process.wait()
    except KeyboardInterrupt:  # pytest hears it, too, and tells how far it came
        process.wait()
        raise
    except SystemExit:
        process.terminate()
        process.wait()
        raise
    if status == pytest.ExitCode.NO_TESTS_COLLECTED and not is_first:
        return "nothing to run: the first store's run has it"
    return "FAILED" if status else "passed"


def is_failure_if_missing(store: str, reason: str) -> bool:
    """Return whether it is a failure that this store is missing, for this reason."""
    if os.environ.get(STORE_VARIABLE):  # by its name
        return True
    return is_asked_for(store) and is_failure(reason)


def main(arguments: list[str]) -> int:
    """Return 0 if the suite passed on every store that is there."""
    results: dict[str, str] = {}
    is_first = True
    for store in chosen_stores():
        if reason := missing_reason(store):
            is_failed = is_failure_if_missing(store, reason)
            results[store] = f"{'FAILED' if is_failed else 'left out'}: {reason}"
        else:
            results[store] = run(store, arguments, is_first=is_first)
            is_first = False
    print()
    for store, result in results.items():
        print(f"{store:10}{result}")
    return int(any(result.startswith("FAILED") for result in results.values()))


def end_on_terminate() -> None:
    """Let SIGTERM end this process by an exception, so that it ends its child."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


if __name__ == "__main__":
    end_on_terminate()
    if NIGHTLY in sys.argv[1:]:
        raise SystemExit(
            nightly.main([each for each in sys.argv[1:] if each != NIGHTLY])
        )
    try:
        raise SystemExit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        raise SystemExit(128 + signal.SIGINT) from None
