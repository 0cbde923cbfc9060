"""The benchmarks, in a form that takes seconds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.stores import SQLITE_VARIABLE

pytestmark = pytest.mark.sqlite_only


def measured(benchmark: str, folder: Path, **options: int) -> tuple[str, list[str]]:
    arguments = [f"--{name}={value}" for name, value in options.items()]
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{benchmark}", *arguments],
        cwd=ROOT,
        env={**os.environ, SQLITE_VARIABLE: str(folder)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    title, *lines = done.stdout.splitlines()
    return title, lines


def test_console_is_measured(tmp_path: Path) -> None:
    """Each page is measured with few and with many runs, and its queries counted."""
    title, lines = measured("console", tmp_path, runs=150, rounds=1, locks=2)
    assert title.startswith("sqlite:")
    assert len(lines) > 8
    for line in lines:
        found = re.search(r"150 runs +\d+ ms +ratio +\d+\.\d +(\d+) queries$", line)
        assert found, line
        assert 0 < int(found[1]) < 15


def test_schedules_are_measured(tmp_path: Path) -> None:
    """Locks with schedules are measured beside one without."""
    title, [plain, *others] = measured("ticks", tmp_path, rounds=5)
    assert title.startswith("sqlite:")
    assert re.fullmatch(r"none +\d+\.\d+ ms +ratio 1\.00", plain)
    assert len(others) == 2
    assert all(re.search(r" ms +ratio \d+\.\d\d$", line) for line in others)


def test_imports_are_measured(tmp_path: Path) -> None:
    """The package is measured beside what it needs of Django."""
    title, [django, own] = measured("imports", tmp_path, rounds=1)
    assert title.endswith("median of 1")
    assert re.fullmatch(r"django +\d+\.\d ms +ratio 1\.00", django)
    assert re.fullmatch(r"django_shedlock +\d+\.\d ms +ratio \d\.\d\d", own)
