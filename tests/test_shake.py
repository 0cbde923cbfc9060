"""How the suite is shaken: which processes stop, and that they go on."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from tests import shake
from tests.support.waiting import wait_for

TREE = """
import subprocess, sys

child = subprocess.Popen(["sleep", "600"])
print(child.pid, flush=True)
child.wait()
"""


@pytest.fixture
def tree() -> Iterator[list[psutil.Process]]:
    """Start a process, and another one from it."""
    with subprocess.Popen(
        [sys.executable, "-c", TREE], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        yield [psutil.Process(parent.pid), child]
        child.kill()


def test_all_stop_and_go_on(tree: list[psutil.Process]) -> None:
    """The parent and what it started, for the time of the body and not longer."""
    with shake.stopped(shake.family(tree[0])):
        wait_for(lambda: {each.status() for each in tree} == {psutil.STATUS_STOPPED})
    wait_for(lambda: {each.status() for each in tree} == {psutil.STATUS_SLEEPING})


def test_what_a_test_stopped_stays_stopped(tree: list[psutil.Process]) -> None:
    """To let it go on is the test's business."""
    parent, child = tree
    child.suspend()
    wait_for(lambda: child.status() == psutil.STATUS_STOPPED)
    assert shake.family(parent) == [parent]


def test_child_of_runuser_is_left_alone(
    tree: list[psutil.Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A child of runuser is never picked to be stopped.

    Otherwise runuser would stop itself for good, to show that its child has stopped.
    """
    parent, child = tree
    monkeypatch.setattr(shake, "STOP_WITH_CHILDREN", {parent.name()})
    assert child not in shake.family(parent)


def test_child_of_an_interactive_shell_is_left_alone(
    tree: list[psutil.Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A child of an interactive shell is never picked to be stopped.

    The shell would report the stop amid the output that its test reads.
    """
    parent, child = tree
    monkeypatch.setattr(shake, "INTERACTIVE", TREE)
    assert child not in shake.family(parent)


def test_each_round_that_fails_counts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The status is how many failed, so one that passes at last hides nothing."""
    results = iter([(0, 7), (1, 0), (2, 1)])
    monkeypatch.setattr(shake, "run_suite", lambda *args: next(results))
    options, rest = shake.parse(["--rounds", "3", "-x"])
    assert shake.main(options, rest) == 2
    assert rest == ["-x"]
    shown = capsys.readouterr().out
    assert re.search(r"round 1: passed, \d+ s, 7 stops", shown)
    assert "2 of 3 rounds failed" in shown
