"""What a process loads and opens before its first lock, counted and not timed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

import django_shedlock
from django_shedlock.models import LockRun

ADDRESS = ("NAME", "USER", "PASSWORD", "HOST", "PORT", "OPTIONS")
PACKAGE = Path(django_shedlock.__file__).parent

JOB = """
background clocks conf durations exceptions execution execution.active
execution.cancellation execution.executor execution.keep_alive execution.shutdown
execution.skips forking locks locks.configuration locks.inherited locks.lock
locks.patterns locks.pauses locks.status locks.time_limits
mutexes providers providers.base registry registry.decorators registry.jobs
registry.names registry.unless schedules schedules.cron schedules.expressions
schedules.intervals schedules.state signals
"""
"""The modules that ``import django_shedlock`` loads: those that every job needs."""
APP = "apps models models.records models.runs registry.commands sql sql.fields"
"""What every process of a project loads beside these."""
CONSOLE = "console console.apps console.models"
"""What the app of the console adds to these."""
BEAT = "beat beat.apps"
"""What the app of the beat adds to these."""
ADMIN = "admin execution.operators scrubbing"
"""What a process also loads if the project has Django's admin."""
PROVIDER = """
in_tests providers.database providers.database.acquisition providers.database.checks
providers.database.provider providers.database.reading providers.database.statements
sql.compiling sql.connections sql.errors
"""
"""What the first lock loads beside these, and the first check."""
HISTORY = "history history.recording history.retention history.texts"
"""What the first lock that is recorded loads beside these."""
CHECKS = "checks registry.discovery registry.flags registry.proposals"
"""What the first check loads beside the provider."""
UNUSED = {"celery", "cronsim", "django_crontab", "fractions", "sqlite3", "statistics"}
"""What nobody should load who has no use for it."""
ALONE = ["django_shedlock"]
WITH_CONSOLE = [*ALONE, "django_shedlock.console"]
WITH_ALL = [*WITH_CONSOLE, "django_shedlock.beat"]

NEEDED = """
import sys
from django_shedlock import scheduler_lock
print(*(name for name in sys.modules if name.partition(".")[0] == "django"))
"""
"""This script prints the modules of Django that the decorator's import loads."""
BEYOND = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
before = set(sys.modules)
from django_shedlock import scheduler_lock
print(*(set(sys.modules) - before))
"""
"""This script prints what the decorator's import loads beyond the given modules."""
SETUP = """
import json, sys
opened = []
sys.addaudithook(lambda event, given: event == "open" and opened.append(given[0]))
import django
from django.conf import settings
settings.configure(
    INSTALLED_APPS=sys.argv[2:],
    DATABASES={"default": json.loads(sys.argv[1])},
    USE_TZ=True,
)
django.setup()
"""
HOLD = """
from django_shedlock import hold, scheduler_lock
with hold("first", lock_at_most_for="1m"):
    pass
"""
CHECK = """
from django.core.checks import run_checks
run_checks()
"""
REPORT = """
print(json.dumps([[*sys.modules], [each for each in opened if isinstance(each, str)]]))
"""
NO_DATABASE = {"ENGINE": "django.db.backends.dummy"}
SQLITE = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
CONTRIB = ["auth", "contenttypes", "sessions", "messages", "staticfiles"]
DJANGOS_APPS = [f"django.contrib.{name}" for name in CONTRIB]

Loaded = tuple[set[str], set[str], set[Path]]


