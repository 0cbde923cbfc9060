"""The example project: its demo shows one run a round, and fails if there are more."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import pytest
from django.db import connections
from pytest_django import DjangoDbBlocker

from tests.support.stores import chosen_store
from tests.support.waiting import PATIENCE, wait_for

pytestmark = pytest.mark.once

MANAGE = Path(__file__).resolve().parent.parent / "example_project" / "manage.py"
ROUND = re.compile(r"^  \d +(\S+) +(\w+) +(\w+) +(\w+) +(\w+) +(\d+)$", re.MULTILINE)
JOBS = [
    ("report:acme", "function"),
    ("billing.send_digest", "command"),
    ("rates.refresh", "CRONJOBS"),
    ("cron:example.jobs.clean_up", "CRONJOBS"),
]
IN_CRONJOBS = {*(job for job, _ in JOBS), "clearsessions"}
TASKS = find_spec("django.tasks") or find_spec("django_tasks")
QUEUE = find_spec("django_tasks_db")
WITH_QUEUE = "example.settings_with_queue"
TWO_HOSTS = range(2)
ALONE = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
"""Options of a Celery worker that writes nothing to the others."""

MORTAL = """
import os, runpy, sys, threading

def end_with_the_tests():
    os.read(0, 1)
    os._exit(0)

threading.Thread(target=end_with_the_tests, daemon=True).start()
program, *sys.argv[1:] = sys.argv[1:]
is_file = program.endswith(".py")
run = runpy.run_path if is_file else runpy.run_module
run(program, run_name="__main__")
"""
"""Run a file or a module that ends with its standard input."""
BLOCKED = """
import runpy, sys

for name in ("apscheduler", "celery", "django_tasks", "django_tasks_db"):
    sys.modules[name] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Run a file as where no other scheduler is installed."""


def environment(**variables: str) -> dict[str, str]:
    ours = {"DJANGO_SETTINGS_MODULE", "DATABASE_URL", "SHEDLOCK_OFF"}
    inherited = {k: v for k, v in os.environ.items() if k not in ours}
    path = [str(MANAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**inherited, "PYTHONPATH": os.pathsep.join(path), **variables}


def manage(*args: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(MANAGE), *args],
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@contextmanager
def background(
    folder: Path, *commands: list[str], **variables: str
) -> Iterator[list[Path]]:
    """Run the commands, which never end by themselves; give what they print."""
    folder.mkdir(exist_ok=True)
    logs = [folder / f"{number}.log" for number in range(len(commands))]
    with ExitStack() as stack:
        for command, log in zip(commands, logs, strict=True):
            process = subprocess.Popen(
                [sys.executable, "-c", MORTAL, *command],
                env=environment(**variables),
                stdin=subprocess.PIPE,
                stdout=stack.enter_context(log.open("w")),
                stderr=subprocess.STDOUT,
            )
            stack.callback(process.communicate)
            stack.callback(process.kill)
        yield logs


@contextmanager
def ready_worker(folder: Path, command: list[str], **variables: str) -> Iterator[Path]:
    """Run a Celery worker; give what it prints, once it is ready."""
    with background(folder, command, **variables) as [log]:
        wait_for(lambda: "ready." in log.read_text())
        yield log


def count(text: str, logs: list[Path]) -> int:
    return sum(log.read_text().count(text) for log in logs)


def shell(code: str, **variables: str) -> str:
    ended = manage("shell", "-v0", "-c", code, **variables)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def ledger(job: str, **variables: str) -> int:
    """Return how often the job's body ran."""
    query = f"JobRun.objects.filter(job={job!r}, ended_at__isnull=False)"
    code = f"from example.models import JobRun; print({query}.count())"
    return int(shell(code, **variables))


@contextmanager
def new_database(folder: Path, blocker: DjangoDbBlocker) -> Iterator[dict[str, str]]:
    """Give the environment for a new database of the store under test."""
    if chosen_store() != "postgres":
        yield {"SQLITE_FILE": str(folder / "example.sqlite3")}
        return
    name = f"shedlock_example_{uuid4().hex}"
    with blocker.unblock():
        on_server(f"CREATE DATABASE {name}")
    try:
        yield {"DATABASE_URL": postgres_url(name)}
    finally:
        with blocker.unblock():
            # Not by FORCE: who is no superuser may not end the server's own workers.
            on_server(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                f"WHERE datname = '{name}' AND usename = current_user"
            )
            on_server(f"DROP DATABASE {name}")


def on_server(statement: str) -> None:
    with connections["default"]._nodb_cursor() as cursor:
        cursor.execute(statement)


