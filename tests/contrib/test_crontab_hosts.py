"""``crontab run`` as cron starts it: processes of several hosts on one database."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.test import override_settings
from django_crontab.crontab import Crontab

from django_shedlock.functions import DatabaseNow
from django_shedlock.models import LockRecord, LockRun
from tests.support.crontabs import CRONTAB_SETTINGS
from tests.support.documents import ROOT
from tests.support.processes import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

TIMEOUT = 90
SETTINGS = """
from tests.settings import *

DATABASES["default"].update({address!r})
INSTALLED_APPS = [
    "django_shedlock", "django_shedlock.contrib.crontab", "django_crontab"
]
CRONJOBS = [
    ("* * * * *", "work.append"),
    ("* * * * *", "work.fail"),
    ("0 0 29 2 *", "work.append", ["once"]),
    ("wrong", "no.such.job", "%"),
]
SHEDLOCK_CRONTAB = {{'work.append("once")': {{"lock_at_least_for": 0}}}}
globals().update({crontab!r})
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
        keys = ("NAME", "HOST", "PORT", "USER", "PASSWORD")
        database = connections["default"].settings_dict
        address = {key: database[key] for key in keys}
        settings = SETTINGS.format(address=address, crontab=CRONTAB_SETTINGS)
        Path(folder, "hosts_settings.py").write_text(settings)
        Path(folder, "work.py").write_text(WORK)
        self.stack = contextlib.ExitStack()

    def start(
        self, path: str, *args: Any, time: str = "* * * * *"
    ) -> subprocess.Popen[str]:
        """Start the entry of this path, as cron does."""
        with override_settings(**CRONTAB_SETTINGS):
            job_hash = Crontab()._Crontab__hash_job((time, path, *args))
        host = subprocess.Popen(
            [sys.executable, "-m", "django", "crontab", "run", job_hash],
            env={
                **os.environ,
                "DJANGO_SETTINGS_MODULE": "hosts_settings",
                "PYTHONPATH": os.pathsep.join([str(self.folder), str(ROOT)]),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.stack.callback(host.communicate)
        self.stack.callback(host.kill)
        return host

    @property
    def runs(self) -> int:
        """How often the job began."""
        file = self.folder / "runs"
        return len(file.read_text().split()) if file.exists() else 0


def ended(host: subprocess.Popen[str]) -> tuple[int, Any, Any]:
    """Wait for the host; return its exit status, output and errors."""
    out, err = host.communicate(timeout=TIMEOUT)
    return host.returncode, out, err


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path)
    with made.stack:
        yield made


def test_one_of_two_hosts_runs_the_job(project: Project) -> None:
    """Of two hosts at one tick one runs, and the other one is silent and content."""
    hosts = [project.start("work.append") for _ in range(2)]
    assert [ended(host) for host in hosts] == [(0, "", "")] * 2
    assert project.runs == 1
    [run] = LockRun.objects.all()
    assert run.name == "cron:work.append"


def test_host_that_starts_later_does_not_run_the_tick_again(project: Project) -> None:
    """Also where nothing keeps the lock of a short job, its tick runs once."""
    for _host in range(2):
        started = project.start("work.append", ["once"], time="0 0 29 2 *")
        assert ended(started) == (0, "", "")
    assert project.runs == 1
    assert not LockRecord.objects.held().exists()


def test_dead_host_is_replaced_after_its_lease(project: Project) -> None:
    """While a killed host's lease lasts nobody runs the job; then the next tick."""
    project.hold.touch()
    killed = project.start("work.append")
    wait_for(lambda: project.runs)
    killed.kill()
    assert ended(killed)[0] == -9
    project.hold.unlink()
    assert ended(project.start("work.append")) == (0, "", "")
    assert project.runs == 1
    LockRecord.objects.update(lock_until=DatabaseNow(), tick=None)  # the next tick
    assert ended(project.start("work.append")) == (0, "", "")
    assert project.runs == 2


def test_failed_job_exits_with_1(project: Project) -> None:
    """The exit status tells cron, and the traceback is in its mail."""
    status, out, err = ended(project.start("work.fail"))
    assert (status, out) == (1, "")
    assert "('* * * * *', 'work.fail') of CRONJOBS failed" in err
    assert "ZeroDivisionError: by nobody" in err
    assert "no.such.job" not in err
