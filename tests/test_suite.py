"""``python -m tests``: the stores' runs, and what comes of them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import IO, Any

import pytest

from tests.__main__ import Run, fails, main
from tests.support.paths import ROOT
from tests.support.stores import REQUIRED, STORE_VARIABLE, URL_VARIABLES
from tests.support.waiting import wait_for

NOTHING_TO_RUN = pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.fixture
def output() -> Iterator[IO[str]]:
    with tempfile.TemporaryFile("w+") as file:
        yield file


def run(code: str, output: IO[str] | None) -> Run:
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=output,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    return Run("postgres", process, output)


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


@pytest.mark.parametrize(
    ("status", "result"), [(0, "passed"), (1, "FAILED"), (2, "FAILED")]
)
def test_result_is_that_of_pytest(
    output: IO[str], capsys: pytest.CaptureFixture[str], status: int, result: str
) -> None:
    """What was kept back is shown with it."""
    assert run(f"print('said'); raise SystemExit({status})", output).result() == result
    assert capsys.readouterr().out == "\n=== postgres ===\nsaid\n"


def test_other_store_may_have_nothing_to_run(output: IO[str]) -> None:
    """Where one chooses tests without a database, the first store's run has them."""
    code = f"raise SystemExit({int(NOTHING_TO_RUN)})"
    assert run(code, output).result().startswith("nothing to run")
    assert run(code, None).result() == "FAILED"


def test_no_run_is_left_behind(
    output: IO[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Who ends the tests ends them on each store, and sees how far they came."""
    code = "import time; print('so far', flush=True); time.sleep(600)"
    running = run(code, output)
    # The text and the end of its line may be written one after the other.
    wait_for(lambda: os.fstat(output.fileno()).st_size == len("so far\n"))
    running.end()
    assert running.process.poll() is not None
    assert capsys.readouterr().out == "\n=== postgres ===\nso far\n"
    running.end()
    assert capsys.readouterr().out == ""


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
    assert fails("mariadb", "no driver for mariadb") is fail


@pytest.mark.parametrize("value", ["mariadb", "mariadb,mariadb"])
def test_named_store_that_is_missing_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], value: str
) -> None:
    """Else a run without a single test would pass."""
    monkeypatch.setenv(STORE_VARIABLE, value)
    monkeypatch.delenv(REQUIRED, raising=False)
    monkeypatch.setenv(URL_VARIABLES["mariadb"], "")
    assert main([]) == 1
    shown = capsys.readouterr().out
    assert f"FAILED: {URL_VARIABLES['mariadb']} is not set" in shown
