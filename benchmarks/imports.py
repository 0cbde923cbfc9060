"""
What importing the package costs, compared with the Django modules that it needs.

``python -m benchmarks.imports --rounds 20``
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile

NEEDED = """
import sys
import django_shedlock
print(*(name for name in sys.modules if name.partition(".")[0] == "django"))
"""
IMPORTS = """
import importlib, sys, time
begun = time.process_time()
for name in sys.argv[1:]:
    importlib.import_module(name)
ours = time.process_time()
import django_shedlock
print(ours - begun, time.process_time() - ours)
"""


def main() -> None:
    """Measure both in new processes, in processor time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as bytecode:
        compare(rounds, bytecode)


def compare(rounds: int, bytecode: str) -> None:
    """Print the medians in milliseconds, and the ratio to Django's."""
    needed = python(bytecode, NEEDED).split()
    measure(bytecode, needed)  # the first measurement compiles
    times = [measure(bytecode, needed) for _ in range(rounds)]
    django, own = map(statistics.median, zip(*times, strict=True))
    print(f"Python {sys.version_info[0]}.{sys.version_info[1]}: median of {rounds}")
    print(f"{'django':16} {django:7.1f} ms   ratio 1.00")
    print(f"{'django_shedlock':16} {own:7.1f} ms   ratio {own / django:.2f}")


def measure(bytecode: str, needed: list[str]) -> tuple[float, float]:
    """Return the milliseconds of Django's modules, and of the package."""
    django, own = map(float, python(bytecode, IMPORTS, *needed).split())
    return django * 1000, own * 1000


def python(bytecode: str, code: str, *arguments: str) -> str:
    """Run the code in a new process; return what it prints."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.check_output(command, env=environment, text=True)  # noqa: S603


if __name__ == "__main__":
    main()
