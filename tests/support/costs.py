"""
What each test costs, and which ones are slow for that reason.

``pytest -p tests.support.costs --costs=FOLDER`` adds a line for each test to the file
of its store in that folder: its own processor seconds, those of the processes that it
waited for, and the seconds that passed.

``python -m tests.support.costs FOLDER`` prints the dearest test files, and writes
``tests/slow.txt`` anew: the functions whose tests together take more than
``MOST_SECONDS`` of processor time, or ``MOST_PASSED_SECONDS``, on one of the stores.
"""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stores import chosen_store
from tests.support.tiers import SLOW_TESTS, TESTS, function_name

OPTION = "--costs"
MOST_SECONDS = 0.5
MOST_PASSED_SECONDS = 1
DEAREST = 20


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the command line name the folder."""
    parser.addoption(OPTION, help="add what each test costs to files in this folder")


def spent() -> tuple[float, float, float]:
    """Return the processor seconds of this process and its children, and the time."""
    times = os.times()
    others = times.children_user + times.children_system
    return times.user + times.system, others, time.monotonic()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Report a test with its fixtures."""
    before = spent()
    result = yield
    costs = (now - then for now, then in zip(spent(), before, strict=True))
    if folder := item.config.getoption(OPTION):
        line = "\t".join([*(f"{cost:.3f}" for cost in costs), item.nodeid])
        with Path(folder, chosen_store()).open("a") as file:  # workers share the file
            file.write(f"{line}\n")
    return result


def read(report: Path) -> dict[str, tuple[float, float]]:
    """Return processor seconds and passed seconds of each function, by file::name."""
    found: dict[str, list[float]] = defaultdict(lambda: [0, 0])
    for line in report.read_text(encoding="utf-8").splitlines():
        own, others, passed, nodeid = line.split("\t", 3)
        file = nodeid.partition("::")[0].removeprefix(f"{TESTS.name}/")
        costs = found[f"{file}::{function_name(nodeid)}"]
        costs[0] += float(own) + float(others)
        costs[1] += float(passed)
    return {test: (costs[0], costs[1]) for test, costs in found.items()}


def main(folder: Path) -> None:
    """Print the dearest files, and write the list of slow tests."""
    files: dict[str, float] = defaultdict(float)
    slow: set[str] = set()
    quick_files: set[str] = set()
    for report in sorted(folder.iterdir()):
        for test, (seconds, passed) in read(report).items():
            file = test.partition("::")[0]
            files[file] += seconds
            if seconds > MOST_SECONDS or passed > MOST_PASSED_SECONDS:
                slow.add(test)
            else:
                quick_files.add(file)
    for file in sorted(files, key=lambda name: files[name], reverse=True)[:DEAREST]:
        print(f"{files[file]:8.1f} s  {file}")
    names = {
        test if (file := test.partition("::")[0]) in quick_files else file
        for test in slow
    }
    SLOW_TESTS.write_text("".join(f"{name}\n" for name in sorted(names)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
