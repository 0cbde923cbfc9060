"""
What a lock costs, compared with what people write by hand and with other libraries.

``python -m benchmarks.locks --redis redis://127.0.0.1:6379/7 --json result.json``

It starts its own PostgreSQL, or uses that of ``--url``. All ways are measured in turn
in one run, so that their ratios mean something on any machine. What is not there, like
a server of Redis or a JDK, is left out. The last table shows which goals are met.
For the speed goals alone, add ``--only ways --only redis --only crowds --processes 16
--waiters 1``.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import crowds, goals, many, redis_locks, sizes, ways
from benchmarks.databases import postgres

DRIVER = "/usr/share/java/postgresql.jar"
"""Where Debian's libpostgresql-jdbc-java has it."""
MEASURES: dict[str, Callable[[dict[str, Any], argparse.Namespace], dict[str, Any]]] = {
    "ways": ways.measure,
    "redis": redis_locks.measure,
    "crowds": crowds.measure,
    "sizes": sizes.measure,
    "many": many.measure,
}


def main() -> None:
    """Measure the chosen sections, print tables, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="of a PostgreSQL server; by default one starts")
    parser.add_argument("--redis", help="of a Redis server; by default none is used")
    parser.add_argument("--jdbc", default=DRIVER, help="Java's driver of PostgreSQL")
    parser.add_argument("--json", type=Path, help="a file for the numbers")
    parser.add_argument("--only", choices=MEASURES, action="append")
    parser.add_argument("--rounds", type=int, default=1000, help="of each way")
    parser.add_argument("--in-a-row", type=int, default=1, help="of each round")
    parser.add_argument("--seconds", type=float, default=6, help="of each crowd's way")
    parser.add_argument("--processes", type=numbers, default="1,2,4,8,16,32")
    parser.add_argument("--waiters", type=numbers, default="1,10,50,200")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--names", type=int, default=100_000)
    parser.add_argument("--kept", type=int, default=2000, help="locks kept alive")
    parser.add_argument("--ending", type=int, default=200, help="async locks")
    parser.add_argument("--lease", type=float, default=30, help="of many locks, in s")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        database = postgres(options.url, Path(folder, "postgres"), options.redis)
        with database as settings:
            measure(settings, options)


def numbers(text: str) -> list[int]:
    """Return the numbers that commas separate."""
    return [int(number) for number in text.split(",")]


def measure(settings: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Return the numbers of each section; the sections print them."""
    sections = options.only or MEASURES
    results: dict[str, Any] = {"machine": machine()}
    print(" ".join(f"{key}: {value}." for key, value in results["machine"].items()))
    for section in sections:
        if section == "redis" and not options.redis:
            print("\nredis: left out, give --redis")
            continue
        results[section] = MEASURES[section](settings, options)
        write(results, options.json)
    results["goals"] = goals.report(results)
    write(results, options.json)
    return results


def write(results: dict[str, Any], path: Path | None) -> None:
    """Write the numbers that there are by now, in case a later section fails."""
    if path:
        path.write_text(json.dumps(results, indent=2) + "\n", "utf-8")


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