def python(*args: str, **options: Any) -> str:
    command = [sys.executable, *args]
    # Coverage would load modules of its own there.
    plain = {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE")}
    done = subprocess.run(command, capture_output=True, text=True, env=plain, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def ours(*names: str) -> set[str]:
    listed = " ".join(names).split()
    return {f"django_shedlock.{name}" for name in listed} | {"django_shedlock"}


def loaded(script: str, database: dict[str, Any], *apps: str) -> Loaded:
    """
    Return what a new process of a project with these apps loads.

    That is our modules, all others, and the files of our package that it opens.
    """
    printed = python("-c", SETUP + script + REPORT, json.dumps(database), *apps)
    modules, opened = json.loads(printed)
    own = {name for name in modules if name.partition(".")[0] == "django_shedlock"}
    paths = [Path(path) for path in opened]
    files = {source_of(path) for path in paths if path.is_relative_to(PACKAGE)}
    return own, set(modules) - own, files


def source_of(path: Path) -> Path:
    """Return one path for a module's source and its bytecode, also a new one."""
    folder = path.parent.parent if path.parent.name == "__pycache__" else path.parent
    return folder / path.name.partition(".")[0]


def test_decorator_loads_little() -> None:
    """Beyond Django's modules it needs those of each job, and Python's."""
    needed = python("-c", NEEDED).split()
    beyond = set(python("-c", BEYOND, *needed).split())
    own = {name for name in beyond if name.partition(".")[0] == "django_shedlock"}
    others = {name.partition(".")[0] for name in beyond - own}
    assert others <= set(sys.stdlib_module_names)
    assert own == ours(JOB)
    assert "django.db.models" not in needed


@pytest.mark.parametrize(
    ("apps", "added"),
    [(ALONE, ""), (WITH_CONSOLE, CONSOLE), (WITH_ALL, f"{CONSOLE} {BEAT}")],
    ids=["alone", "console", "all"],
)
def test_setup_loads_little(apps: list[str], added: str) -> None:
    """Django's setup loads no check, no receiver, no provider, and no other package."""
    own, others, files = loaded("", NO_DATABASE, *DJANGOS_APPS, *apps)
    assert own == ours(JOB, APP, added)
    assert len(files) <= 1.1 * len(own), files
    _, usual, _ = loaded("", NO_DATABASE, *DJANGOS_APPS)
    more = {name.partition(".")[0] for name in others - usual}
    assert more <= set(sys.stdlib_module_names)
    assert UNUSED.isdisjoint(others)


def test_admin_loads_no_provider() -> None:
    """The plain admin adds its own module and what it does to a lock."""
    apps = [*DJANGOS_APPS, "django.contrib.admin", *ALONE]
    own, _, files = loaded("", NO_DATABASE, *apps)
    assert own == ours(JOB, APP, ADMIN)
    assert len(files) <= 1.1 * len(own), files


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("apps", "added"), [(ALONE, ""), (WITH_CONSOLE, CONSOLE)], ids=["alone", "console"]
)
def test_first_lock_loads_little(apps: list[str], added: str) -> None:
    """The first lock loads the provider and the history, and nothing else of ours."""
    settings = connection.settings_dict
    address = {key: settings[key] for key in ("ENGINE", *ADDRESS)}
    own, others, files = loaded(HOLD, address, *DJANGOS_APPS, *apps)
    assert own == ours(JOB, APP, added, PROVIDER, HISTORY)
    assert len(files) <= 1.1 * len(own), files
    used = {"sqlite3", "fractions", "statistics"}  # by Django, if that is the store
    assert UNUSED & others == (used if connection.vendor == "sqlite" else set())
    assert LockRun.objects.get().name == "first"


@pytest.mark.parametrize(
    ("apps", "added"),
    [(ALONE, ""), (WITH_CONSOLE, CONSOLE), (WITH_ALL, f"{CONSOLE} {BEAT}")],
    ids=["alone", "console", "all"],
)
def test_check_before_a_command_loads_little(apps: list[str], added: str) -> None:
    """The check before a command loads little, and reads no app's source."""
    own, _, files = loaded(CHECK, SQLITE, *DJANGOS_APPS, *apps)
    assert own == ours(JOB, APP, added, PROVIDER, CHECKS)
    assert len(files) <= 1.1 * len(own), files


COMMAND = """
from django.core.management import BaseCommand

class Command(BaseCommand):
    def handle(self, **options):
        print("has run")
"""
JOBS = """
from django_shedlock import scheduler_lock

@scheduler_lock("nightly", schedule="* * * * *", lock_at_most_for="1h")
def nightly():
    pass
"""
MANAGE = """
import sys
sys.path.insert(0, sys.argv.pop())
opened = []
sys.addaudithook(lambda event, given: event == "open" and opened.append(given[0]))
from django.conf import settings
from django.core.management import ManagementUtility, call_command
settings.configure(
    INSTALLED_APPS=["django_shedlock", "django_shedlock.beat", "shop"],
    DATABASES={
        "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
    },
    USE_TZ=True,
    **SETTINGS,
)
def manage(*words):
    ManagementUtility(["manage.py", *words]).execute()
CALL
print(*(each for each in opened if isinstance(each, str)), sep="\\n", file=sys.stderr)
"""
"""This script runs CALL in a project with SETTINGS, and prints the opened files."""

Project = Callable[..., tuple[str, list[str]]]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project whose app has a command, a faulty job, and a module without one."""
    shop = tmp_path / "shop"
    commands = shop / "management" / "commands"
    commands.mkdir(parents=True)
    (shop / "__init__.py").touch()
    (shop / "jobs.py").write_text(JOBS)
    (shop / "views.py").touch()
    (commands / "plain.py").write_text(COMMAND)

    def call(code: str, **settings: object) -> tuple[str, list[str]]:
        """Return what the code prints, and which files of the app it opens."""
        script = MANAGE.replace("SETTINGS", repr(settings)).replace("CALL", code)
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        opened = [
            Path(line).name
            for line in done.stderr.splitlines()
            if line.startswith(str(shop)) and line.endswith(".py")
        ]
        return done.stdout + done.stderr, opened

    return call


def test_command_reads_no_source_of_the_apps(project: Project) -> None:
    """The check before a command knows no job that nobody has imported."""
    printed, opened = project("manage('plain')")
    assert "has run" in printed
    assert "shedlock." not in printed
    assert {*opened} <= {"__init__.py", "plain.py"}  # which the command itself needs


@pytest.mark.parametrize(
    "call",
    [
        "manage('check')",
        "manage('check', '--database', 'default', '--deploy')",
        "manage('check', 'shop')",
        "manage('plain', '--skip-checks'); call_command('check')",
    ],
)
def test_check_finds_a_job_that_nobody_has_imported(
    project: Project, call: str
) -> None:
    """Whoever asks for the check by name has the whole project checked."""
    printed, opened = project(call)
    assert "(shedlock.W008) shop.jobs.nightly" in printed
    assert {"jobs.py", "views.py"} <= {*opened}


def test_tests_of_a_project_check_all_of_it(project: Project) -> None:
    """`manage.py test` calls the command `check`, before the first test."""
    printed, _ = project("manage('test', 'shop')")
    assert "(shedlock.W008) shop.jobs.nightly" in printed


def test_job_that_is_imported_is_always_checked(project: Project) -> None:
    """A command that imports a job is told of its faults, whatever the command is."""
    printed, opened = project(
        "import django; django.setup(); import shop.jobs; manage('plain')"
    )
    assert "(shedlock.W008) shop.jobs.nightly" in printed
    assert "views.py" not in opened


def test_setting_is_always_checked(project: Project) -> None:
    """A command that a setting names wrongly runs without its lock, so all hear it."""
    printed, _ = project(
        "try:\n    manage('plain')\nexcept SystemExit as error:\n    print(error.code)",
        SHEDLOCK_COMMANDS={"plian": {}},
    )
    assert "(shedlock.E009)" in printed
    assert "Did you mean 'plain'?" in printed
    assert "has run" not in printed


def test_entry_of_the_schedule_is_always_checked(project: Project) -> None:
    """A beat leaves out a wrong entry, so all commands report it."""
    entry = {"call": "shop.jobs.weekly", "schedule": "@weekly"}
    printed, opened = project("manage('plain')", SHEDLOCK_SCHEDULE={"weekly": entry})
    assert "(shedlock.W025) SHEDLOCK_SCHEDULE['weekly']" in printed
    assert "views.py" not in opened
