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
from tests.support.waiting import STARTUP_PATIENCE, wait_for

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
SETTINGS = r"""
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
delay = "sleep 5; " if socket.gethostname() == "late" else ""
path = "PYTHONPATH=" + quote({root!r})
# In a crontab a percent sign is quoted.
tick = r"export TICK=$(($(date +\%s) / 60)); "
CRONTAB_COMMAND_PREFIX = tick + delay + path
CRONTAB_COMMAND_SUFFIX = "; echo $TICK $? >>" + quote(str(HERE / "statuses"))
"""
WORK = """
import os
import socket
import time
from pathlib import Path

def note(job, tick):
    line = f"{job} {tick} {socket.gethostname()}"
    with Path(__file__).with_name("runs").open("a") as runs:
        runs.write(line + "\\n")

def locked():
    # What starts in the last quarter of a minute is for the tick to come.
    note("locked", int((time.time() + 15) // 60))

def everywhere():
    note("everywhere", os.environ["TICK"])
    print("on", socket.gethostname(), "at", os.environ["TICK"])
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

    def statuses(self, tick: str) -> list[str]:
        """Return the exit statuses of the tick's lines that have ended."""
        return [status for of, status in self._lines("statuses") if of == tick]

    def runs(self, job: str, tick: str) -> list[str]:
        """Return the hosts on which the job's body ran for this tick."""
        return [
            host for name, of, host in self._lines("runs") if (name, of) == (job, tick)
        ]

    def _lines(self, name: str) -> list[list[str]]:
        file = self.folder / name
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        return [line.split() for line in lines if line.endswith("\n")]


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


def start_together(team: list[Host]) -> list[str]:
    """Start the daemons; return the first ticks that all of them have."""
    wait_for(lambda: time.time() % 60 < 50, STARTUP_PATIENCE)
    for host in team:
        host.start_cron()
    first = int(time.time() // 60) + 1
    return [str(tick) for tick in range(first, first + TICKS)]


def test_each_tick_runs_on_one_host(project: Project, team: list[Host]) -> None:
    """What ``crontab add`` wrote runs once a minute; without a lock, on each host."""
    for host in team:
        host.run(*project.crontab("add"))
    ticks = start_together(team)
    lines = len(HOSTS) * len(ENTRIES)
    for tick in ticks:
        wait_for(
            lambda tick=tick: len(project.statuses(tick)) >= lines,
            timeout=2 * STARTUP_PATIENCE,
        )
        assert project.statuses(tick) == ["0"] * lines
        assert sorted(project.runs("everywhere", tick)) == sorted(HOSTS)
        assert len(project.runs("locked", tick)) == 1
    assert LockRun.objects.filter(name="cron:work.locked").count() >= TICKS
    for host in team:
        expected = [f"on {host.name} at {tick}\n" for tick in ticks]
        wait_for(
            lambda host=host, mails=expected: {*mails} <= {*host.mails},
            STARTUP_PATIENCE,
        )
        assert sorted(mail for mail in host.mails if mail in expected) == expected
        begin = f"on {host.name} at "
        assert all(mail.startswith(begin) for mail in host.mails if mail)


def test_crontab_is_left_empty(project: Project, team: list[Host]) -> None:
    """``crontab remove`` takes away the lines that ``crontab add`` has written."""
    host = team[0]
    added = host.run(*project.crontab("add"))
    lines = host.run("crontab", "-l").splitlines()
    assert added.count("adding cronjob") == len(lines) == len(ENTRIES)
    assert all(line.startswith("* * * * * export TICK=") for line in lines)
    host.run(*project.crontab("remove"))
    assert host.run("crontab", "-l") == ""


def test_hosts_have_crontabs_of_their_own(project: Project, team: list[Host]) -> None:
    """What one host schedules is in no other host's crontab."""
    team[0].run(*project.crontab("add"))
    with pytest.raises(AssertionError, match="no crontab for"):
        team[1].run("crontab", "-l")


def test_host_ends_with_the_tests(tmp_path: Path) -> None:
    """The cron daemon ends even if the tests are killed."""
    command = [sys.executable, "-c", MORTAL, str(tmp_path)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as tests:
        assert tests.stdout
        assert tests.stdout.readline() == "ready\n"
        wait_for(
            lambda: "cron" in [child.name() for child in descendants(tests)],
            STARTUP_PATIENCE,
        )
        processes = descendants(tests)
        tests.kill()
    assert psutil.wait_procs(processes, timeout=STARTUP_PATIENCE)[1] == []


def descendants(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)
