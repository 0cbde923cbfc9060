"""
Run the whole suite once per store: ``python -m tests [arguments of pytest]``.

SQLite and PostgreSQL always, MariaDB where ``SHEDLOCK_TEST_MARIADB_URL`` names one.
"""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.stores import (
    REQUIRED,
    STORE_VARIABLE,
    STORES,
    is_asked_for,
    missing_reason,
)


def main(arguments: list[str]) -> int:
    """Return 0 if the suite passed on every store that is there."""
    results = {store: _run(store, arguments) for store in STORES}
    print()
    for store, result in results.items():
        print(f"{store:10}{result}")
    return int(any(result.startswith("FAILED") for result in results.values()))


def _run(store: str, arguments: list[str]) -> str:
    reason = missing_reason(store)
    if reason:
        fails = os.environ.get(REQUIRED) and is_asked_for(store)
        return f"{'FAILED' if fails else 'left out'}: {reason}"
    print(f"\n=== {store} ===", flush=True)
    command = [sys.executable, "-m", "pytest", *arguments]
    environment = {**os.environ, STORE_VARIABLE: store}
    status = subprocess.run(command, env=environment, check=False).returncode
    return "FAILED" if status else "passed"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
