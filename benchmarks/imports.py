"""
What the package costs a process that starts: to import it, and in ``django.setup()``.

``python -m benchmarks.imports --rounds 20``
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile

import django

MEASURED = """
import sys, time
exec(sys.argv[1])
begun = time.process_time()
exec(sys.argv[2])
took = time.process_time() - begun
loaded = {package: [] for package in ("django", "django_shedlock")}
for name in sys.modules:
    loaded.setdefault(name.partition(".")[0], []).append(name)
print(took * 1000, len(loaded["django_shedlock"]), *loaded["django"])
"""
APPS = [
    f"django.contrib.{app}"
    for app in ("admin", "auth", "contenttypes", "sessions", "messages", "staticfiles")
]
SETTINGS = """
import django
from django.conf import settings
settings.configure(INSTALLED_APPS={apps})
"""
USE = "from django_shedlock import scheduler_lock"


def main() -> None:
    """Measure each way in new processes, by turns, in processor time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as bytecode:
        compare(rounds, bytecode)


def compare(rounds: int, bytecode: str) -> None:
    """Print the medians in milliseconds, and how many of our modules are loaded."""
    needed = measure(bytecode, "", USE)[2]
    ways = {
        "import django": ("", "import django"),
        "import django_shedlock": ("", "import django_shedlock"),
        USE: ("", USE),
        "  after the modules of Django": (f"import {', '.join(needed)}", USE),
        "django.setup() without the app": (
            SETTINGS.format(apps=APPS),
            "django.setup()",
        ),
        "django.setup() with the app": (
            SETTINGS.format(apps=[*APPS, "django_shedlock"]),
            "django.setup()",
        ),
    }
    for way in ways.values():  # the first measurement compiles
        measure(bytecode, *way)
    turns = [
        {each: measure(bytecode, *ways[each]) for each in ways} for _ in range(rounds)
    ]
    python = ".".join(map(str, sys.version_info[:2]))
    print(f"Python {python}, Django {django.__version__}: median of {rounds}")
    for each in ways:
        median = statistics.median(turn[each][0] for turn in turns)
        print(f"{each:44}{median:7.1f} ms {turns[0][each][1]:4} modules of ours")


def measure(bytecode: str, before: str, code: str) -> tuple[float, int, list[str]]:
    """Return milliseconds, the number of our modules, and the names of Django's."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", MEASURED, before, code]
    printed = subprocess.check_output(command, env=environment, text=True)  # noqa: S603
    took, own, *names = printed.split()
    return float(took), int(own), names


if __name__ == "__main__":
    main()