def postgres_url(name: str) -> str:
    settings = connections["default"].settings_dict
    user, password, host = (
        quote(settings[part], safe="") for part in ("USER", "PASSWORD", "HOST")
    )
    port = settings["PORT"] or 5432
    return f"postgres://{user}:{password}@:{port}/{name}?host={host}"


@pytest.fixture
def database(
    tmp_path: Path, django_db_blocker: DjangoDbBlocker
) -> Iterator[dict[str, str]]:
    with new_database(tmp_path, django_db_blocker) as variables:
        yield variables


@pytest.fixture(scope="module")
def demo(
    tmp_path_factory: pytest.TempPathFactory, django_db_blocker: DjangoDbBlocker
) -> Iterator[subprocess.CompletedProcess[str]]:
    """Run the demo once, on a new database, for all tests that read what it shows."""
    folder = tmp_path_factory.mktemp("demo")
    with new_database(folder, django_db_blocker) as variables:
        yield manage("demo", **variables)


def test_demo_ends_well(demo: subprocess.CompletedProcess[str]) -> None:
    """The demo exits with 0, skips are silent, and a pipe gets no colours."""
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert demo.stderr == ""
    assert "admin / admin" in demo.stdout
    assert "\x1b" not in demo.stdout


def test_demo_shows_one_run_a_round(demo: subprocess.CompletedProcess[str]) -> None:
    """In each round one worker runs and two skip, and the ledger has one run."""
    rounds = ROUND.findall(demo.stdout)
    assert [(job, kind) for job, kind, *_ in rounds] == JOBS * 2
    for _, _, *outcomes, runs in rounds:
        assert sorted(outcomes) == ["ran", "skipped", "skipped"]
        assert runs == "1"


def test_demo_shows_how_a_dead_workers_lock_comes_free(
    demo: subprocess.CompletedProcess[str],
) -> None:
    """The lock is kept for the rest of the lease, and then another worker gets in."""
    story = demo.stdout.partition("is killed")[2]
    words = r"\b(running|skipped|expired|ran|free)\b"
    found = re.findall(words, story.partition("Every job")[0])
    assert found == ["running", "running", "skipped", "expired", "ran", "free"]


def test_demo_fails_without_locks(database: dict[str, str]) -> None:
    """Without locks the ledger has three runs, and the demo says so."""
    demo = manage("demo", SHEDLOCK_OFF="1", **database)
    assert demo.returncode == 1
    assert "ran 3 times" in demo.stderr


def listen_to_ctrl_c() -> None:
    # A shell lets its background jobs ignore it, and their children inherit that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_demo_leaves_no_worker_behind(
    database: dict[str, str], ending: signal.Signals
) -> None:
    """However the demo ends, also in the middle of a long job, its workers end too."""
    with subprocess.Popen(
        [sys.executable, str(MANAGE), "demo"],
        env=environment(**database),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=listen_to_ctrl_c,
    ) as demo:
        try:
            assert demo.stdout
            assert any("worker-1 began" in line for line in demo.stdout)
            demo.send_signal(ending)
            # The workers have this end of the pipe too: all have ended if it is closed.
            _, errors = demo.communicate(timeout=PATIENCE)
        finally:
            demo.kill()
    assert "Traceback" not in errors
    assert demo.returncode == (130 if ending is signal.SIGINT else -ending)


def test_demo_runs_after_one_that_was_killed(database: dict[str, str]) -> None:
    """What a killed demo left, held locks among it, does not disturb the next one."""
    manage("migrate", "--verbosity=0", **database)
    die = (
        "import os\n"
        "from django_shedlock import hold\n"
        "with hold('report:acme'), hold('rates.refresh'), hold('backup'):\n"
        "    os._exit(9)\n"
    )
    assert manage("shell", "-c", die, **database).returncode == 9
    demo = manage("demo", **database)
    assert demo.returncode == 0, demo.stdout + demo.stderr


def test_checks_and_migrations_are_complete(database: dict[str, str]) -> None:
    """The project has no mistake that a check finds, and no missing migration."""
    check = manage("check", "--fail-level", "WARNING", **database)
    assert check.returncode == 0, check.stderr
    migrations = manage("makemigrations", "--check", **database)
    assert migrations.returncode == 0, migrations.stdout


def test_cronjobs_name_jobs_with_locks(database: dict[str, str]) -> None:
    """What CRONJOBS names runs under its lock, through django-crontab's own command."""
    manage("migrate", "--verbosity=0", **database)
    listing = (
        "from django.conf import settings\n"
        "from example.triggers import cron_hash\n"
        "print(*map(cron_hash, settings.CRONJOBS))\n"
    )
    hashes = manage("shell", "-v0", "-c", listing, **database).stdout.split()
    assert len(hashes) == len(IN_CRONJOBS)
    for job in hashes:
        run = manage("crontab", "run", job, **database)
        assert run.returncode == 0, run.stderr
        assert run.stderr == ""
    locks = manage("shedlock", "list", **database).stdout
    assert {line.split()[0] for line in locks.splitlines()[1:]} == IN_CRONJOBS


