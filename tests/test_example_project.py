"""The example project: its demo shows one run a round, and fails if there are more."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from django.db import connections

from tests.stores import chosen_store

MANAGE = Path(__file__).resolve().parent.parent / "example_project" / "manage.py"
ROUND = re.compile(r"^  \S+ +worker-1 .+ worker-2 .+ worker-3 .+$", re.MULTILINE)


def manage(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if k != "DJANGO_SETTINGS_MODULE"}
    return subprocess.run(
        [sys.executable, str(MANAGE), *args],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def database(tmp_path: Path) -> dict[str, str]:
    """Return the environment for a database of the store under test."""
    if chosen_store() != "postgres":
        return {"SQLITE_FILE": str(tmp_path / "demo.sqlite3")}
    settings = connections["default"].settings_dict
    login = f"{settings['USER']}:{settings['PASSWORD']}@:{settings['PORT'] or 5432}"
    address = f"{settings['NAME']}?host={quote(settings['HOST'])}"
    return {"DATABASE_URL": f"postgres://{login}/{address}"}


@pytest.mark.django_db(transaction=True)
def test_demo_shows_one_run_a_round(tmp_path: Path) -> None:
    """In each round one worker runs and two skip, and the demo ends well."""
    demo = manage("demo", **database(tmp_path))
    assert demo.returncode == 0, demo.stdout + demo.stderr
    rounds = ROUND.findall(demo.stdout)
    assert len(rounds) == 6
    assert all(line.count("skipped") == 2 for line in rounds)
    assert "expired" in demo.stdout
    assert "admin / admin" in demo.stdout


def test_demo_notices_a_job_that_ran_twice(tmp_path: Path) -> None:
    """Without locks the demo fails, so its success means something."""
    sqlite = str(tmp_path / "demo.sqlite3")
    demo = manage("demo", SQLITE_FILE=sqlite, SHEDLOCK_OFF="1")
    assert demo.returncode == 1
    assert "ran 3 times" in demo.stderr


def test_checks_and_migrations_are_complete(tmp_path: Path) -> None:
    """The project has no mistake that a check finds, and no missing migration."""
    sqlite = str(tmp_path / "check.sqlite3")
    check = manage("check", "--fail-level", "WARNING", SQLITE_FILE=sqlite)
    assert check.returncode == 0, check.stderr
    migrations = manage("makemigrations", "--check", SQLITE_FILE=sqlite)
    assert migrations.returncode == 0, migrations.stdout


def test_cronjobs_name_jobs_with_locks(tmp_path: Path) -> None:
    """What CRONJOBS names runs under its lock, through django-crontab's own command."""
    sqlite = str(tmp_path / "cron.sqlite3")
    manage("migrate", "--verbosity=0", SQLITE_FILE=sqlite)
    listing = (
        "from django_crontab.crontab import Crontab\n"
        "from django.conf import settings\n"
        "from django_crontab.app_settings import Settings\n"
        "crontab = Crontab()\n"
        "print(*(crontab._Crontab__hash_job(j) for j in settings.CRONJOBS))\n"
    )
    hashes = manage("shell", "-c", listing, SQLITE_FILE=sqlite).stdout.split()
    for job in [word for word in hashes if re.fullmatch("[0-9a-f]{32}", word)]:
        run = manage("crontab", "run", job, SQLITE_FILE=sqlite)
        assert run.returncode == 0, run.stderr
    locks = manage("shedlock", "list", SQLITE_FILE=sqlite).stdout
    assert "rates.refresh" in locks
    assert "billing.send_digest" in locks
