"""The package as a whole: what importing it does, and what it offers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from django.db import connection

import django_shedlock
from django_shedlock.models import LockRun

ADDRESS = ("NAME", "USER", "PASSWORD", "HOST", "PORT", "OPTIONS")


def python(*args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *args]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, **options
    )


JOB = """
background clocks conf durations exceptions execution execution.active
execution.cancellation execution.executor execution.keep_alive execution.shutdown
execution.skips forking locks locks.configuration locks.inherited locks.lock
locks.patterns locks.pauses locks.status locks.time_limits
mutexes providers providers.base providers.unlocked registry registry.decorators
registry.jobs registry.names registry.unless schedules schedules.cron
schedules.expressions schedules.intervals schedules.state signals
"""
"""The modules that ``import django_shedlock`` loads: those that every job needs."""
APP = """
apps checks history history.recording history.retention history.texts in_tests models
models.records models.runs registry.commands registry.discovery registry.flags
registry.proposals scrubbing sql sql.compiling sql.connections sql.errors sql.fields
"""
"""What every process of a project loads beside these."""
ADMIN = "admin execution.operators"
"""What it also loads if the project has Django's admin."""
LOCK = """
providers.database providers.database.acquisition providers.database.checks
providers.database.provider providers.database.reading providers.database.statements
"""
"""What the first lock loads beside these."""
UNUSED = {"celery", "django_crontab", "fractions", "sqlite3", "statistics"}
"""What nobody should load who has no use for it."""

NEEDED = """
import sys
from django_shedlock import scheduler_lock
print(*(name for name in sys.modules if name.partition(".")[0] == "django"))
"""
BEYOND = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
before = set(sys.modules)
from django_shedlock import scheduler_lock
print(*(set(sys.modules) - before))
"""
SETUP = """
import json, sys
import django
from django.conf import settings
names = ("admin", "auth", "contenttypes", "sessions", "messages", "staticfiles")
apps = [f"django.contrib.{name}" for name in names]
settings.configure(
    INSTALLED_APPS=[*apps, "django_shedlock", *sys.argv[2:]],
    DATABASES={"default": json.loads(sys.argv[1])},
    USE_TZ=True,
)
django.setup()
"""
PLAIN_SETUP = SETUP.replace('"admin", ', "")
NO_DATABASE = {"ENGINE": "django.db.backends.dummy"}
HOLD = """
from django_shedlock import hold, scheduler_lock
with hold("first", lock_at_most_for="1m"):
    pass
"""
PRINT = """
print(*sys.modules)
"""


def ours(names: str) -> set[str]:
    return {f"django_shedlock.{name}" for name in names.split()} | {"django_shedlock"}


def loaded(
    script: str, database: dict[str, Any], *apps: str
) -> tuple[set[str], set[str]]:
    """Return which modules of ours a new process loads, and which others."""
    # Coverage would load modules of its own there.
    plain = {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE")}
    arguments = (script + PRINT, json.dumps(database), *apps)
    printed = python("-c", *arguments, env=plain).stdout
    found = set(printed.split())
    own = {name for name in found if name.partition(".")[0] == "django_shedlock"}
    return own, found - own


def test_every_public_name_is_there() -> None:
    """__all__ is sorted, and each of its names can be imported."""
    assert django_shedlock.__all__ == sorted(django_shedlock.__all__)
    assert all(hasattr(django_shedlock, name) for name in django_shedlock.__all__)


def test_decorator_loads_little() -> None:
    """Beyond Django's modules it needs those of each job, cronsim's and Python's."""
    needed = python("-c", NEEDED).stdout.split()
    beyond = set(python("-c", BEYOND, *needed).stdout.split())
    own = {name for name in beyond if name.partition(".")[0] == "django_shedlock"}
    others = {name.partition(".")[0] for name in beyond - own}
    assert others <= {"cronsim", *sys.stdlib_module_names}
    assert own == ours(JOB)
    assert "django.db.models" not in needed


def test_setup_loads_little() -> None:
    """Django's setup loads no console, no beat, no provider, and cronsim alone."""
    own, others = loaded(PLAIN_SETUP, NO_DATABASE)
    without = PLAIN_SETUP.replace('"django_shedlock", ', "")
    assert own == ours(JOB) | ours(APP)
    _, usual = loaded(without, NO_DATABASE)
    more = {name.partition(".")[0] for name in others - usual}
    assert more - sys.stdlib_module_names == {"cronsim"}
    assert UNUSED.isdisjoint(others)


def test_admin_loads_no_provider() -> None:
    """The plain admin adds its own module and what it does to a lock."""
    own, _ = loaded(SETUP, NO_DATABASE)
    assert own == ours(JOB) | ours(APP) | ours(ADMIN)


@pytest.mark.django_db(transaction=True)
def test_first_lock_loads_little() -> None:
    """The first lock loads the provider, and nothing else of ours."""
    settings = connection.settings_dict
    address = {key: settings[key] for key in ("ENGINE", *ADDRESS)}
    own, others = loaded(SETUP + HOLD, address)
    assert own == ours(JOB) | ours(APP) | ours(ADMIN) | ours(LOCK)
    used = {"sqlite3", "fractions", "statistics"}  # by Django, if that is the store
    assert UNUSED & others == (used if connection.vendor == "sqlite" else set())
    assert LockRun.objects.get().name == "first"


@pytest.mark.parametrize("is_first", [True, False])
def test_console_replaces_the_plain_admin(is_first: bool) -> None:
    """The site has the console's pages, in whatever order the apps stand."""
    apps = ["django_shedlock", "django_shedlock.console"][:: -1 if is_first else 1]
    code = SETUP.replace(
        '[*apps, "django_shedlock", *sys.argv[2:]]', "[*apps, *sys.argv[2:]]"
    )
    show = (
        "from django.contrib.admin import site\n"
        "print(*(type(each).__module__ for each in site._registry.values()))\n"
    )
    database = json.dumps({"ENGINE": "django.db.backends.dummy"})
    found = python("-c", code + show, database, *apps).stdout.split()
    own = {each for each in found if each.startswith("django_shedlock")}
    assert own == {
        f"django_shedlock.console.admin.{each}" for each in ("locks", "past")
    }


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