def test_any_program_runs_under_a_lock(database: dict[str, str]) -> None:
    """The command of the README writes its file, and a second host skips it."""
    manage("migrate", "--verbosity=0", **database)
    lock = ["nightly-backup", "--lock-at-most-for", "1m", "--lock-at-least-for", "30s"]
    runs = [
        manage("shedlock", "run", *lock, "--", "echo", "copied", **database)
        for _ in TWO_HOSTS
    ]
    assert [(run.returncode, run.stdout) for run in runs] == [(0, "copied\n"), (0, "")]


def test_other_schedulers_are_optional(database: dict[str, str]) -> None:
    """Without their libraries the checks find nothing, and the demo runs."""
    manage("migrate", "--verbosity=0", **database)
    for command in (["check", "--database=default"], ["send_digest"], ["demo"]):
        ended = subprocess.run(
            [sys.executable, "-c", BLOCKED, str(MANAGE), *command],
            env=environment(**database),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert (ended.returncode, ended.stderr) == (0, ""), command[0]


def test_one_celery_worker_runs_a_tick(
    tmp_path: Path, database: dict[str, str]
) -> None:
    """Two beats send a tick twice: one task runs, and the other one is skipped."""
    variables = {**database, "CELERY_FOLDER": str(tmp_path / "queue")}
    manage("migrate", "--verbosity=0", **variables)
    options = ["-A", "example", "worker", "--pool=solo", "--loglevel=INFO", *ALONE]
    first, second = (["celery", *options, "-n", f"{host}@host"] for host in TWO_HOSTS)
    # One after the other: a worker may read what another has only begun to write.
    with (
        ready_worker(tmp_path / "1", first, **variables) as one,
        ready_worker(tmp_path / "2", second, **variables) as other,
    ):
        logs = [one, other]
        send = "from example.celery import app, import_orders\n"
        shell(send + "import_orders.delay(); import_orders.delay()", **variables)
        wait_for(lambda: count("succeeded", logs) == 2)
    assert count("not acquired", logs) == 1
    assert ledger("orders.import", **variables) == 1


def test_celery_beat_sends_the_task_of_the_example() -> None:
    """The schedule names a task that there is, at a time of the clock."""
    code = (
        "from example.celery import app\n"
        "[entry] = app.conf.beat_schedule.values()\n"
        "print(entry['task'] in app.tasks, entry['schedule'])\n"
    )
    assert shell(code).startswith("True <crontab: * * * * *")


def test_one_apscheduler_runs_a_tick(tmp_path: Path, database: dict[str, str]) -> None:
    """Of two schedulers one runs the job; both skip while it is kept."""
    manage("migrate", "--verbosity=0", **database)
    command = [str(MANAGE), "run_apscheduler", "--second=*/2"]
    with background(tmp_path, command, command, **database) as logs:
        skipped = "not acquired"
        wait_for(lambda: all(skipped in log.read_text() for log in logs))
    assert ledger("rates.refresh", **database) == 1


# Left out and not skipped, since Django 5.2 has no tasks of its own.
if TASKS:

    def test_task_runs_once_in_two_processes(
        tmp_path: Path, database: dict[str, str]
    ) -> None:
        """Django's own backend runs a task where it is enqueued: on one host of two."""
        manage("migrate", "--verbosity=0", **database)
        code = "from example.tasks import *; print(send_invoices.enqueue().status)"
        command = [str(MANAGE), "shell", "-v0", "-c", code]
        with background(tmp_path, command, command, **database) as logs:
            done = "SUCCESSFUL\n"
            wait_for(lambda: all(done in log.read_text() for log in logs))
        assert ledger("invoices.send", **database) == 1


if QUEUE:

    def test_one_database_worker_runs_a_tick(
        tmp_path: Path, database: dict[str, str]
    ) -> None:
        """Tasks of one tick are all successful, and one of them does the work."""
        variables = {**database, "DJANGO_SETTINGS_MODULE": WITH_QUEUE}
        manage("migrate", "--verbosity=0", **variables)
        send = "from example.tasks import send_invoices as task\n"
        shell(send + "task.enqueue(); task.enqueue()", **variables)
        worker = [str(MANAGE), "db_worker", "--no-reload"]
        with background(tmp_path, worker, worker, **variables) as logs:
            done = "state=SUCCESSFUL"
            wait_for(lambda: count(done, logs) == 2)
        assert ledger("invoices.send", **variables) == 1
