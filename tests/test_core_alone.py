"""The core without the console and the beat, for projects that want the lock only."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

PARTS = ["tests/core_alone", "tests/execution/test_executor.py", "tests/history"]
"""What runs once more with ``django_shedlock`` only."""


@pytest.mark.each_store
def test_suite_passes_with_the_core_alone() -> None:
    """Locks, history, the plain admin and the command need no other app."""
    options = ["-q", "-p", "no:cacheprovider", "-m", "not slow"]
    options += ["--ds", "tests.core_settings"]
    environment = {
        **os.environ,
        "SHEDLOCK_TEST_SUFFIX": f"_core{os.getpid()}",
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *PARTS],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
