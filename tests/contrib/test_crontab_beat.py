"""``shedlock beat`` beside cron: both start the same entries of ``CRONJOBS``."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.db.models import F

from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord, LockRun
from tests.support.paths import ROOT
from tests.support.waiting import STARTUP_PATIENCE, wait_for

pytestmark = [pytest.mark.once, pytest.mark.django_db(transaction=True)]

BEATS = 3
DAY = timedelta(days=1)
CRON_ENVIRONMENT = {
    "HOME": "/",
    "LOGNAME": "nobody",
    "PATH": "/usr/bin:/bin",
    "SHELL": "/bin/sh",
}
"""What cron itself gives to a job."""
POD_VARIABLE = "SECRET_OF_THE_POD"
CRONTAB = """#!/bin/sh
[ "$1" = -l ] || cp "$1" "$(dirname "$0")/written"
"""
"""Writes a crontab as the program of that name does, to a file of the test's."""
MANAGE = """
import os
from django.core.management import execute_from_command_line

os.environ["DJANGO_SETTINGS_MODULE"] = "cronjobs_settings"
execute_from_command_line()
"""
SETTINGS = """
from pathlib import Path
from shlex import quote

from tests.support.lean_settings import *

HERE = Path(__file__).parent
DATABASES = {databases!r}
INSTALLED_APPS = [
    "shop",
    "django_shedlock",
    "django_shedlock.beat",
    "django_shedlock.contrib.crontab",
    "django_crontab",
]
SHEDLOCK_GRACE = "5s"
CRONTAB_EXECUTABLE = str(HERE / "crontab")
CRONTAB_DJANGO_MANAGE_PATH = str(HERE / "manage.py")
CRONTAB_COMMAND_PREFIX = "cd /tmp; env PREFIX=yes PYTHONPATH=" + quote({root!r})
CRONTAB_COMMAND_SUFFIX = "; echo $? >> " + quote(str(HERE / "suffix"))
OWN_LOG = ">> " + quote(str(HERE / "own.log")) + " 2>&1"
TIME = {time!r}
CRONJOBS = {cronjobs}
SHEDLOCK_CRONTAB = {{
    "shop.jobs.everywhere": {{"locked": False}},
    "shop.jobs.unscheduled": {{"schedule": None}},
}}
"""
STARTED = """[
    (TIME, "shop.jobs.plain"),
    (TIME, "shop.jobs.redirected", OWN_LOG),
    (TIME, "shop.jobs.with_arguments", ["gold"], {"limit": 5}),
    (TIME, "shop.jobs.with_all", ("gold",), {"limit": 6}, OWN_LOG),
    (TIME, "shop.jobs.coroutine"),
    (TIME, "shop.jobs.decorated"),
    (TIME, "shop.jobs.decorated_for", ["eu"]),
    (TIME, "django.core.management.call_command", ["report", "--to", "gold"]),
    (TIME, "shop.jobs.failing"),
]"""
"""Entries of each shape."""
LEFT_OUT = """[
    (TIME, "shop.jobs.plain"),
    ("@reboot", "shop.jobs.at_boot"),
    (TIME, "shop.jobs.everywhere"),
    (TIME, "shop.jobs.unscheduled"),
    (TIME, "shop.no_such_module.job"),
    ("61 * * * *", "shop.jobs.at_no_time"),
]"""
"""Entries of which a beat starts only the first one."""
CALLS: dict[str, tuple[str, list[str], dict[str, object]]] = {
    "plain": ("cron:shop.jobs.plain", [], {}),
    "redirected": ("cron:shop.jobs.redirected", [], {}),
    "with_arguments": (
        'cron:shop.jobs.with_arguments("gold", limit=5)',
        ["gold"],
        {"limit": 5},
    ),
    "with_all": (
        'cron:shop.jobs.with_all("gold", limit=6)',
        ["gold"],
        {"limit": 6},
    ),
    "coroutine": ("cron:shop.jobs.coroutine", [], {}),
    "decorated": ("own", [], {}),
    "decorated_for": ("own:eu", ["eu"], {}),
    "report": ('cron:report("--to", "gold")', [], {"to": "gold"}),
    "failing": ("cron:shop.jobs.failing", [], {}),
}
"""The jobs of the entries: their locks, and what they are called with."""
JOBS = """
import functools
import json
import os
import sys
from pathlib import Path

from django_shedlock import locks_held, scheduler_lock

HERE = Path(__file__).parents[1]

def note(job, *args, **kwargs):
    [lock] = locks_held()
    seen = {
        "job": job,
        "args": args,
        "kwargs": kwargs,
        "lock": lock.name,
        "tick": str(lock.tick),
        "prefix": os.environ.get("PREFIX"),
        "of_pod": os.environ.get("SECRET_OF_THE_POD"),
        "folder": os.getcwd(),
        "stdin": sys.stdin.read(),
    }
    print("printed by", job, flush=True)
    print("reported by", job, file=sys.stderr, flush=True)
    with Path(HERE, "runs").open("a") as runs:
        runs.write(json.dumps(seen) + "\\n")

for name in (
    *("plain", "redirected", "with_arguments", "with_all"),
    *("at_boot", "everywhere", "unscheduled", "at_no_time"),
):
    globals()[name] = functools.partial(note, name)

async def coroutine():
    note("coroutine")

@scheduler_lock("own", lock_at_most_for="5m")
def decorated():
    note("decorated")

@scheduler_lock("own:{region}", lock_at_most_for="5m")
def decorated_for(region):
    note("decorated_for", region)

def failing():
    note("failing")
    raise ZeroDivisionError("by nobody")
"""
REPORT = """
from django.core.management.base import BaseCommand

from shop.jobs import note

class Command(BaseCommand):
    def add_arguments(self, parser):
        parser.add_argument("--to")

    def handle(self, *args, to, **options):
        note("report", to=to)
"""


