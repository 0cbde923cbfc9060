"""``python -m tests``, the stores' runs, and the helpers that the tests share."""

from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.__main__ import is_failure_if_missing, main, run
from tests.support.paths import ROOT
from tests.support.stores import REQUIRED, STORE_VARIABLE, URL_VARIABLES
from tests.support.tiers import ALL_VARIABLE
from tests.support.waiting import PATIENCE, STARTUP_PATIENCE, wait_for

INTERPRETER = sys.executable


@pytest.mark.once
def test_suite_leaves_the_readers_project_alone() -> None:
    """The tests ignore the settings, and the server, that the shell names."""
    readers = {
        "DJANGO_SETTINGS_MODULE": "mysite.settings",
        "DATABASE_URL": "postgres://postgres@127.0.0.1:5432/mysite",
        "PGHOSTADDR": "192.0.2.1",
    }
    code = "import os, tests.settings; print(os.environ.get('PGHOSTADDR'))"
    test = "tests/test_suite.py::test_settings_are_those_of_the_tests"
    pytest_run = ["-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    commands = (["-c", code], pytest_run)
    without_server, run_of_one = (
        subprocess.run(
            [sys.executable, *command],
            cwd=ROOT,
            env={**os.environ, **readers},
            capture_output=True,
            text=True,
        )
        for command in commands
    )
    assert without_server.stdout == "None\n", without_server.stderr
    assert "1 passed" in run_of_one.stdout, run_of_one.stdout + run_of_one.stderr


@pytest.mark.once
def test_settings_are_those_of_the_tests(settings: Any) -> None:
    """Each run has the settings of the tests, also beside a project of the reader's."""
    assert settings.SETTINGS_MODULE == "tests.settings"


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Let a program stand in for pytest, and return its file."""
    program = tmp_path / "python"
    monkeypatch.delenv(ALL_VARIABLE, raising=False)
    monkeypatch.setattr(sys, "executable", str(program))
    return program


def write(program: Path, *lines: str) -> None:
    program.write_text("\n".join(["#!/bin/sh", *lines]))
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("status", "results"),
    [
        (pytest.ExitCode.OK, ("passed", "passed")),
        (pytest.ExitCode.TESTS_FAILED, ("FAILED", "FAILED")),
        (pytest.ExitCode.INTERRUPTED, ("FAILED", "FAILED")),
        # Where one chooses tests without a database, the first store's run has them.
        (
            pytest.ExitCode.NO_TESTS_COLLECTED,
            ("FAILED", "nothing to run: the first store's run has it"),
        ),
    ],
)
def test_result_of_a_store_is_that_of_pytest(
    stand_in: Path, status: int, results: tuple[str, str]
) -> None:
    """The first store's run has to find tests, the others may find none."""
    write(stand_in, f"exit {int(status)}")
    assert tuple(run("sqlite", [], is_first=first) for first in (True, False)) == (
        results
    )


def test_each_store_has_its_arguments(stand_in: Path, tmp_path: Path) -> None:
    """Each store after the first runs without the tests that run only once."""
    calls = tmp_path / "calls"
    write(stand_in, f'echo "$SHEDLOCK_TEST_STORE $*" >> {calls}')
    run("sqlite", ["-x"], is_first=True)
    run("postgres", ["-x"], is_first=False)
    run("postgres", ["--all"], is_first=False)
    run("postgres", ["tests/locks/test_lock.py::test_x"], is_first=False)
    first, quick, everything, named = calls.read_text().splitlines()
    assert first.startswith("sqlite -m pytest --numprocesses=")
    assert first.endswith("--dist=worksteal -x")
    assert "--without-once -m not slow -x " in quick
    assert "/tests/locks/test_lock.py" in quick
    assert everything.endswith("--dist=worksteal --without-once --all")
    assert named.endswith("--without-once tests/locks/test_lock.py::test_x")


def test_no_run_is_left_behind(stand_in: Path, tmp_path: Path) -> None:
    """Who ends the tests ends those of the store that is being tested."""
    pid = tmp_path / "pid"
    write(stand_in, f"echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 600")
    code = f"import sys, tests.__main__ as m; sys.executable = {str(stand_in)!r}"
    suite = subprocess.Popen(
        [
            INTERPRETER,
            "-c",
            f"{code}; m.end_on_terminate(); m.run('x', [], is_first=True)",
        ],
        cwd=ROOT,
    )
    wait_for(pid.exists, STARTUP_PATIENCE)
    suite.terminate()
    assert suite.wait(PATIENCE) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


NAMED = {URL_VARIABLES["mariadb"]: "mysql://nobody@127.0.0.1:1/x"}


@pytest.mark.parametrize(
    ("environment", "fail"),
    [
        ({}, False),
        ({REQUIRED: "1"}, False),
        ({REQUIRED: "1", **NAMED}, True),
        ({STORE_VARIABLE: "mariadb"}, True),
        ({REQUIRED: "all but etcd, MariaDB", **NAMED}, False),
    ],
)
def test_store_that_nobody_asks_for_may_be_missing(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], *, fail: bool
) -> None:
    """A newcomer has no MariaDB; CI has what it names."""
    for name in (REQUIRED, STORE_VARIABLE, URL_VARIABLES["mariadb"]):
        monkeypatch.setenv(name, environment.get(name, ""))
    assert is_failure_if_missing("mariadb", "no driver for mariadb") is fail


