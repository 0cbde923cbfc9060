"""
How soon after a tick a job begins, and what waiting for ticks costs.

``python -m benchmarks.beats --redis redis://127.0.0.1:6379/7 --json result.json``

It compares ``shedlock beat`` with new processes of ``manage.py``, with cron and with
Celery's beat, one after the other in one run. It starts its own PostgreSQL, or uses
that of ``--url``. What is not there, like a server of Redis, is left out. cron starts
jobs once a minute at the most, so measure it with ``--interval 60``. An interval has to
be longer than the slowest start.
"""

from __future__ import annotations

import argparse
import math
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from benchmarks.databases import postgres
from benchmarks.locks import machine, write
from benchmarks.tables import LEFT_OUT, LeftOut, Row, show

START_SECONDS = 120
"""How long a scheduler may take to be ready."""
END_SECONDS = 60
"""How long it may take to end; then it is killed."""
MINUTE = 60
HOUR = 3600
ROOT = Path(__file__).resolve().parents[1]
SETTINGS = """
DATABASES = {{"default": {database!r}}}
INSTALLED_APPS = ["noting", "django_shedlock", "django_shedlock.beat"]
SECRET_KEY = "only for a benchmark"
USE_TZ = True
TICKS = {ticks!r}
IDLE = {{
    f"idle {{number}}": {{"call": "noting.jobs.note", "schedule": "0 0 29 2 *"}}
    for number in range({idle})
}}
SHEDLOCK_SCHEDULE = {{
    f"note {{number}}": {{"call": "noting.jobs.note", "schedule": TICKS}}
    for number in range({jobs})
}} or IDLE
"""
MANAGE = """
import os
import sys

sys.path[:0] = [{root!r}, {folder!r}]
os.environ["DJANGO_SETTINGS_MODULE"] = "beats_settings"
from django.core.management import execute_from_command_line

execute_from_command_line()
"""
JOBS = """
import os
import time

def note():
    now = time.time()
    notes = os.open({notes!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(notes, b"%.6f\\n" % now)
    os.close(notes)
"""
COMMAND = """
from django.conf import settings
from django.core.management.base import BaseCommand

from django_shedlock import execute
from noting.jobs import note

class Command(BaseCommand):
    def add_arguments(self, parser):
        parser.add_argument("name")

    def handle(self, *args, name, **options):
        execute(note, name, schedule=settings.TICKS)
"""
TASKS = """
from celery import Celery
from celery.schedules import crontab

from noting.jobs import note

app = Celery(broker={broker!r})
app.conf.task_default_queue = {queue!r}
app.conf.task_ignore_result = True
app.task(note, name="note")

class Aligned(crontab):
    # The ticks of the other ways are multiples of the interval.
    def is_due(self, last_run_at):
        import time
        length = {interval!r}
        last, now = last_run_at.timestamp(), time.time()
        due = now // length > last // length
        return due, length - now % length

    def remaining_estimate(self, last_run_at):
        import datetime
        return datetime.timedelta(seconds=self.is_due(last_run_at)[1])

app.conf.beat_schedule = {{
    f"note {{number}}": {{"task": "note", "schedule": Aligned()}}
    for number in range({jobs})
}} or {{
    f"idle {{number}}": {{
        "task": "note",
        "schedule": crontab(minute=0, hour=0, day_of_month=29, month_of_year=2),
    }}
    for number in range({idle})
}}
"""