class Started:
    """A process, and what it and its children have written so far."""

    def __init__(self, command: list[str], environment: dict[str, str], stdin: str):
        self._files = [tempfile.TemporaryFile("w+") for _ in range(2)]  # noqa: SIM115
        with Path(stdin).open() as standard_input:
            self.process = subprocess.Popen(
                command,
                env=environment,
                stdin=standard_input,
                stdout=self._files[0],
                stderr=self._files[1],
                cwd=ROOT,
            )

    @property
    def output(self) -> str:
        return self._read(0)

    @property
    def errors(self) -> str:
        return self._read(1)

    def has_begun(self) -> bool:
        """Return whether a beat has written its first line; it then handles signals."""
        assert self.process.poll() is None, self.errors
        return "Starting these jobs" in self.output

    def _read(self, number: int) -> str:
        # The process shares the position in the file, and writes there.
        file = self._files[number].fileno()
        return os.pread(file, os.fstat(file).st_size, 0).decode()

    def close(self) -> None:
        """Leave neither the process nor its files."""
        self.process.kill()
        self.process.wait()
        for file in self._files:
            file.close()


class Project:
    """A project with ``CRONJOBS``, whose lines and beats leave no process behind."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.stack = ExitStack()
        self._write("manage.py", MANAGE)
        for package in ("shop", "shop/management", "shop/management/commands"):
            self._write(f"{package}/__init__.py", "")
        self._write("shop/jobs.py", JOBS)
        self._write("shop/management/commands/report.py", REPORT)

    def configure(self, cronjobs: str, time: str) -> None:
        """Write the settings, with these entries and this ``TIME``."""
        keys = ("ENGINE", "NAME", "HOST", "PORT", "USER", "PASSWORD", "OPTIONS")
        of_test = {alias: connections[alias].settings_dict for alias in connections}
        settings = SETTINGS.format(
            # Cron's environment does not say which store the tests use.
            databases={
                alias: {k: of[k] for k in keys} for alias, of in of_test.items()
            },
            root=str(ROOT),
            time=time,
            cronjobs=cronjobs,
        )
        self._write("cronjobs_settings.py", settings)

    def _write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def manage(self, *args: str) -> None:
        """Run ``manage.py`` to its end."""
        subprocess.run(
            [sys.executable, self.folder / "manage.py", *args],
            env=self._environment,
            check=True,
            timeout=STARTUP_PATIENCE,
        )

    def lines(self) -> list[str]:
        """Let ``crontab add`` write the crontab; return its lines."""
        self._write("crontab", CRONTAB)
        Path(self.folder, "crontab").chmod(0o755)
        self.manage("crontab", "add", "--verbosity", "0")
        Path(self.folder, "crontab").unlink()
        return Path(self.folder, "written").read_text().splitlines()

    def start_line(self, line: str) -> Started:
        """Start a line of the crontab as cron does: by a shell, and without input."""
        *_, command = line.split(maxsplit=5)
        return self._start(["/bin/sh", "-c", command], CRON_ENVIRONMENT, os.devnull)

    def start_beat(self) -> Started:
        """Start a beat as a container does, in the folder of the tests."""
        command = [sys.executable, str(self.folder / "manage.py"), "shedlock", "beat"]
        environment = {**self._environment, POD_VARIABLE: "yes"}
        return self._start(command, environment, command[1])

    def _start(
        self, command: list[str], environment: dict[str, str], stdin: str
    ) -> Started:
        started = Started(command, environment, stdin)
        self.stack.callback(started.close)
        return started

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT)}

    def read(self, name: str) -> str:
        """Return the text of a file; none if it is not there."""
        file = self.folder / name
        return file.read_text() if file.exists() else ""

    def take_runs(self) -> list[dict[str, Any]]:
        """Return what the runs since the last call saw, in the order of their jobs."""
        runs = [json.loads(line) for line in self.read("runs").splitlines()]
        Path(self.folder, "runs").unlink(missing_ok=True)
        return sorted(runs, key=lambda run: str(run["job"]))


def ended(*beats: Started) -> tuple[str, str]:
    """End the beats once they have begun; return their output and errors."""
    for beat in beats:
        wait_for(beat.has_begun, STARTUP_PATIENCE)
        beat.process.send_signal(signal.SIGTERM)
    assert [beat.process.wait(STARTUP_PATIENCE) for beat in beats] == [0] * len(beats)
    return "".join(beat.output for beat in beats), "".join(
        beat.errors for beat in beats
    )


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path)
    with made.stack:
        yield made


def some_time_ago() -> str:
    """Return the time of an entry that is due each hour, but not during the test."""
    return f"{(datetime.now(UTC) - timedelta(minutes=30)).minute} * * * *"


def make_overdue() -> None:
    """Let the ticks that have run be of the day before."""
    ticking = LockRecord.objects.exclude(tick=None)
    ticking.update(tick=F("tick") - DAY, due_at=F("due_at") - DAY)


def finished() -> int:
    return LockRun.objects.count()


COMMON = ("job", "args", "kwargs", "lock", "tick")


def test_beats_run_what_the_lines_run(project: Project) -> None:
    """
    Three beats without cron run each entry once, as its line of the crontab does.

    The call, its lock and its tick are the same. The beat gives it its own environment,
    folder and output; the rest of the line does not apply.
    """
    project.configure(STARTED, some_time_ago())
    lines = [project.start_line(line) for line in project.lines()]
    for line in lines:
        line.process.wait(STARTUP_PATIENCE)
    by_cron = project.take_runs()
    assert len(by_cron) == len(CALLS), [line.errors for line in lines]
    assert {
        run["job"]: (run["lock"], run["args"], run["kwargs"]) for run in by_cron
    } == CALLS
    assert sorted(project.read("suffix").split()) == [*"0" * (len(CALLS) - 1), "1"]
    own_log = project.read("own.log")
    assert own_log.count("printed by") == own_log.count("reported by") == 2
    assert sum(line.output.count("printed by") for line in lines) == len(CALLS) - 2

    make_overdue()
    beats = [project.start_beat() for _ in range(BEATS)]
    for beat in beats:
        wait_for(beat.has_begun, STARTUP_PATIENCE)
    wait_for(lambda: finished() >= 2 * len(CALLS), STARTUP_PATIENCE)
    printed, reported = ended(*beats)
    by_beats = project.take_runs()
    assert [[run[key] for key in COMMON] for run in by_beats] == [
        [run[key] for key in COMMON] for run in by_cron
    ]
    for job in CALLS:
        assert len(re.findall(f"^printed by {job}$", printed, re.MULTILINE)) == 1
        assert len(re.findall(f"^reported by {job}$", reported, re.MULTILINE)) == 1
    assert "ZeroDivisionError: by nobody" in reported
    assert project.read("own.log") == own_log
    assert len(project.read("suffix").split()) == len(CALLS)
    differing = ("prefix", "of_pod", "folder", "stdin")
    assert {tuple(run[key] for key in differing) for run in by_cron} == {
        ("yes", None, "/tmp", "")
    }
    assert {tuple(run[key] for key in differing) for run in by_beats} == {
        (None, "yes", str(ROOT), "")
    }
    failed = LockRun.objects.filter(outcome=RunOutcome.FAILED)
    assert {*failed.values_list("name")} == {(CALLS["failing"][0],)}


def test_entries_that_no_beat_starts(project: Project) -> None:
    """
    The beat leaves out entries without a tick or a lock, and reports wrong entries.

    It still schedules the valid entry.
    """
    project.configure(LEFT_OUT, some_time_ago())
    printed, errors = ended(project.start_beat())
    names = re.findall(r"^  (\S+): .*, next at ", printed, re.MULTILINE)
    assert names == [CALLS["plain"][0]]
    assert "'shop.no_such_module.job') of CRONJOBS is wrong." in errors


def test_beat_and_cron_share_the_ticks(project: Project) -> None:
    """While a project leaves cron, each tick runs once, whoever comes first."""
    project.configure('[("* * * * *", "shop.jobs.plain")]', some_time_ago())
    [line] = project.lines()
    beats = [project.start_beat() for _ in range(BEATS)]
    for beat in beats:
        wait_for(beat.has_begun, STARTUP_PATIENCE)
    # The ticks before the first look of a beat are not owed.
    wait_for(LockRecord.objects.filter(due_at__isnull=False).exists, STARTUP_PATIENCE)
    ticks = []
    for _ in range(2):
        minute = int(time.time() // 60) + 1
        time.sleep(60 * minute - time.time())
        ticks.append(str(datetime.fromtimestamp(60 * minute, UTC)))
        project.start_line(line).process.wait(STARTUP_PATIENCE)
    ended(*beats)
    begun = [run["tick"] for run in project.take_runs()]
    assert begun[-2:] == ticks
    assert len(begun) == len({*begun})
