"""
Run on one machine what takes hours: ``python -m tests --nightly [NAME ...]``.

These are the sections of ``SECTIONS``: mutants, soaks, and properties and models with
many more examples. Each is a command; without names all of them run. A section that
fails does not stop the next ones, and a skipped test fails its section, unless
``SHEDLOCK_REQUIRE_STORES`` says otherwise.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import date
from pathlib import PurePath

from tests.support.paths import ROOT
from tests.support.stores import REQUIRED

Command = tuple[str, ...]

TODAY = f"{date.today():%Y%m%d}"
"""Each night has its own seed, and a soak prints it."""
PYTEST = ("-m", "pytest", "-n2", "--timeout=3600", "--hypothesis-profile=nightly")


def soak(store: str, *options: str) -> Command:
    """Return the command that soaks the locks of a store."""
    how_long = ("--for", "10m", "--seed", TODAY)
    return "-m", "benchmarks.soak", "--store", store, *how_long, *options


def soak_of_beats(store: str) -> Command:
    """Return the command that soaks beats on a store."""
    how_long = ("--for", "10m", "--seed", TODAY)
    return "-m", "benchmarks.soak.beats", "--store", store, *how_long


SECTIONS: Mapping[str, Command] = {
    "models": (*PYTEST, "tests/protocol"),
    "properties": (*PYTEST, "--all", "-m", "hypothesis"),
    "contract": (*PYTEST, "-k", "test_protocol", "tests/providers"),
    "soak-postgres": soak("postgres", "--replica"),
    "soak-mariadb": soak("mariadb", "--replica"),
    "soak-redis": soak("redis"),
    "soak-etcd": soak("etcd"),
    "soak-zookeeper": soak("zookeeper"),
    "beats-postgres": soak_of_beats("postgres"),
    "beats-mariadb": soak_of_beats("mariadb"),
    "mutants": ("-m", "tests.mutants"),
}
"""What Python runs, by the section's name; the longest is the last."""


def main(arguments: list[str], sections: Mapping[str, Command] = SECTIONS) -> int:
    """Run the sections of these names; return 1 if one of them fails."""
    if unknown := sorted(set(arguments) - sections.keys()):
        print(f"No section {', '.join(unknown)}: choose from {', '.join(sections)}.")
        return 2
    environment = {REQUIRED: "all", **os.environ}
    results: dict[str, str] = {}
    for name in arguments or sections:
        command = (sys.executable, *sections[name])
        shown = " ".join((PurePath(sys.executable).name, *sections[name]))
        print(f"\n=== {name}: {shown} ===", flush=True)
        begin = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
        status = done.returncode
        result = f"FAILED with status {status}" if status else "passed"
        results[name] = f"{time.monotonic() - begin:7.0f} s  {result}"
    print()
    for name, result in results.items():
        print(f"{name:16}{result}")
    return int(any("FAILED" in result for result in results.values()))
