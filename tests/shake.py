"""
Run the suite again and again on a machine that is busy, or that stands still.

``python -m tests.shake --rounds 10 --burn 2`` keeps two cores busy beside it;
``--stop 3`` stops the suite's processes for three seconds, again and again, at random
moments: all of them, or one of pytest's workers with what it started.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil

PAUSES = (10, 60)
"""Seconds between two stops, at least and at most."""

STOP_WITH_CHILDREN = {"runuser", "su", "sudo"}
"""When a child has stopped, they stop themselves, and nobody lets them go on."""
INTERACTIVE = "-i"
"""A shell with this option goes on by itself when its command has stopped."""

BURNER = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
"""Keeps a core busy, until who started it ends."""


@contextmanager
def busy_cores(count: int) -> Iterator[None]:
    """Keep so many cores busy."""
    burners = [subprocess.Popen([sys.executable, "-c", BURNER]) for _ in range(count)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def family(process: psutil.Process) -> list[psutil.Process]:
    """Return the process and what came of it, as far as they may be stopped."""
    members = []
    for member in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            is_stopped = member.status() == psutil.STATUS_STOPPED  # by its test
            if not is_stopped and not _is_watched(member):
                members.append(member)
    return members


def _is_watched(process: psutil.Process) -> bool:
    parent = process.parent()
    return parent is not None and (
        parent.name() in STOP_WITH_CHILDREN or INTERACTIVE in parent.cmdline()
    )


def pick(suite: psutil.Process) -> list[psutil.Process]:
    """Return all of the suite's processes, or those of one worker of pytest."""
    workers = [
        process
        for pytest in suite.children()
        for process in pytest.children()
        if process.children()  # which a folder's guardian has not
    ]
    return family(random.choice([suite, random.choice(workers or [suite])]))


@contextmanager
def stopped(processes: list[psutil.Process]) -> Iterator[None]:
    """Stop the processes, parents first, for the time of the body."""
    try:
        for process in processes:
            with suppress(psutil.Error):  # it has ended, or is root's
                process.suspend()
        yield
    finally:
        # A parent may let a child stand still, so it comes last.
        for process in reversed(processes):
            with suppress(psutil.Error):
                process.resume()


def run_suite(stop_seconds: float, arguments: list[str]) -> tuple[int, int]:
    """Run it; return its status, and how many times processes were stopped."""
    suite = psutil.Popen([sys.executable, "-m", "tests", *arguments])
    stops = 0
    try:
        while True:
            pause = random.uniform(*PAUSES) if stop_seconds else None
            try:
                return suite.wait(pause), stops
            except psutil.TimeoutExpired:
                with suppress(psutil.NoSuchProcess), stopped(pick(suite)):
                    time.sleep(stop_seconds)
                    stops += 1
    finally:
        with suppress(psutil.NoSuchProcess):
            suite.terminate()
            suite.wait()


def main(options: argparse.Namespace, arguments: list[str]) -> int:
    """Return how many rounds failed."""
    failed = 0
    with busy_cores(options.burn):
        for number in range(1, options.rounds + 1):
            began = time.monotonic()
            status, stops = run_suite(options.stop, arguments)
            failed += bool(status)
            took = f"{time.monotonic() - began:.0f} s, {stops} stops"
            result = "FAILED" if status else "passed"
            print(f"--- round {number}: {result}, {took}", flush=True)
    print(f"{failed} of {options.rounds} rounds failed, load {os.getloadavg()[0]:.1f}")
    return failed


def parse(arguments: list[str]) -> Any:
    """Return the options, and what pytest is given."""
    parser = argparse.ArgumentParser(prog="tests.shake", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--burn", type=int, default=0, help="cores to keep busy")
    parser.add_argument("--stop", type=float, default=0, help="seconds of a stop")
    return parser.parse_known_args(arguments)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    raise SystemExit(main(*parse(sys.argv[1:])))