@dataclass(frozen=True)
class Project:
    """
    The files of a project whose jobs write down when they begin.

    ``jobs`` of them have a tick each ``interval`` seconds. With none, ``idle`` others
    have a tick that does not come.
    """

    folder: Path
    settings: dict[str, Any]
    interval: float
    jobs: int
    idle: int
    broker: str | None

    def write(self) -> None:
        """Write the files."""
        commands = self.folder / "noting" / "management" / "commands"
        commands.mkdir(parents=True)
        for package in (commands, *commands.parents[:2]):
            Path(package, "__init__.py").touch()
        database = {**self.settings, "ENGINE": "django.db.backends.postgresql"}
        every_minute = self.interval == MINUTE
        ticks = "* * * * *" if every_minute else f"every {self.interval:g}s"
        texts = {
            "beats_settings.py": SETTINGS.format(
                database=database, ticks=ticks, jobs=self.jobs, idle=self.idle
            ),
            "manage.py": MANAGE.format(root=str(ROOT), folder=str(self.folder)),
            "noting/jobs.py": JOBS.format(notes=str(self.folder / "notes")),
            "noting/management/commands/note.py": COMMAND,
            "celery_tasks.py": TASKS.format(
                broker=self.broker,
                queue=f"shedlock-benchmark-{os.getpid()}",
                interval=self.interval,
                jobs=self.jobs,
                idle=self.idle,
            ),
        }
        for name, text in texts.items():
            Path(self.folder, name).write_text(text, "utf-8")

    def manage(self, *arguments: str) -> list[str]:
        """Return the command line of ``manage.py``."""
        return [sys.executable, str(self.folder / "manage.py"), *arguments]

    def notes(self) -> list[float]:
        """Return when the jobs began."""
        file = self.folder / "notes"
        return [*map(float, file.read_text().split())] if file.exists() else []

    def notes_since(self, moment: float) -> list[float]:
        """Return when the jobs began since this instant."""
        return [note for note in self.notes() if note >= moment]

    @contextmanager
    def running(self, command: list[str], ready: str) -> Iterator[psutil.Process]:
        """Run the command around the body, which begins when it has said ``ready``."""
        log = self.folder / f"log of {Path(command[1]).name}"
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603
                command,
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": f"{self.folder}{os.pathsep}{ROOT}"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            until = time.monotonic() + START_SECONDS
            while ready not in log.read_text("utf-8"):
                if process.poll() is not None or time.monotonic() > until:
                    raise SystemExit(f"{shlex.join(command)}:\n{log.read_text()}")
                time.sleep(0.1)
            yield psutil.Process(process.pid)
        finally:
            end(process)

    @contextmanager
    def beat(self) -> Iterator[psutil.Process]:
        """Run ``shedlock beat`` around the body."""
        command = self.manage("shedlock", "beat", "--no-catch-up")
        with self.running(command, "next at") as process:
            yield process

    @contextmanager
    def celery(self) -> Iterator[psutil.Process]:
        """Run a worker of Celery with its beat around the body."""
        command = [sys.executable, "-m", "celery", "-A", "celery_tasks", "worker"]
        options = ["-B", "-c", "2", "-s", str(self.folder / "beat-schedule")]
        with self.running([*command, *options, "-l", "info"], "ready.") as process:
            yield process

    @contextmanager
    def cron(self) -> Iterator[None]:
        """Run a cron daemon around the body, on a host of its own."""
        from tests.support.cron_hosts import hosts

        with hosts(self.folder, "host") as [host]:
            crontab = self.folder / "crontab"
            lines = [
                f"* * * * * {shlex.join(self.command(number))}\n"
                for number in range(self.jobs)
            ]
            crontab.write_text("".join(lines), "utf-8")
            host.run("crontab", str(crontab))
            host.start_cron()
            yield

    def command(self, number: int) -> list[str]:
        """Return the command line by which cron starts a job."""
        return self.manage("note", f"note {number}", "--skip-checks")


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process in order, or else with all that it has started."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def main() -> None:
    """Measure the chosen ways, print tables, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="of a PostgreSQL server; by default one starts")
    parser.add_argument("--redis", help="of Celery's broker; by default none is used")
    parser.add_argument("--json", type=Path, help="a file for the numbers")
    parser.add_argument("--ticks", type=int, default=12, help="of each way")
    parser.add_argument("--interval", type=float, default=5, help="of ticks, in s")
    parser.add_argument("--jobs", type=int, default=1, help="at each tick")
    parser.add_argument("--idle-jobs", type=int, default=100)
    parser.add_argument("--idle-seconds", type=float, default=120)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        server = postgres(options.url, Path(folder, "postgres"))
        settings = stack.enter_context(server)
        results: dict[str, Any] = {"machine": machine()}
        print(" ".join(f"{key}: {value}." for key, value in results["machine"].items()))
        results["latency"] = measure_latency(Path(folder), settings, options)
        results["idle"] = measure_idle(Path(folder), settings, options)
        write(results, options.json)


def measure_latency(
    folder: Path, settings: dict[str, Any], options: argparse.Namespace
) -> dict[str, Row]:
    """Return and print how long after its tick a job begins, for each way."""
    rows: dict[str, Row] = {}
    base = math.nan
    for number, (way, around) in enumerate(ways(options).items()):
        if isinstance(around, LeftOut):
            rows[way] = {LEFT_OUT: around.reason}
            continue
        project = Project(
            folder / f"latency {number}",
            settings,
            options.interval,
            options.jobs,
            0,
            options.redis,
        )
        project.write()
        with around(project) as at_tick:
            first = math.floor(time.time() / options.interval) + 1
            for tick in range(first, first + options.ticks):
                sleep_until(tick * options.interval)
                at_tick()
            sleep_until((first + options.ticks) * options.interval)
            wait_for_a_job(project, first * options.interval)
        begun = project.notes_since(first * options.interval)
        last = first + options.ticks - 1
        late = sorted(
            note - min(note // options.interval, last) * options.interval
            for note in begun
        )
        late = late[: options.ticks * options.jobs]
        if not late:
            raise SystemExit(f"{way}: no job has begun")
        median = statistics.median(late)
        base = median if math.isnan(base) else base
        rows[way] = {
            "p50": median * 1000,
            "p99": late[math.ceil(0.99 * len(late)) - 1] * 1000,
            "ratio": median / base,
            "begun": f"{len(late)} of {options.ticks * options.jobs}",
        }
    show("from the tick to the beginning of its job (ms, ratio to the first)", rows)
    return rows


AtTick = Callable[[], object]
Around = Callable[[Project], Any]


def ways(options: argparse.Namespace) -> dict[str, Around | LeftOut]:
    """Return what surrounds the ticks of each way, and yields what to do at each."""
    return {
        "shedlock beat": with_beat,
        "new processes of manage.py": with_processes,
        "cron": why_no_cron(options) or with_cron,
        "Celery's beat, without a lock": why_no_celery(options) or with_celery,
    }


@contextmanager
def with_beat(project: Project) -> Iterator[AtTick]:
    """Let ``shedlock beat`` start the jobs."""
    with project.beat():
        yield list


@contextmanager
def with_celery(project: Project) -> Iterator[AtTick]:
    """Let Celery's beat send the jobs to a warm worker."""
    with project.celery():
        yield list


