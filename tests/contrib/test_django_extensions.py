"""django-extensions, which takes a package ``jobs`` of any app for its own jobs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.once

SETTINGS = """
from tests.support.lean_settings import *

INSTALLED_APPS = [*INSTALLED_APPS, "django_extensions", "shop"]
"""
JOB = """
from django_extensions.management.jobs import HourlyJob


class Job(HourlyJob):
    help = "Counts the stock."

    def execute(self):
        print("counted")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with one hourly job of django-extensions, and all of our apps."""
    hourly = tmp_path / "shop" / "jobs" / "hourly"
    hourly.mkdir(parents=True)
    for folder in (hourly, hourly.parent, hourly.parent.parent):
        (folder / "__init__.py").touch()
    (hourly / "count.py").write_text(JOB)
    (tmp_path / "extended_settings.py").write_text(SETTINGS)
    return tmp_path


def run(project: Path, *arguments: str) -> str:
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "extended_settings",
        "PYTHONPATH": os.pathsep.join([str(project), str(ROOT)]),
        "PYTHONWARNINGS": "ignore",
    }
    command = [sys.executable, "-m", "django", *arguments]
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_its_jobs_run_beside_our_apps(project: Path) -> None:
    """django-extensions runs the project's job and finds no jobs in our apps."""
    assert "counted" in run(project, "runjobs", "hourly")
    listed = run(project, "runjobs", "--list")
    assert "count" in listed
    assert "shedlock" not in listed
