"""cron itself and django-crontab, on three hosts with one database."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from django.db import connections

from django_shedlock.models import LockRun
from tests.support.cron_hosts import Host, hosts, missing_reason
from tests.support.paths import ROOT
from tests.support.waiting import PATIENCE, wait_for

pytestmark = [pytest.mark.postgres_only, pytest.mark.django_db(transaction=True)]

HOSTS = ("cron-1", "cron-2", "late")
ENTRIES = ("work.locked", "work.everywhere")
TICKS = 2
MANAGE = """
import os
from django.core.management import execute_from_command_line

os.environ["DJANGO_SETTINGS_MODULE"] = "cron_settings"
execute_from_command_line()
"""
SETTINGS = """
import socket
from pathlib import Path
from shlex import quote

HERE = Path(__file__).parent
DATABASES = {{"default": {database!r}}}
USE_TZ = True
INSTALLED_APPS = [
    "django_shedlock", "django_shedlock.contrib.crontab", "django_crontab"
]
CRONJOBS = [("* * * * *", path) for path in {entries!r}]
SHEDLOCK_CRONTAB = {{"work.everywhere": {{"locked": False}}}}
CRONTAB_DJANGO_MANAGE_PATH = str(HERE / "manage.py")
CRONTAB_COMMAND_PREFIX = "PYTHONPATH=" + quote({root!r})
CRONTAB_COMMAND_SUFFIX = "; echo $? >>" + quote(str(HERE / "statuses"))
if socket.gethostname() == "late":
    CRONTAB_COMMAND_PREFIX = "sleep 5; " + CRONTAB_COMMAND_PREFIX
"""
WORK = """
import socket
import time
from pathlib import Path

def note(job):
    line = f"{job} {int(time.time() // 60)} {socket.gethostname()}"
    with Path(__file__).with_name("runs").open("a") as runs:
        runs.write(line + "\\n")

def locked():
    note("locked")

def everywhere():
    note("everywhere")
    print("on", socket.gethostname())
"""


MORTAL = """
import sys
from pathlib import Path
from tests.support.cron_hosts import Host

host = Host(Path(sys.argv[1]), "mortal")
host.start_cron()
print("ready", flush=True)
sys.stdin.read()
"""


class Project:
    """A project that all hosts have; it writes down what they do."""

    def __init__(self, folder: Path):
        self.folder = folder
        keys = ("ENGINE", "NAME", "HOST", "PORT", "USER", "PASSWORD")
        database = {key: connections["default"].settings_dict[key] for key in keys}
        settings = SETTINGS.format(database=database, entries=ENTRIES, root=str(ROOT))
        Path(folder, "cron_settings.py").write_text(settings)
        Path(folder, "manage.py").write_text(MANAGE)
        Path(folder, "work.py").write_text(WORK)

    def crontab(self, subcommand: str) -> list[str]:
        """Return the command line of ``manage.py crontab``."""
        python = ["env", f"PYTHONPATH={ROOT}", sys.executable]
        return [*python, str(self.folder / "manage.py"), "crontab", subcommand]

    @property
    def statuses(self) -> list[str]:
        """The exit statuses of all lines that have ended."""
        return self._lines("statuses")

    def runs(self, job: str) -> dict[str, list[str]]:
        """Return the hosts whose bodies ran, by the minute."""
        minutes: dict[str, list[str]] = {}
        for line in self._lines("runs"):
            name, minute, host = line.split()
            if name == job:
                minutes.setdefault(minute, []).append(host)
        return minutes

    def _lines(self, name: str) -> list[str]:
        file = self.folder / name
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture(scope="module", autouse=True)
def possible() -> None:
    reason = missing_reason()
    if reason:
        pytest.skip(reason)


@pytest.fixture
def team(tmp_path: Path) -> Iterator[list[Host]]:
    with hosts(tmp_path, *HOSTS) as running:
        yield running


def start_together(team: list[Host]) -> None:
    """Start the daemons such that they have the same first tick."""
    wait_for(lambda: time.time() % 60 < 50)
    for host in team:
        host.start_cron()


@pytest.mark.soak
def test_each_tick_runs_on_one_host(project: Project, team: list[Host]) -> None:
    """What ``crontab add`` wrote runs once a minute; without a lock, on each host."""
    for host in team:
        host.run(*project.crontab("add"))
    start_together(team)
    lines = TICKS * len(HOSTS) * len(ENTRIES)
    wait_for(lambda: len(project.statuses) >= lines, timeout=2 * PATIENCE)

    everywhere = project.runs("everywhere")
    assert [sorted(names) for names in everywhere.values()] == [sorted(HOSTS)] * TICKS
    locked = project.runs("locked")
    assert locked.keys() == everywhere.keys()
    assert [len(names) for names in locked.values()] == [1] * TICKS
    assert LockRun.objects.filter(name="cron:work.locked").count() == TICKS
    assert project.statuses == ["0"] * lines
    for host in team:
        wait_for(lambda host=host: len(host.mails) >= TICKS and all(host.mails))
        assert host.mails == [f"on {host.name}\n"] * TICKS


def test_crontab_is_left_empty(project: Project, team: list[Host]) -> None:
    """``crontab remove`` takes away the lines that ``crontab add`` has written."""
    host = team[0]
    added = host.run(*project.crontab("add"))
    lines = host.run("crontab", "-l").splitlines()
    assert added.count("adding cronjob") == len(lines) == len(ENTRIES)
    assert all(line.startswith("* * * * * PYTHONPATH=") for line in lines)
    host.run(*project.crontab("remove"))
    assert host.run("crontab", "-l") == ""


def test_hosts_have_crontabs_of_their_own(project: Project, team: list[Host]) -> None:
    """What one host schedules is in no other host's crontab."""
    team[0].run(*project.crontab("add"))
    with pytest.raises(AssertionError, match="no crontab for"):
        team[1].run("crontab", "-l")


def test_host_ends_with_the_tests(tmp_path: Path) -> None:
    """Even if the tests are killed, no daemon stays behind."""
    command = [sys.executable, "-c", MORTAL, str(tmp_path)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as tests:
        assert tests.stdout
        assert tests.stdout.readline() == "ready\n"
        wait_for(lambda: "cron" in [child.name() for child in descendants(tests)])
        processes = descendants(tests)
        tests.kill()
    assert psutil.wait_procs(processes, timeout=PATIENCE)[1] == []


def descendants(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)
