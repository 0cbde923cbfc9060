"""The suite itself: which tests run where."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import TestCase

from django_shedlock.models import LockRecord
from tests import conftest
from tests.support import costs, tiers
from tests.support.paths import ROOT
from tests.support.stores import STORE_VARIABLE
from tests.support.tiers import (
    ALL,
    EACH_STORE,
    MARKS,
    ONCE,
    OTHER_STORES,
    PLACES_OF_EACH_STORE,
    PLACES_OF_LIBRARIES,
    SLOW,
    TESTS,
    files_of_each_store,
    is_left_to_all,
    left_out,
    mark,
    runs_once,
    slow_tests,
)


def item(
    *marks: str,
    fixtures: tuple[str, ...] = (),
    cls: Any = None,
    name: str = "test_sample.py::test_x",
) -> Any:
    """Return what stands for a collected test with these marks."""
    found = dict.fromkeys(marks, 1)
    return SimpleNamespace(
        cls=cls,
        fixturenames=fixtures,
        get_closest_marker=found.get,
        path=TESTS / name.partition("::")[0],
        nodeid=f"tests/{name}",
        add_marker=lambda name: found.update({name: 1}),
        marks=found,
    )


def config(options: dict[str, Any], *args: str) -> Any:
    """Return what stands for pytest's configuration."""
    return SimpleNamespace(
        getoption=lambda name, default=None: options.get(name, default),
        getini={"testpaths": ["tests"]}.get,
        args=[*args] or ["tests"],
    )


def test_pytest_does_not_collect_what_is_left_to_all() -> None:
    """Without ``--all`` the folders of other libraries are not even imported."""
    folder = TESTS / "browser"
    assert conftest.pytest_ignore_collect(folder, config({})) is True
    assert conftest.pytest_ignore_collect(folder, config({ALL: True})) is None
    assert conftest.pytest_ignore_collect(folder, config({}, "tests/browser")) is None
    assert conftest.pytest_ignore_collect(TESTS / "locks", config({})) is None


EACH, SLOW_FILE = "tests/sql/test_fields.py", "tests/beat/test_simulation.py"


