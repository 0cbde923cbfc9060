"""
What a lock costs, compared with the raw statements and with other libraries.

``python -m benchmarks.locks --json result.json``

It starts its own PostgreSQL, or uses that of ``--url``. All ways are measured in turn
in one run, so that their ratios mean something on any machine. ``--redis`` names a
Redis server, where this package's locks are compared with redis-py's.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import crowds, redis_locks, sizes, ways
from benchmarks.databases import postgres

DRIVER = "/usr/share/java/postgresql.jar"
"""Where Debian's libpostgresql-jdbc-java has it."""
SECTIONS = ("ways", "redis", "crowds", "sizes")


def main() -> None:
    """Measure the chosen sections, print tables, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="of a PostgreSQL server; by default one starts")
    parser.add_argument("--redis", help="of a Redis server; by default none is used")
    parser.add_argument("--jdbc", default=DRIVER, help="Java's driver of PostgreSQL")
    parser.add_argument("--json", type=Path, help="a file for the numbers")
    parser.add_argument("--only", choices=SECTIONS, action="append")
    parser.add_argument("--rounds", type=int, default=1000, help="of each way")
    parser.add_argument("--in-a-row", type=int, default=1, help="of each round")
    parser.add_argument("--seconds", type=float, default=5, help="of each crowd")
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--waiters", type=int, default=200)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--names", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        database = postgres(options.url, Path(folder, "postgres"), options.redis)
        with database as settings:
            results = measure(options, settings)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n", "utf-8")


def measure(options: argparse.Namespace, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of each section; the sections print them."""
    sections = options.only or SECTIONS
    results: dict[str, Any] = {"machine": machine()}
    print(" ".join(f"{key}: {value}." for key, value in results["machine"].items()))
    if "ways" in sections:
        results["ways"] = ways.measure(settings, options)
    if "redis" in sections and options.redis:
        results["redis"] = redis_locks.measure(options)
    if "crowds" in sections:
        results["crowds"] = crowds.measure(
            settings, options.processes, options.seconds, options.waiters
        )
    if "sizes" in sections:
        results["sizes"] = sizes.measure(settings, options)
    return results


def machine() -> dict[str, Any]:
    """Return the versions and cores that the numbers depend on."""
    import os

    import django
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        [version] = cursor.fetchone()
    return {
        "cores": os.cpu_count(),
        "Python": platform.python_version(),
        "Django": django.get_version(),
        "PostgreSQL": version,
    }


if __name__ == "__main__":
    main()
