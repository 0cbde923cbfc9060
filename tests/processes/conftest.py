"""Fixtures of the tests of ``manage.py shedlock run``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.leases import beat_often
from tests.support.runs import InterpreterRunner, Runner


@pytest.fixture
def runner() -> Iterator[Runner]:
    made = Runner()
    yield made
    made.close()


@pytest.fixture
def quick(runner: Runner) -> Runner:
    """Let the runner's heartbeat beat often: it shows soon what a long lease does."""
    runner.prepare.append(beat_often)
    return runner


@pytest.fixture
def interpreter(tmp_path: Path) -> Iterator[InterpreterRunner]:
    """Start new interpreters: these tests are about what a process inherits."""
    made = InterpreterRunner(tmp_path)
    yield made
    made.close()
