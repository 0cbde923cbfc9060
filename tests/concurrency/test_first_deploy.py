"""Deploys: many processes migrate one database at the same moment."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_django import DjangoDbBlocker

from tests.support.deploys import Deploy, new_deploy
from tests.support.poolers import pgbouncer
from tests.support.waiting import STARTUP_PATIENCE, wait_for

SETTINGS = """
import os
from tests.support.lean_settings import *

INSTALLED_APPS = ["django_shedlock", "deployed"]
SHEDLOCK_COMMANDS = {
    "migrate": {"wait": os.environ.get("DEPLOY_WAIT", "10m")},
    "diffsettings": {"lock_at_most_for": "10m"},
}
"""
APPS = """
import os

from django.apps import AppConfig

class DeployedConfig(AppConfig):
    name = "deployed"

    def ready(self):
        from django_shedlock.registry.migrate import MigrateLock

        MigrateLock.look_interval_seconds = float(
            os.environ.get("DEPLOY_LOOKS", "0.1")
        )
"""
MIGRATION = """
import os, subprocess, sys, time
from pathlib import Path

from django.core.management import call_command
from django.db import migrations
from django_shedlock.sql.connections import leave_to_parent

here = Path(__file__).parents[2]
CHILD = '''
import os, pathlib, sys, time
while not pathlib.Path({lost!r}).exists():
    time.sleep(0.01)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
'''

def wait(apps, schema_editor):
    with (here / "log").open("a") as log:
        print(os.getpid(), file=log)
    while not (here / "go").exists():
        time.sleep(0.01)

def migrate_within(apps, schema_editor):
    # Its child, and itself, each migrate once more: they run under the same lock.
    call_command("migrate", "django_shedlock", verbosity=0)
    subprocess.run([*{migrate!r}, "django_shedlock", "--verbosity", "0"], check=True)

def start_child(apps, schema_editor):
    global child
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, *{migrate!r}[1:], "django_shedlock"]
    )

def wait_for_child(apps, schema_editor):
    (here / "lost").touch()
    assert child.wait() == 0

def fork(apps, schema_editor):
    # The child leaves by way of the lock. Django's own connection is the parent's, too.
    child = os.fork()
    if child == 0:
        leave_to_parent(schema_editor.connection)
        sys.exit(0)
    os.waitpid(child, 0)

class Migration(migrations.Migration):
    atomic = False
    dependencies = {dependencies!r}
    operations = [migrations.RunPython(each) for each in ({operations})]