@pytest.mark.parametrize(
    ("chosen", "found"), [(EACH_STORE, {EACH}), (SLOW, {SLOW_FILE})]
)
def test_pytest_chooses_by_marks_of_places(chosen: str, found: set[str]) -> None:
    """The option ``-m`` finds the marks that tests have by their place."""
    files = [EACH, SLOW_FILE, "tests/test_durations.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", chosen, *files],
        cwd=ROOT,
        env={**os.environ, STORE_VARIABLE: "sqlite"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert {*re.findall(r"^(\S+)::", done.stdout, re.MULTILINE)} == found


def test_pytest_knows_each_mark(pytestconfig: pytest.Config) -> None:
    """A misspelled mark fails, since pytest knows the right ones."""
    known = {line.partition(":")[0] for line in pytestconfig.getini("markers")}
    assert MARKS.keys() | tiers.ONLY <= known


def test_statement_without_leave_is_refused() -> None:
    """A test that does not run with each store reaches none of them by mistake."""
    with pytest.raises(RuntimeError, match="Database access not allowed"):
        LockRecord.objects.count()


@pytest.mark.parametrize("everything", [False, True])
def test_what_uses_the_database_runs_with_each_store(*, everything: bool) -> None:
    """A test uses it by a mark, by a fixture, or as one of Django's test cases."""
    for using in (
        item("django_db"),
        item(fixtures=("live_server",)),
        item(cls=TestCase),
    ):
        assert runs_once(using, everything=everything) is not everything
        using.add_marker(EACH_STORE)
        assert not runs_once(using, everything=everything)
    assert runs_once(item(), everything=everything)
    assert runs_once(item("django_db", ONCE), everything=everything)
    # No other store's run has it.
    assert not runs_once(item("sqlite_only"), everything=everything)


@pytest.mark.parametrize(
    ("name", "marks", "expected"),
    [
        ("locks/test_lock.py::test_x", {"django_db"}, {EACH_STORE}),
        ("locks/test_lock.py::test_x", set(), set()),
        ("locks/test_lock.py::test_x", {"django_db", ONCE}, set()),
        ("locks/test_lock.py::test_x", {"django_db", "sqlite_only"}, set()),
        ("locks/test_lock.py::test_slow", {"django_db"}, {EACH_STORE, SLOW}),
        ("locks/test_lock.py::test_slow[1]", {"django_db"}, {EACH_STORE, SLOW}),
        ("locks/test_slow.py::test_x", set(), {SLOW}),
        ("console/cli/test_check.py::test_x", {"django_db"}, set()),
        ("/elsewhere/tests/locks/test_lock.py::test_x", {"django_db"}, set()),
    ],
)
def test_mark_by_place(
    monkeypatch: pytest.MonkeyPatch, name: str, marks: set[str], expected: set[str]
) -> None:
    """A test has the mark of its place, unless it has another one, and ``slow``."""
    slow = {"locks/test_lock.py::test_slow", "locks/test_slow.py"}
    monkeypatch.setattr(tiers, "slow_tests", lambda: slow)
    made = item(*marks, name=name)
    mark(made)
    assert made.marks.keys() - marks == expected


def test_places_are_there() -> None:
    """A folder or a file that was renamed would lose its mark."""
    for place in (*PLACES_OF_EACH_STORE, *PLACES_OF_LIBRARIES):
        assert (TESTS / place).exists(), place


def test_slow_tests_are_there() -> None:
    """A test that was renamed would no longer be slow."""
    assert slow_tests()
    folders = (ROOT / "django_shedlock/testing/contract", TESTS / "support")
    inherited = "".join(
        path.read_text(encoding="utf-8")
        for folder in folders
        for path in folder.glob("*.py")
    )
    for place in slow_tests():
        file, _, name = place.partition("::")
        source = (TESTS / file).read_text(encoding="utf-8")
        method = name.rpartition("::")[2]
        assert not name or f"def {method}(" in source + inherited, place


FIRST = {"each_store", "once", "unmarked", "without a database"}


@pytest.mark.parametrize(
    ("options", "args", "expected"),
    [
        ({}, (), FIRST),
        ({OTHER_STORES: True}, (), {"each_store"}),
        ({ALL: True}, (), {*FIRST, "slow"}),
        ({ALL: True, OTHER_STORES: True}, (), {"each_store", "unmarked", "slow"}),
        ({"markexpr": "not slow"}, (), {*FIRST, "slow"}),  # then pytest leaves it out
        ({}, ("tests/test_sample.py",), {*FIRST, "slow"}),
        ({OTHER_STORES: True}, ("tests/test_sample.py",), {"each_store"}),
    ],
)
def test_left_out(
    options: dict[str, Any], args: tuple[str, ...], expected: set[str]
) -> None:
    """Left out are slow tests that nobody named, and what another store's run has."""
    items = {
        "each_store": item("django_db", EACH_STORE),
        "once": item("django_db", ONCE),
        "unmarked": item("django_db"),
        "without a database": item(),
        "slow": item("django_db", SLOW),
        "of another store": item("django_db", "postgres_only"),
    }
    out = left_out(items.values(), config(options, *args), "sqlite")
    assert {name for name, each in items.items() if each not in out} == expected


def test_other_stores_import_only_their_files() -> None:
    """Runs with other stores import only files whose tests run with each store."""
    files = {Path(file).relative_to(TESTS).as_posix() for file in files_of_each_store()}
    assert {"locks/test_lock.py", "test_upgrade.py"} <= files
    assert {"test_durations.py", "providers/redis/test_contract.py"} & files == set()
    assert not any(map(is_left_to_all, (TESTS / file for file in files)))


def test_dear_tests_become_slow(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A function counts with all its parameters, on the store where it is dearest."""
    lines = {
        "sqlite": [
            "0.3\t0.1\t1\ttests/a.py::test_once_each",
            "0.01\t0\t1\ttests/a.py::test_quick",
        ],
        "postgres": [
            "0.3\t0.1\t1\ttests/a.py::test_once_each",
            "0.3\t0\t1\ttests/a.py::test_busy[1]",
            "0.0\t0.3\t1\ttests/a.py::test_busy[2]",
            "0.0\t0.0\t3\ttests/a.py::test_waits",
            "0.9\t0\t1\ttests/b.py::TestB::test_alone",
        ],
    }
    reports = tmp_path / "reports"
    reports.mkdir()
    for name, each in lines.items():
        (reports / name).write_text("\n".join(each))
    monkeypatch.setattr(costs, "SLOW_TESTS", tmp_path / "slow.txt")
    costs.main(reports)
    assert (tmp_path / "slow.txt").read_text().split() == [
        *("a.py::test_busy", "a.py::test_waits"),
        "b.py",  # all of its tests are slow
    ]
