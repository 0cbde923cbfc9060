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
import resource, sys, time
exec(sys.argv[1])
size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
begun = time.process_time()
exec(sys.argv[2])
took = time.process_time() - begun
loaded = {package: [] for package in ("django", "django_shedlock")}
for name in sys.modules:
    loaded.setdefault(name.partition(".")[0], []).append(name)
size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - size
print(took * 1000, size / 1024, len(loaded["django_shedlock"]), *loaded["django"])
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
    """Print the medians of time and memory, and how many of our modules are loaded."""
    needed = measure(bytecode, "", USE)[3]
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
        took, size = (
            statistics.median(turn[each][which] for turn in turns) for which in (0, 1)
        )
        modules = f"{turns[0][each][2]:4} modules of ours"
        print(f"{each:44}{took:7.1f} ms{size:6.1f} MB{modules}")


def measure(
    bytecode: str, before: str, code: str
) -> tuple[float, float, int, list[str]]:
    """Return milliseconds, MB, the number of our modules, and the names of Django's."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", MEASURED, before, code]
    printed = subprocess.check_output(command, env=environment, text=True)  # noqa: S603
    took, size, own, *names = printed.split()
    return float(took), float(size), int(own), names


if __name__ == "__main__":
    main()