"""
MIGRATE = [sys.executable, "-m", "django", "migrate", "--no-color"]
POD = ["sh", "-c", f"{' '.join(MIGRATE)} && echo serves"]
OURS = ("django_shedlock", "0001_initial")


@pytest.fixture
def deploy(tmp_path: Path, django_db_blocker: DjangoDbBlocker) -> Iterator[Deploy]:
    with django_db_blocker.unblock(), new_deploy(tmp_path) as made:
        yield made


def prepare(
    deploy: Deploy, operations: str = "wait,", dependencies: tuple[Any, ...] = ()
) -> None:
    """Write a project with a migration, which comes after those it depends on."""
    migration = MIGRATION.format(
        dependencies=list(dependencies),
        operations=operations,
        migrate=MIGRATE,
        lost=str(deploy.folder / "lost"),
    )
    deploy.prepare(
        {
            "deploy_settings.py": SETTINGS,
            "deployed/__init__.py": "",
            "deployed/apps.py": APPS,
            "deployed/migrations/__init__.py": "",
            "deployed/migrations/0001_initial.py": migration,
        }
    )


@pytest.mark.servers_only
@pytest.mark.parametrize("dependencies", [(), (OURS,)], ids=["before", "after"])
def test_one_of_ten_migrates(deploy: Deploy, dependencies: Any) -> None:
    """Nine wait, also once our table is there, and find nothing to do."""
    prepare(deploy, dependencies=dependencies)
    processes = [deploy.start(MIGRATE) for _ in range(9)]
    wait_for(deploy.log, STARTUP_PATIENCE)
    processes.append(deploy.start(MIGRATE))
    wait_for(
        lambda: sum("waits" in each.output for each in processes) == 9, STARTUP_PATIENCE
    )
    assert len(deploy.log()) == 1
    deploy.go()
    assert [process.end() for process in processes] == [0] * 10
    assert len(deploy.log()) == 1
    outputs = [process.output for process in processes]
    assert sum("No migrations to apply" in output for output in outputs) == 9
    # The lock of the database has no record and no history.
    assert deploy.ask("SELECT name FROM shedlock") == []
    assert deploy.ask("SELECT name FROM shedlock_run") == []


@pytest.mark.servers_only
def test_another_goes_on_after_a_kill(deploy: Deploy) -> None:
    """The lock ends with the connection of the process that is killed."""
    prepare(deploy)
    processes = [deploy.start(MIGRATE) for _ in range(3)]
    [first] = wait_for(deploy.log, STARTUP_PATIENCE)
    wait_for(
        lambda: sum("waits" in each.output for each in processes) == 2, STARTUP_PATIENCE
    )
    os.kill(int(first), signal.SIGKILL)
    wait_for(lambda: len(deploy.log()) == 2, STARTUP_PATIENCE)
    deploy.go()
    assert sorted(process.end() for process in processes) == [-signal.SIGKILL, 0, 0]
    assert len(set(deploy.log())) == 2


@pytest.mark.servers_only
def test_lost_lock_is_acquired_again(deploy: Deploy) -> None:
    """A warning says so, and a process that comes later waits."""
    prepare(deploy)
    first = deploy.start(MIGRATE)
    wait_for(deploy.log, STARTUP_PATIENCE)
    deploy.end_sessions(deploy.holders())
    wait_for(lambda: "It is held again" in first.output, STARTUP_PATIENCE)
    second = deploy.start(MIGRATE)
    wait_for(lambda: "this process waits" in second.output, STARTUP_PATIENCE)
    assert len(deploy.log()) == 1
    deploy.go()
    assert (first.end(), second.end()) == (0, 0)
    assert "The lock of 'migrate' on database 'default' was lost" in first.output
    assert "No migrations to apply" in second.output


@pytest.mark.servers_only
def test_lost_lock_that_another_process_acquires(deploy: Deploy) -> None:
    """
    Two processes go on after one lost the lock to the other.

    The process that lost the lock warns about it.
    """
    prepare(deploy, dependencies=(OURS,))
    first = deploy.start(MIGRATE)
    wait_for(deploy.log, STARTUP_PATIENCE)
    second = deploy.start(MIGRATE)
    wait_for(lambda: "this process waits" in second.output, STARTUP_PATIENCE)
    # So that the first one can't acquire it before the second one.
    os.kill(first.popen.pid, signal.SIGSTOP)
    deploy.end_sessions(deploy.holders())
    wait_for(lambda: len(deploy.log()) == 2, STARTUP_PATIENCE)
    os.kill(first.popen.pid, signal.SIGCONT)
    wait_for(
        lambda: "another one may migrate at the same time" in first.output,
        STARTUP_PATIENCE,
    )
    deploy.go()
    assert "was lost" in first.output
    assert (first.end(), second.end()) == (0, 0)


@pytest.mark.servers_only
def test_loss_just_before_the_end(deploy: Deploy) -> None:
    """A loss of the lock is reported even if the migration has already ended."""
    prepare(deploy)
    process = deploy.start(MIGRATE, DEPLOY_LOOKS="3600")
    wait_for(deploy.log, STARTUP_PATIENCE)
    deploy.end_sessions(deploy.holders())
    deploy.go()
    assert process.end() == 0
    assert "Another process may have migrated, too" in process.output


@pytest.mark.servers_only
def test_waiting_survives_the_end_of_its_connection(deploy: Deploy) -> None:
    """A pooler that starts again ends all connections of a process that waits."""
    prepare(deploy)
    first = deploy.start(MIGRATE)
    wait_for(deploy.log, STARTUP_PATIENCE)
    before = deploy.sessions()
    second = deploy.start(MIGRATE)
    wait_for(lambda: "this process waits" in second.output, STARTUP_PATIENCE)
    ended = wait_for(lambda: deploy.sessions() - before, STARTUP_PATIENCE)
    deploy.end_sessions(ended)
    wait_for(lambda: deploy.sessions() - before - ended, STARTUP_PATIENCE)
    deploy.go()
    assert (first.end(), second.end()) == (0, 0)
    assert "No migrations to apply" in second.output


@pytest.mark.servers_only
def test_pods_serve_only_what_is_migrated(deploy: Deploy) -> None:
    """Three pods run ``migrate && serve``: one whose wait is over serves nothing."""
    prepare(deploy)
    migrating = deploy.start(POD)
    wait_for(deploy.log, STARTUP_PATIENCE)
    waiting = deploy.start(POD)
    hasty = deploy.start(POD, DEPLOY_WAIT="10ms")
    assert hasty.end() == 75
    assert "was held for 10ms, so this process did nothing" in hasty.output
    assert "SHEDLOCK_COMMANDS['migrate'] a longer `wait`" in hasty.output
    wait_for(lambda: "this process waits" in waiting.output, STARTUP_PATIENCE)
    assert "serves" not in migrating.output + waiting.output + hasty.output
    deploy.go()
    assert (migrating.end(), waiting.end()) == (0, 0)
    assert all("serves" in pod.output for pod in (migrating, waiting))
    assert "No migrations to apply" in waiting.output


@pytest.mark.servers_only
def test_process_that_the_holder_starts(deploy: Deploy) -> None:
    """A process that the holder starts migrates under the holder's lock."""
    prepare(deploy, "migrate_within, wait", dependencies=(OURS,))
    outer = deploy.start(MIGRATE)
    wait_for(deploy.log, STARTUP_PATIENCE)
    assert "waits" not in outer.output
    deploy.go()
    assert outer.end() == 0, outer.output
    stranger = deploy.start(MIGRATE, SHEDLOCK_HELD_BY="session:1 host:1:abc")
    assert stranger.end() == 0