@pytest.mark.parametrize("value", ["mariadb", "mariadb,mariadb"])
def test_named_store_that_is_missing_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], value: str
) -> None:
    """
    A run fails if a named store is missing.

    Otherwise a run without a single test would pass.
    """
    monkeypatch.setenv(STORE_VARIABLE, value)
    monkeypatch.delenv(REQUIRED, raising=False)
    monkeypatch.setenv(URL_VARIABLES["mariadb"], "")
    assert main([]) == 1
    shown = capsys.readouterr().out
    assert f"FAILED: {URL_VARIABLES['mariadb']} is not set" in shown


SUPPORT = ROOT / "tests" / "support"
PROGRAM_CALLERS = ("CONTRIBUTING.rst", "tox.ini", ".ci/run", ".github/workflows/*.yml")
"""Files that name the modules that people and CI run."""
MOST_HELPERS = 12


def uses(path: Path) -> set[str]:
    """Return the modules of ``tests.support`` that this file imports, or runs."""
    source = path.read_text(encoding="utf-8")
    imported = re.findall(r"from tests\.support import (\([^)]*\)|.+)", source)
    return {
        *re.findall(r"\btests\.support\.(\w+)", source),
        *re.findall(r"\w+", " ".join(imported)),
    }


def test_helper_of_one_file_is_in_that_file() -> None:
    """At least two files use each module of tests/support."""
    patterns = ("tests/**/*.py", "benchmarks/**/*.py", *PROGRAM_CALLERS)
    used = {path: uses(path) for each in patterns for path in ROOT.glob(each)}
    users = {
        module.stem: [
            path.relative_to(ROOT).as_posix()
            for path, names in used.items()
            if module.stem in names and path != module
        ]
        for module in SUPPORT.glob("*.py")
        if module.stem != "__init__"
    }
    assert len(users) > 40
    assert {name: found for name, found in users.items() if len(found) < 2} == {}


def test_documented_helpers_exist() -> None:
    """CONTRIBUTING names at most a dozen, and each is a function with a docstring."""
    page = (ROOT / "CONTRIBUTING.rst").read_text(encoding="utf-8")
    _, _, section = page.partition("The helpers you need\n===")
    section, _, _ = section.partition("\n===")
    named = re.findall(r"\* - ``(\w+)\.(\w+)``", section)
    assert 0 < len(named) <= MOST_HELPERS
    for module, name in named:
        helper = getattr(importlib.import_module(f"tests.support.{module}"), name, None)
        assert callable(helper), f"{module}.{name}"
        assert helper.__doc__, f"{module}.{name}"
