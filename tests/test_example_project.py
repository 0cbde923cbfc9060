"""The example project: its demo shows one run a round, and fails if there are more."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import pytest
from django.db import connections
from pytest_django import DjangoDbBlocker

from tests.stores import chosen_store

MANAGE = Path(__file__).resolve().parent.parent / "example_project" / "manage.py"
ROUND = re.compile(r"^  \d +(\S+) +(\w+) +(\w+) +(\w+) +(\w+) +(\d+)$", re.MULTILINE)
JOBS = [
    ("report:acme", "function"),
    ("billing.send_digest", "command"),
    ("rates.refresh", "CRONJOBS"),
]


def environment(**variables: str) -> dict[str, str]:
    ours = {"DJANGO_SETTINGS_MODULE", "DATABASE_URL", "SHEDLOCK_OFF"}
    inherited = {k: v for k, v in os.environ.items() if k not in ours}
    return {**inherited, **variables}


def manage(*args: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(MANAGE), *args],
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@contextmanager
def new_database(folder: Path, blocker: DjangoDbBlocker) -> Iterator[dict[str, str]]:
    """Give the environment for a new database of the store under test."""
    if chosen_store() != "postgres":
        yield {"SQLITE_FILE": str(folder / "example.sqlite3")}
        return
    name = f"shedlock_example_{uuid4().hex}"
    with blocker.unblock():
        on_server(f"CREATE DATABASE {name}")
    try:
        yield {"DATABASE_URL": postgres_url(name)}
    finally:
        with blocker.unblock():
            # Not by FORCE: who is no superuser may not end the server's own workers.
            on_server(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                f"WHERE datname = '{name}' AND usename = current_user"
            )
            on_server(f"DROP DATABASE {name}")


def on_server(statement: str) -> None:
    with connections["default"]._nodb_cursor() as cursor:
        cursor.execute(statement)


def postgres_url(name: str) -> str:
    settings = connections["default"].settings_dict
    user, password, host = (
        quote(settings[part], safe="") for part in ("USER", "PASSWORD", "HOST")
    )
    port = settings["PORT"] or 5432
    return f"postgres://{user}:{password}@:{port}/{name}?host={host}"


@pytest.fixture
def database(
    tmp_path: Path, django_db_blocker: DjangoDbBlocker
) -> Iterator[dict[str, str]]:
    with new_database(tmp_path, django_db_blocker) as variables:
        yield variables


@pytest.fixture(scope="module")
def demo(
    tmp_path_factory: pytest.TempPathFactory, django_db_blocker: DjangoDbBlocker
) -> Iterator[subprocess.CompletedProcess[str]]:
    """Run the demo once, on a new database, for all tests that read what it shows."""
    folder = tmp_path_factory.mktemp("demo")
    with new_database(folder, django_db_blocker) as variables:
        yield manage("demo", **variables)


def test_demo_ends_well(demo: subprocess.CompletedProcess[str]) -> None:
    """The demo exits with 0, skips are silent, and a pipe gets no colours."""
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert demo.stderr == ""
    assert "admin / admin" in demo.stdout
    assert "\x1b" not in demo.stdout


def test_demo_shows_one_run_a_round(demo: subprocess.CompletedProcess[str]) -> None:
    """In each round one worker runs and two skip, and the ledger has one run."""
    rounds = ROUND.findall(demo.stdout)
    assert [(job, kind) for job, kind, *_ in rounds] == JOBS * 2
    for _, _, *outcomes, runs in rounds:
        assert sorted(outcomes) == ["ran", "skipped", "skipped"]
        assert runs == "1"


def test_demo_shows_how_a_dead_workers_lock_comes_free(
    demo: subprocess.CompletedProcess[str],
) -> None:
    """The lock is kept for the rest of the lease, and then another worker gets in."""
    story = demo.stdout.partition("is killed")[2]
    words = r"\b(running|skipped|expired|ran|free)\b"
    found = re.findall(words, story.partition("Every job")[0])
    assert found == ["running", "running", "skipped", "expired", "ran", "free"]


def test_demo_fails_without_locks(database: dict[str, str]) -> None:
    """Without locks the ledger has three runs, and the demo says so."""
    demo = manage("demo", SHEDLOCK_OFF="1", **database)
    assert demo.returncode == 1
    assert "ran 3 times" in demo.stderr


def listen_to_ctrl_c() -> None:
    # A shell lets its background jobs ignore it, and their children inherit that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_demo_leaves_no_worker_behind(
    database: dict[str, str], ending: signal.Signals
) -> None:
    """However the demo ends, also in the middle of a long job, its workers end too."""
    demo = subprocess.Popen(
        [sys.executable, str(MANAGE), "demo"],
        env=environment(**database),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=listen_to_ctrl_c,
    )
    try:
        assert demo.stdout
        assert any("worker-1 began" in line for line in demo.stdout)
        demo.send_signal(ending)
        # The workers have this end of the pipe too: it is closed when all have ended.
        _, errors = demo.communicate(timeout=10)
    finally:
        demo.kill()
    assert "Traceback" not in errors
    assert demo.returncode == (130 if ending is signal.SIGINT else -ending)


def test_demo_runs_after_one_that_was_killed(database: dict[str, str]) -> None:
    """What a killed demo left, held locks among it, does not disturb the next one."""
    manage("migrate", "--verbosity=0", **database)
    die = (
        "import os\n"
        "from django_shedlock import hold\n"
        "with hold('report:acme'), hold('rates.refresh'), hold('backup'):\n"
        "    os._exit(9)\n"
    )
    assert manage("shell", "-c", die, **database).returncode == 9
    demo = manage("demo", **database)
    assert demo.returncode == 0, demo.stdout + demo.stderr


def test_checks_and_migrations_are_complete(database: dict[str, str]) -> None:
    """The project has no mistake that a check finds, and no missing migration."""
    check = manage("check", "--fail-level", "WARNING", **database)
    assert check.returncode == 0, check.stderr
    migrations = manage("makemigrations", "--check", **database)
    assert migrations.returncode == 0, migrations.stdout


def test_cronjobs_name_jobs_with_locks(database: dict[str, str]) -> None:
    """What CRONJOBS names runs under its lock, through django-crontab's own command."""
    manage("migrate", "--verbosity=0", **database)
    listing = (
        "from django.conf import settings\n"
        "from example.triggers import cron_hash\n"
        "print(*map(cron_hash, settings.CRONJOBS))\n"
    )
    hashes = manage("shell", "-v0", "-c", listing, **database).stdout.split()
    assert len(hashes) == len(JOBS)
    for job in hashes:
        run = manage("crontab", "run", job, **database)
        assert run.returncode == 0, run.stderr
        assert run.stderr == ""
    locks = manage("shedlock", "list", **database).stdout
    assert all(job in locks for job, _ in JOBS)