@contextmanager
def with_cron(project: Project) -> Iterator[AtTick]:
    """Let a cron daemon start the jobs."""
    with project.cron():
        yield list


@contextmanager
def with_processes(project: Project) -> Iterator[AtTick]:
    """Start the jobs as cron does, without its own delay."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        for number in range(project.jobs):
            command = project.command(number)
            started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL))  # noqa: S603

    try:
        yield start
    finally:
        for process in started:
            try:
                process.wait(END_SECONDS)
            finally:
                process.kill()


def why_no_cron(options: argparse.Namespace) -> LeftOut | None:
    """Return why cron is not measured; ``None`` if it is."""
    from tests.support.cron_hosts import missing_reason

    if options.interval != MINUTE:
        return LeftOut("left out, cron needs --interval 60")
    reason = missing_reason()
    return None if reason is None else LeftOut(f"left out, {reason}")


def why_no_celery(options: argparse.Namespace) -> LeftOut | None:
    """Return why Celery is not measured; ``None`` if it is."""
    if find_spec("celery") is None:
        return LeftOut("left out, Celery is not installed")
    if not options.redis:
        return LeftOut("left out, give --redis")
    return None


def measure_idle(
    folder: Path, settings: dict[str, Any], options: argparse.Namespace
) -> dict[str, Row]:
    """Return and print what waiting costs in an hour, for each way."""
    rows: dict[str, Row] = {}
    base = math.nan
    # The fewest: the database has some of its own, when it cleans up.
    own = min(-transactions() + transactions() for _ in range(3))
    runs: dict[str, Callable[[Project], Any] | LeftOut] = {
        "shedlock beat": Project.beat,
        "Celery's beat and worker": why_no_celery(options) or Project.celery,
    }
    for number, (way, around) in enumerate(runs.items()):
        if isinstance(around, LeftOut):
            rows[way] = {LEFT_OUT: around.reason}
            continue
        project = Project(
            folder / f"idle {number}",
            settings,
            options.interval,
            0,
            options.idle_jobs,
            options.redis,
        )
        project.write()
        with around(project) as process:
            # What it does once, at its start, is not part of waiting.
            time.sleep(min(10.0, options.idle_seconds))
            before = processor_seconds(process), transactions()
            time.sleep(options.idle_seconds)
            after = processor_seconds(process), transactions()
        scale = HOUR / options.idle_seconds
        used, sent = ((b - a) * scale for a, b in zip(before, after, strict=True))
        base = used if math.isnan(base) else base
        rows[way] = {
            "CPU s": used,
            "ratio": used / base if base else math.nan,
            "transactions": round(sent - own * scale),
        }
    show(f"{options.idle_jobs} idle jobs, in an hour (ratio to the first)", rows)
    return rows


def processor_seconds(process: psutil.Process) -> float:
    """Return the processor time of a process, and of its children, dead or alive."""
    used = 0.0
    for each in (process, *process.children(recursive=True)):
        times = each.cpu_times()
        used += times.user + times.system
        if each == process:
            used += times.children_user + times.children_system
    return used


def transactions() -> int:
    """Return how many transactions the database has seen, with those of this call."""
    from django.db import connection

    # Other sessions report theirs within a second or so.
    time.sleep(2)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database "
            "WHERE datname = current_database()"
        )
        [number] = cursor.fetchone()
    connection.close()
    return int(number)


def wait_for_a_job(project: Project, moment: float) -> None:
    """Wait until a job has begun since this instant: the first one may be slow."""
    until = time.monotonic() + START_SECONDS
    while not project.notes_since(moment) and time.monotonic() < until:
        time.sleep(0.05)


def sleep_until(moment: float) -> None:
    """Sleep until this instant of the host's clock."""
    while (left := moment - time.time()) > 0:
        time.sleep(left)


if __name__ == "__main__":
    main()
