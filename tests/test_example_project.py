"""The example project: its demo shows one run a round, and fails if there are more."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from pytest_django import DjangoDbBlocker

from tests.support.example_project import (
    Database,
    Hosts,
    environment,
    manage,
    new_database,
)
from tests.support.paths import MANAGE, ROOT
from tests.support.waiting import STARTUP_PATIENCE, wait_for

once = pytest.mark.once

ROUND = re.compile(r"^  \d +(\S+) +(\w+) +(\w+) +(\w+) +(\w+) +(\d+)$", re.MULTILINE)
JOBS = [
    ("report:acme", "function"),
    ("billing.send_digest", "command"),
    ("rates.refresh", "CRONJOBS"),
    ("cron:example.jobs.clean_up", "CRONJOBS"),
]
IN_CRONJOBS = {*(job for job, _ in JOBS), "clearsessions"}
SCHEDULERS = ("apscheduler", "celery", "django_tasks", "django_tasks_db")
TASKS = find_spec("django.tasks") or find_spec("django_tasks")
QUEUE = find_spec("django_tasks_db")
WITH_QUEUE = "example.settings_with_queue"
TWO_HOSTS = range(2)
ALONE = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
"""Options of a Celery worker that writes nothing to the others."""

HASHES = """
from django.conf import settings
from example.triggers import cron_hash

print(*map(cron_hash, settings.CRONJOBS))
"""
PRINT_DATABASE = """
from django.db import connection

print(connection.vendor, connection.settings_dict["NAME"])
"""
CELERY_WORKER = """
from celery.__main__ import main

sys.argv = {command!r}
main()
"""
SEND = """
import pathlib
from example.celery import FOLDER, app

staging = pathlib.Path(FOLDER, "staging")
staging.mkdir()
app.conf.broker_transport_options["data_folder_out"] = str(staging)
[entry] = app.conf.beat_schedule.values()
for _beat in range(2):
    app.send_task(entry["task"])
# A message that a worker reads while it is written ends the worker.
for message in staging.iterdir():
    message.rename(FOLDER / message.name)
print(entry["schedule"])
"""
"""Sends what two beats send at a tick, and tells when that is."""
LIST_OF_LOCKS = "django_shedlock_lockrecord_changelist"
IN_LIST_OF_LOCKS = re.compile(r"http://127\.0\.0\.1:8000(/admin/\S+/)")
FAULTS = """
from example.incident import EXPECTED

print(*(each.lock for each in EXPECTED if each.lock))
"""
HIDE_HISTORY = """
from example.incident import HISTORY, HISTORY_AWAY, rename

rename(HISTORY, HISTORY_AWAY)
"""
WITH_STOPPED_WORKER = """
import sys
from example.workers import Worker

worker = Worker("stopped")
worker.wait_until_ready()
with worker.stopped():
    print("stopped", flush=True)
    sys.stdin.read()
