"""A project whose commands start its commands in processes of their own."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.crontab_hosts import entry
from tests.support.paths import MANAGE, ROOT
from tests.support.processes import addresses
from tests.support.waiting import STARTUP_PATIENCE

SETTINGS = """
import json, os
from tests.support.lean_settings import *

INSTALLED_APPS = [
    *INSTALLED_APPS, "django_shedlock.contrib.crontab", "django_crontab", "nested"
]
globals().update(json.loads(os.environ["SHEDLOCK_TEST_SETTINGS"]))
for alias, address in {addresses!r}.items():
    DATABASES[alias].update(address)
"""
COMMAND = '''
import subprocess, sys
from django.core.management.base import BaseCommand

class Command(BaseCommand):
    """Runs a script of the shell, in which "$MANAGE" calls this project's commands."""

    requires_system_checks = []

    def add_arguments(self, parser):
        parser.add_argument("script")
        parser.add_argument("--shard")

    def handle(self, script, **options):
        sys.exit(subprocess.run(["sh", "-c", script]).returncode)
'''
DECORATED = f"""
from django_shedlock import scheduler_lock
{COMMAND}
scheduler_lock("decorated", lock_at_most_for="10m")(Command)
"""


class NestedProject:
    """The commands ``outer`` and ``inner`` run a script; so does ``decorated``."""

    def __init__(self, folder: Path):
        self.folder = folder
        commands = folder / "nested" / "management" / "commands"
        commands.mkdir(parents=True)
        (folder / "nested" / "__init__.py").touch()
        (commands / "outer.py").write_text(COMMAND)
        (commands / "inner.py").write_text(COMMAND)
        (commands / "decorated.py").write_text(DECORATED)
        Path(folder, "nested_settings.py").write_text(
            SETTINGS.format(addresses=addresses())
        )
        self.settings: dict[str, Any] = {"SHEDLOCK_COMMANDS": {}}

    def lock(self, command: str, **options: Any) -> None:
        """Lock the command by the setting."""
        options = {"lock_at_most_for": "10m", **options}
        self.settings["SHEDLOCK_COMMANDS"][command] = options

    def add_cronjob(self, *args: str) -> str:
        """Let cron call the command with these arguments; return the entry's name."""
        path = "django.core.management.call_command"
        self.settings["CRONJOBS"] = [("* * * * *", path, args)]
        self.settings["CRONTAB_DJANGO_MANAGE_PATH"] = str(MANAGE)
        return entry(path, list(args))

    def dumped(self, settings: dict[str, Any]) -> str:
        """Return what ``SHEDLOCK_TEST_SETTINGS`` of a process with these has to be."""
        return json.dumps(settings)

    def environment(self) -> dict[str, str]:
        """Return the environment of a process of this project."""
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "nested_settings",
            "PYTHONPATH": os.pathsep.join([str(self.folder), str(ROOT)]),
            "SHEDLOCK_TEST_SETTINGS": json.dumps(self.settings),
            "MANAGE": shlex.join([sys.executable, "-m", "django"]),
        }

    def manage(self, *args: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Call ``manage.py`` with these arguments, as a shell or cron does."""
        return subprocess.run(
            [sys.executable, "-m", "django", *args],
            env={**self.environment(), **variables},
            capture_output=True,
            text=True,
            timeout=STARTUP_PATIENCE,
        )
