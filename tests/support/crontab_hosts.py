"""Hosts that start ``crontab run`` as cron does, on the database of the test."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from django.core.management import get_commands
from django.test import override_settings
from django_crontab.crontab import Crontab

from tests.support.paths import MANAGE, ROOT
from tests.support.processes import addresses
from tests.support.waiting import STARTUP_PATIENCE
from tests.support.warm import Command

PATH = {"CRONTAB_DJANGO_MANAGE_PATH": str(MANAGE)}
RARELY = "0 0 29 2 *"
"""The time of an entry of which no tick comes during a test."""
SETTINGS = {
    "INSTALLED_APPS": [
        "django_shedlock",
        "django_shedlock.beat",
        "django_shedlock.contrib.crontab",
        "django_crontab",
    ],
    "ROOT_URLCONF": "tests.support.lean_settings",
    "CRONJOBS": [
        ("* * * * *", "work.append"),
        ("* * * * *", "work.fail"),
        (RARELY, "work.append", ["once"]),
        ("wrong", "no.such.job", "%"),
    ],
    "SHEDLOCK_CRONTAB": {'work.append("once")': {"lock_at_least_for": 0}},
    **PATH,
}
FILE = """
from tests.support.lean_settings import *

for alias, address in {addresses!r}.items():
    DATABASES[alias].update(address)
globals().update({settings!r})
"""
WORK = """
import time
from pathlib import Path

HERE = Path(__file__).parent

def append(word="run"):
    with Path(HERE, "runs").open("a") as runs:
        runs.write(word + " ")
    while Path(HERE, "hold").exists():
        time.sleep(0.01)

def fail():
    raise ZeroDivisionError("by nobody")
"""


class Project:
    """A project whose ``crontab run`` many hosts start; it leaves no process behind."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.hold = folder / "hold"
        Path(folder, "work.py").write_text(WORK)
        self.stack = contextlib.ExitStack()

    def start(self, path: str, *args: Any, time: str = "* * * * *") -> Command:
        """Start the entry of this path on a host."""
        prepare = partial(become_host, str(self.folder))
        host = Command(
            "crontab", "run", entry(path, *args, time=time), prepare=[prepare]
        )
        self.stack.callback(host.end)
        return host

    def run(self, path: str) -> subprocess.CompletedProcess[str]:
        """Run the entry of this path in a new interpreter, as cron does."""
        settings = FILE.format(addresses=addresses(), settings=SETTINGS)
        Path(self.folder, "hosts_settings.py").write_text(settings)
        return subprocess.run(
            [sys.executable, "-m", "django", "crontab", "run", entry(path)],
            env={
                **os.environ,
                "DJANGO_SETTINGS_MODULE": "hosts_settings",
                "PYTHONPATH": os.pathsep.join([str(self.folder), str(ROOT)]),
            },
            capture_output=True,
            text=True,
            timeout=STARTUP_PATIENCE,
        )

    @property
    def runs(self) -> int:
        """How often the job began."""
        file = self.folder / "runs"
        return len(file.read_text().split()) if file.exists() else 0


def entry(path: str, *args: Any, time: str = "* * * * *") -> str:
    """Return the name by which cron calls an entry of ``CRONJOBS``."""
    with override_settings(**PATH):
        return str(Crontab()._Crontab__hash_job((time, path, *args)))


def become_host(folder: str) -> None:
    """Give this process the project's settings and its jobs."""
    sys.path.insert(0, folder)
    override_settings(**SETTINGS).enable()
    get_commands.cache_clear()


def ended(host: Command) -> tuple[int | None, str, str]:
    """Wait for the host; return its exit status, output and errors."""
    out, err = host.communicate()
    return host.returncode, out, err
