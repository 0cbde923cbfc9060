"""The package as a whole: what importing it does, and what it offers."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import django_shedlock


def python(*args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *args]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, **options
    )


LOADED = """
active cancellation clocks conf decorators durations exceptions executor jobs
jobs.registry keepalive locks locks.configuration locks.lock locks.pauses locks.states
providers providers.base providers.unlocked schedules schedules.cron schedules.state
signals threads
"""
"""The modules that every job needs; each one more costs every process some time."""

NEEDED = """
import sys
import django_shedlock
print(*(name for name in sys.modules if name.partition(".")[0] == "django"))
"""
BEYOND = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
before = set(sys.modules)
import django_shedlock
print(*(set(sys.modules) - before))
"""


def test_every_public_name_is_there() -> None:
    """__all__ is sorted, and each of its names can be imported."""
    assert django_shedlock.__all__ == sorted(django_shedlock.__all__)
    assert all(hasattr(django_shedlock, name) for name in django_shedlock.__all__)


def test_import_loads_little() -> None:
    """Beyond Django's modules importing needs those of each job, and Python's."""
    needed = python("-c", NEEDED).stdout.split()
    beyond = set(python("-c", BEYOND, *needed).stdout.split())
    own = {name for name in beyond if name.partition(".")[0] == "django_shedlock"}
    assert {name.partition(".")[0] for name in beyond - own} <= sys.stdlib_module_names
    jobs_need = {f"django_shedlock.{name}" for name in LOADED.split()}
    assert own == {"django_shedlock", *jobs_need}
    assert "django.db.models" not in needed


def test_import_does_nothing() -> None:
    """Importing loads no models, reads no setting, and starts no thread."""
    python(
        "-W",
        "error",
        "-c",
        "import django_shedlock, sys, threading\n"
        "from django.conf import settings\n"
        "assert not settings.configured\n"
        "assert 'django_shedlock.models' not in sys.modules\n"
        "assert threading.active_count() == 1\n"
        "from django_shedlock import scheduler_lock\n"
        "@scheduler_lock('job', lock_at_most_for='1m')\n"
        "def job(): pass\n"
        "assert not settings.configured\n",
    )
    assert "django_shedlock" in sys.modules