"""
ENQUEUE = "from example.tasks import *; print(send_invoices.enqueue().status)"


@pytest.fixture
def database(tmp_path: Path, django_db_blocker: DjangoDbBlocker) -> Iterator[Database]:
    with new_database(tmp_path, django_db_blocker) as made:
        yield made


@pytest.fixture
def make_hosts(tmp_path: Path, database: Database) -> Iterator[Callable[..., Hosts]]:
    """Return what makes a parent of hosts, from modules to import and variables."""
    with ExitStack() as stack:

        def make(*modules: str, **variables: str) -> Hosts:
            own = environment(**database.variables, **variables)
            hosts = Hosts(tmp_path, *modules, environment=own)
            stack.callback(hosts.close)
            return hosts

        yield make


def end_demo(database: Database, ending: signal.Signals) -> tuple[int, str]:
    """End a demo in a long job; return its exit status and errors after its workers."""
    with started_demo(environment(**database.variables)) as demo:
        shown_until("worker-1 began", demo)
        demo.send_signal(ending)
        # The workers have this end of the pipe too: all have ended if it is closed.
        _, errors = demo.communicate(timeout=STARTUP_PATIENCE)
    return demo.returncode, errors


@contextmanager
def started_demo(environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Start a demo whose dead worker's lease ends only if a test ends it."""
    with subprocess.Popen(
        [sys.executable, str(MANAGE), "demo"],
        env={**environment, "EXAMPLE_LEASE": "1h"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as demo:
        try:
            yield demo
        finally:
            demo.kill()


@contextmanager
def started_incident(database: Database) -> Iterator[subprocess.Popen[str]]:
    """Start an incident, which waits for Ctrl-C."""
    with subprocess.Popen(
        [sys.executable, str(MANAGE), "demo", "--incident"],
        env=environment(**database.variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as demo:
        try:
            yield demo
        finally:
            demo.kill()


def shown_until(text: str, demo: subprocess.Popen[str]) -> str:
    """Return what the demo shows up to a line with this text, or all if none has it."""
    assert demo.stdout
    shown = ""
    for line in demo.stdout:
        shown += line
        if text in line:
            break
    return shown


def assert_demo_is_right(database: Database, environment: dict[str, str]) -> None:
    """It exits with 0, skips are silent, a pipe gets no colours, and the story fits."""
    with started_demo(environment) as demo:
        shown = shown_until("worker-1 is dead", demo)
        shown += shown_until("worker-2 skipped", demo)
        database.end_lease("backup")
        rest, errors = demo.communicate(timeout=STARTUP_PATIENCE)
    shown += rest
    assert demo.returncode == 0, shown + errors
    assert errors == ""
    assert "admin / admin" in shown
    assert "\x1b" not in shown
    rounds, _, crash = shown.partition("is killed")
    assert_one_run_a_round(rounds)
    assert_dead_workers_lock_comes_free(crash.partition("Every job")[0])


def assert_one_run_a_round(shown: str) -> None:
    """In each round one worker runs and two skip, and the ledger has one run."""
    rounds = ROUND.findall(shown)
    assert [(job, kind) for job, kind, *_ in rounds] == JOBS * 2
    for _, _, *outcomes, runs in rounds:
        assert sorted(outcomes) == ["ran", "skipped", "skipped"]
        assert runs == "1"


def assert_dead_workers_lock_comes_free(shown: str) -> None:
    """It is kept for the rest of the lease, and then another worker gets in."""
    words = re.findall(r"\b(running|skipped|expired|ran|free)\b", shown)
    assert words == ["running", "running", "skipped", "expired", "ran", "free"]


@once
def test_interrupted_demo_leaves_no_worker_behind(database: Database) -> None:
    """Ctrl-C in the middle of a long job ends the workers, too."""
    status, errors = end_demo(database, signal.SIGINT)
    assert (status, "Traceback" in errors) == (130, False)


@once
def test_demo_runs_after_one_that_was_killed(
    tmp_path: Path, database: Database
) -> None:
    """What it left, held locks among it, does not disturb; no scheduler is needed."""
    status, errors = end_demo(database, signal.SIGKILL)
    assert (status, "Traceback" in errors) == (-signal.SIGKILL, False)
    for name in SCHEDULERS:
        missing = f"raise ModuleNotFoundError('{name} is not installed')"
        Path(tmp_path, f"{name}.py").write_text(missing)
    plain = environment(tmp_path, **database.variables)
    assert_demo_is_right(database, plain)
    check = manage("check", "--database=default", environment=plain)
    assert (check.returncode, check.stderr) == (0, "")


@pytest.mark.postgres_only
@pytest.mark.django_db
def test_demo_on_postgresql(database: Database) -> None:
    """The demo shows the same with PostgreSQL."""
    assert_demo_is_right(database, environment(**database.variables))


@once
@pytest.mark.parametrize(
    "command",
    [
        [str(MANAGE), "shell", "-c", PRINT_DATABASE],
        ["-c", f"import example.celery\n{PRINT_DATABASE}"],
    ],
    ids=["manage.py", "celery"],
)
def test_example_leaves_the_readers_project_alone(
    tmp_path: Path, command: list[str]
) -> None:
    """The example ignores the database and the settings that the shell names."""
    own = environment(
        DJANGO_SETTINGS_MODULE="mysite.settings",
        DATABASE_URL="postgres://postgres@127.0.0.1:5432/mysite",
        SQLITE_FILE=str(tmp_path / "mysite.sqlite3"),
        SHEDLOCK_EXAMPLE_FILE=str(tmp_path / "example.sqlite3"),
    )
    done = subprocess.run(
        [sys.executable, *command], env=own, capture_output=True, text=True
    )
    last = done.stdout.splitlines()[-1:]
    assert last == [f"sqlite {tmp_path / 'example.sqlite3'}"], done.stderr


@once
def test_settings_of_the_queue_are_an_option(tmp_path: Path) -> None:
    """``--settings`` chooses the example's other settings, as its README says."""
    own = environment(SHEDLOCK_EXAMPLE_FILE=str(tmp_path / "example.sqlite3"))
    code = "from django.conf import settings; print(settings.SETTINGS_MODULE)"
    shell = manage("shell", "--settings", WITH_QUEUE, "-c", code, environment=own)
    assert shell.stdout.splitlines()[-1:] == [WITH_QUEUE], shell.stderr


@once
def test_demo_fails_without_locks(database: Database) -> None:
    """Without locks the ledger has three runs, and the demo says so."""
    unlocked = environment(**database.variables, SHEDLOCK_OFF="1")
    demo = manage("demo", environment=unlocked)
    assert demo.returncode == 1
    assert "ran 3 times" in demo.stderr


def assert_incident_is_reported(database: Database) -> None:
    """Each reader of the console reports each fault of the incident once."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.incident"],
        env=environment(ROOT, **database.variables),
        capture_output=True,
        text=True,
        timeout=STARTUP_PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@once
def test_incident_is_reported_by_each_reader(database: Database) -> None:
    """Check, mail, post, first screen and metrics have all ten faults, each once."""
    assert_incident_is_reported(database)


@pytest.mark.postgres_only
@pytest.mark.django_db
def test_incident_on_postgresql(database: Database) -> None:
    """Each reader reports the same incident with PostgreSQL."""
    assert_incident_is_reported(database)


@once
@pytest.mark.parametrize("moment", ["Ten things go wrong", "Ctrl-C ends"])
def test_interrupted_incident_leaves_nothing_behind(
    database: Database, make_hosts: Callable[..., Hosts], moment: str
) -> None:
    """Ctrl-C ends all processes, and deletes all locks, whenever it comes."""
    with started_incident(database) as demo:
        shown_until(moment, demo)
        demo.send_signal(signal.SIGINT)
        # The workers have this end of the pipe too: all have ended if it is closed.
        rest, errors = demo.communicate(timeout=STARTUP_PATIENCE)
    is_orderly = "The incident is over." in rest
    assert is_orderly == (moment == "Ctrl-C ends")
    assert demo.returncode == (0 if is_orderly else 130)
    assert "Traceback" not in errors
    listed = make_hosts().manage("shedlock", "list").ended()
    assert "shop." not in listed


@once
def test_incident_comes_after_one_that_was_killed(
    database: Database, make_hosts: Callable[..., Hosts]
) -> None:
    """An incident restores the history that a killed incident renamed."""
    hosts = make_hosts()
    hosts.start(HIDE_HISTORY).ended()
    shown = hosts.manage("demo", "--incident", "--no-wait").ended()
    _, _, listed = shown.partition("What is wrong")
    locks = hosts.start(FAULTS).ended().split()
    assert len(locks) == 8
    assert [listed.count(lock) for lock in locks] == [1] * 8
    assert hosts.manage("shedlock", "history").ended() == "No runs yet.\n"


@once
def test_stopped_worker_ends_with_its_demo(database: Database) -> None:
    """A worker that stands still can't see that the demo was killed, and ends too."""
    with subprocess.Popen(
        [sys.executable, str(MANAGE), "shell", "-c", WITH_STOPPED_WORKER],
        env=environment(**database.variables),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as demo:
        shown_until("stopped", demo)
        demo.kill()
        # The worker has this end of the pipe too: it has ended if it is closed.
        demo.communicate(timeout=STARTUP_PATIENCE)
    assert demo.returncode == -signal.SIGKILL


@once
def test_incident_needs_locks(database: Database) -> None:
    """Without locks it can make no fault, and says so."""
    unlocked = environment(**database.variables, SHEDLOCK_OFF="1")
    demo = manage("demo", "--incident", environment=unlocked)
    assert demo.returncode == 1
    assert "unset SHEDLOCK_OFF" in demo.stderr


@once
def test_shown_addresses_are_those_of_the_list(
    database: Database, make_hosts: Callable[..., Hosts]
) -> None:
    """What the README and the demo call the address of the locks leads there."""
    hosts = make_hosts()
    readme = MANAGE.with_name("README.rst").read_text(encoding="utf-8")
    shown = hosts.manage("demo", "--incident", "--no-wait").ended()
    for text in (readme, shown):
        [address] = IN_LIST_OF_LOCKS.findall(text.replace("::", ""))
        code = f"from django.urls import resolve; print(resolve({address!r}).url_name)"
        assert hosts.start(code).ended() == f"{LIST_OF_LOCKS}\n"


@once
def test_checks_and_migrations_are_complete(make_hosts: Callable[..., Hosts]) -> None:
    """The project has no mistake that a check finds, and no missing migration."""
    hosts = make_hosts()
    no_issues = "System check identified no issues (0 silenced).\n"
    assert hosts.manage("check", "--fail-level=WARNING").ended() == no_issues
    no_changes = "No changes detected\n"
    assert hosts.manage("makemigrations", "--check").ended() == no_changes


@once
def test_cronjobs_name_jobs_with_locks(make_hosts: Callable[..., Hosts]) -> None:
    """What CRONJOBS names runs under its lock, through django-crontab's own command."""
    hosts = make_hosts()
    hashes = hosts.start(HASHES).ended().split()
    assert len(hashes) == len(IN_CRONJOBS)
    printed = [hosts.manage("crontab", "run", job).ended() for job in hashes]
    assert sorted(printed) == ["", "", "", "", "sent\n"]
    locks = hosts.manage("shedlock", "list", "--wide").ended()
    assert {line.split()[0] for line in locks.splitlines()[1:]} == IN_CRONJOBS


@once
def test_any_program_runs_under_a_lock(make_hosts: Callable[..., Hosts]) -> None:
    """The command of the README writes its file, and a second host skips it."""
    hosts = make_hosts()
    lock = ["nightly-backup", "--lock-at-most-for", "1h", "--lock-at-least-for", "30m"]
    command = ["shedlock", "run", *lock, "--", "echo", "copied"]
    assert [hosts.manage(*command).ended() for _ in TWO_HOSTS] == ["copied\n", ""]


@once
def test_one_celery_worker_runs_a_tick(
    tmp_path: Path, database: Database, make_hosts: Callable[..., Hosts]
) -> None:
    """Two beats send a tick twice: one task runs, and the other one is skipped."""
    hosts = make_hosts(
        "celery.__main__",
        "celery.apps.worker",
        "celery.bin.worker",
        "example.celery",
        SHEDLOCK_EXAMPLE_QUEUE=str(tmp_path / "queue"),
    )
    command = ["celery", "-A", "example", "worker", "--pool=solo", "--loglevel=INFO"]
    workers = []
    for number in TWO_HOSTS:
        own = [*command, *ALONE, "-n", f"{number}@host"]
        workers.append(hosts.start(CELERY_WORKER.format(command=own)))
        # One after the other: a worker may read what another has only begun to write.
        wait_for(lambda: "ready." in workers[-1].output, STARTUP_PATIENCE)
    assert hosts.start(SEND).ended().startswith("<crontab: * * * * *")

    def count(text: str) -> int:
        return sum(worker.output.count(text) for worker in workers)

    wait_for(lambda: count("succeeded") == 2, STARTUP_PATIENCE)
    assert count("not acquired") == 1
    assert database.runs("orders.import") == 1


@once
def test_one_apscheduler_runs_a_tick(
    database: Database, make_hosts: Callable[..., Hosts]
) -> None:
    """One of two schedulers runs the job. Both skip while the lock is kept."""
    hosts = make_hosts("apscheduler.schedulers.blocking")
    command = ("run_apscheduler", "--second=*")
    schedulers = [hosts.manage(*command) for _ in TWO_HOSTS]
    wait_for(
        lambda: all("not acquired" in each.output for each in schedulers),
        STARTUP_PATIENCE,
    )
    assert database.runs("rates.refresh") == 1


# Left out and not skipped, since Django 5.2 has no tasks of its own.
if TASKS:

    @once
    def test_task_runs_once_in_two_processes(
        database: Database, make_hosts: Callable[..., Hosts]
    ) -> None:
        """Django's own backend runs a task where it is enqueued: on one host of two."""
        hosts = make_hosts("example.tasks")
        started = [hosts.start(ENQUEUE) for _ in TWO_HOSTS]
        # Django 6.1 logs what becomes of a task.
        ends = [host.ended().splitlines()[-1] for host in started]
        assert ends == ["SUCCESSFUL"] * 2
        assert database.runs("invoices.send") == 1


if QUEUE:

    @once
    def test_one_database_worker_runs_a_tick(
        database: Database, make_hosts: Callable[..., Hosts]
    ) -> None:
        """Tasks of one tick are all successful, and one of them does the work."""
        hosts = make_hosts("example.tasks", DJANGO_SETTINGS_MODULE=WITH_QUEUE)
        for _ in TWO_HOSTS:
            assert hosts.start(ENQUEUE).ended() == "READY\n"
        command = ("db_worker", "--no-reload")
        workers = [hosts.manage(*command) for _ in TWO_HOSTS]

        def successful() -> int:
            return sum(each.output.count("state=SUCCESSFUL") for each in workers)

        wait_for(lambda: successful() == 2, STARTUP_PATIENCE)
        assert database.runs("invoices.send") == 1