@pytest.mark.servers_only
def test_child_that_was_started_before_a_loss(deploy: Deploy) -> None:
    """A child recognizes its parent after the parent has lost and regained the lock."""
    operations = "start_child, wait, wait_for_child"
    prepare(deploy, operations, dependencies=(OURS,))
    process = deploy.start(MIGRATE, DEPLOY_WAIT="0s")
    wait_for(deploy.log, STARTUP_PATIENCE)
    deploy.end_sessions(deploy.holders())
    wait_for(lambda: "It is held again" in process.output, STARTUP_PATIENCE)
    deploy.go()
    assert process.end() == 0, process.output


@pytest.mark.servers_only
def test_subclass_of_migrate_makes_the_table(deploy: Deploy) -> None:
    """The checks do not tell it to run ``migrate`` first."""
    prepare(deploy, dependencies=(OURS,))
    commands = deploy.folder / "deployed" / "management" / "commands"
    commands.mkdir(parents=True)
    (commands / "migrate_more.py").write_text(
        "from django.core.management.commands.migrate import Command as Command\n"
    )
    deploy.go()
    process = deploy.start([sys.executable, "-m", "django", "migrate_more"])
    assert process.end() == 0
    assert "shedlock.W003" not in process.output


@pytest.mark.servers_only
def test_forked_child_leaves_the_lock_alone(deploy: Deploy) -> None:
    """A child that leaves the body would end its parent's connection."""
    prepare(deploy, "fork, wait")
    process = deploy.start(MIGRATE)
    wait_for(deploy.log, STARTUP_PATIENCE)
    assert deploy.holders()
    deploy.go()
    assert process.end() == 0
    assert "was lost" not in process.output


@pytest.mark.postgres_only
def test_ten_behind_a_pooler_of_transactions(deploy: Deploy) -> None:
    """Ten processes can share a pooler's three connections: waiting ones use none."""
    with pgbouncer("transaction", 3):
        prepare(deploy)
        processes = [deploy.start(MIGRATE) for _ in range(10)]
        wait_for(deploy.log, STARTUP_PATIENCE)
        wait_for(
            lambda: sum("waits" in each.output for each in processes) == 9,
            STARTUP_PATIENCE,
        )
        assert len(deploy.log()) == 1
        deploy.go()
        assert [process.end() for process in processes] == [0] * 10
    assert len(deploy.log()) == 1


def test_other_commands_need_the_table(deploy: Deploy) -> None:
    """Without it they end in one sentence, which names the command that makes it."""
    prepare(deploy)
    manage = [sys.executable, "-m", "django"]
    command = deploy.start([*manage, "diffsettings"])
    run = deploy.start([*manage, "shedlock", "run", "deploy", "--", "true"])
    assert (command.end(), run.end()) == (1, 125)
    for process in (command, run):
        assert "its table is missing. Run `python manage.py migrate`." in process.output
        assert "Traceback" not in process.output


@pytest.mark.sqlite_only
def test_sqlite_is_migrated(deploy: Deploy) -> None:
    """On SQLite ``migrate`` runs without a lock, and warns about it once."""
    prepare(deploy)
    deploy.go()
    process = deploy.start(MIGRATE)
    assert process.end() == 0
    assert len(deploy.log()) == 1
    text = "'migrate' on database 'default' runs without a lock, since SQLite has none"
    assert process.output.count(text) == 1
