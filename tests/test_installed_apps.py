"""Projects whose INSTALLED_APPS are not the reader's, or lack our app."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.once

PAGE = ROOT / "docs" / "howto" / "installed_apps.rst"
DATABASE = """
from pathlib import Path

SECRET_KEY = "only for tests"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": Path(__file__).with_name("db.sqlite3"),
    }
}
"""
COMMAND = """
from django.core.management.base import BaseCommand
from django_shedlock import current_lock


class Command(BaseCommand):
    def handle(self, **options):
        lock = current_lock()
        self.stdout.write(f"lock: {lock and lock.name}")
"""
LOOKING_COMMAND = f"""
{COMMAND}
    def add_arguments(self, parser):
        parser.add_argument("--list-tasks", action="store_true")
"""
NETBOX = {
    "netbox/plugins.py": """
from django.apps import AppConfig


class PluginConfig(AppConfig):
    version = ""
    django_apps = []
""",
    "netbox/settings.py": f"""
{DATABASE}
from importlib import import_module

from netbox import configuration

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "core",
]
for plugin in configuration.PLUGINS:
    config = import_module(plugin).config
    apps = [app for app in config.django_apps if app != plugin]
    own = f"{{config.__module__}}.{{config.__name__}}"
    # The last of several stays.
    INSTALLED_APPS = [each for each in INSTALLED_APPS if each not in [*apps, own]]
    INSTALLED_APPS += [*apps, own]

try:
    from .local_settings import *
except ImportError:
    pass
""",
    "core/__init__.py": "",
    "core/management/commands/syncdatasource.py": COMMAND,
}
"""How NetBox builds its settings: by the apps of plugins, then by local_settings."""

PRETIX = {
    "pretix/settings.py": f"""
{DATABASE}
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes"]
INSTALLED_APPS += ["pretix.base"]
PLUGINS = []
""",
    "pretix/base/__init__.py": "",
    "pretix/base/management/commands/runperiodic.py": LOOKING_COMMAND,
}
"""How pretix builds its settings: a list, to which a module of one's own adds."""

WITHOUT_THE_APP = {
    "bare_settings.py": f"{DATABASE}\nINSTALLED_APPS = ['bare']\n",
    "bare/management/commands/nightly.py": """
from django.core.management.base import BaseCommand
from django_shedlock import scheduler_lock


@scheduler_lock("nightly")
class Command(BaseCommand):
    def handle(self, **options): ...
""",
}


def files_of_page(*names: str) -> dict[str, str]:
    """Return these files as the page shows them."""
    [_, *blocks] = PAGE.read_text("utf-8").split(".. code-block:: python\n")
    files = {}
    for block in blocks:
        indented = re.match(r"(?:\n|    .*\n)+", block)
        assert indented
        title, _, code = dedent(indented[0]).strip().partition("\n")
        files[title.removeprefix("# ")] = code + "\n"
    return {name: files[name] for name in names}


def run(
    folder: Path, files: Mapping[str, str], settings: str, *command: str
) -> subprocess.CompletedProcess[str]:
    """Run a command of the project with these files, in a process of its own."""
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "django", *command],
        cwd=folder,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": settings,
            "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        },
        capture_output=True,
        text=True,
        check=False,
    )


NETBOX_PAGE = (
    "netbox_shedlock/__init__.py",
    "netbox/configuration.py",
    "netbox/local_settings.py",
)


@pytest.mark.parametrize(
    ("theirs", "ours", "settings", "command"),
    [
        (NETBOX, NETBOX_PAGE, "netbox.settings", "syncdatasource"),
        (PRETIX, ["shop_settings.py"], "shop_settings", "runperiodic"),
    ],
    ids=["NetBox", "pretix"],
)
def test_page_locks_a_command_of_theirs(
    tmp_path: Path,
    theirs: dict[str, str],
    ours: list[str],
    settings: str,
    command: str,
) -> None:
    """What the page says makes a sound project, whose command runs under its lock."""
    files = {**theirs, **files_of_page(*ours)}
    migrated = run(tmp_path, files, settings, "migrate", "--verbosity=0")
    assert migrated.returncode == 0, migrated.stderr
    checked = run(tmp_path, {}, settings, "check", "--database=default")
    assert checked.stdout == "System check identified no issues (0 silenced).\n"
    done = run(tmp_path, {}, settings, command)
    assert (done.stdout, done.stderr) == (f"lock: {command}\n", "")
    history = run(tmp_path, {}, settings, "shedlock", "history", command)
    assert "succeeded" in history.stdout


def test_missing_app_is_named(tmp_path: Path) -> None:
    """Without our app a lock asks for it, and does not blame SHEDLOCK_PROVIDERS."""
    done = run(tmp_path, WITHOUT_THE_APP, "bare_settings", "nightly")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert 'put "django_shedlock" into INSTALLED_APPS' in last
    assert "SHEDLOCK_PROVIDERS" not in last


def test_store_without_tables_needs_no_app(tmp_path: Path) -> None:
    """A wrong option of another store is that store's error, whatever is installed."""
    memory = "django_shedlock.providers.memory.MemoryLockProvider"
    entry = {"default": {"BACKEND": memory, "OPTIONS": {"colour": "red"}}}
    settings = f"from bare_settings import *\nSHEDLOCK_PROVIDERS = {entry}\n"
    files = {**WITHOUT_THE_APP, "memory_settings.py": settings}
    done = run(tmp_path, files, "memory_settings", "nightly")
    assert "SHEDLOCK_PROVIDERS['default']" in done.stderr.splitlines()[-1]
    assert "INSTALLED_APPS" not in done.stderr
