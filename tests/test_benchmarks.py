"""The benchmarks, in a form that takes seconds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import ROOT
from tests.stores import SQLITE_VARIABLE


@pytest.mark.sqlite_only
def test_console_is_measured(tmp_path: Path) -> None:
    """Each page is measured with few and with many runs, and its queries counted."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.console", "--runs", "300"],
        cwd=ROOT,
        env={**os.environ, SQLITE_VARIABLE: str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    title, *lines = done.stdout.splitlines()
    assert title.startswith("sqlite:")
    assert len(lines) > 8
    for line in lines:
        found = re.search(r"300 runs +\d+ ms +ratio +\d+\.\d +(\d+) queries$", line)
        assert found, line
        assert 0 < int(found[1]) < 15
