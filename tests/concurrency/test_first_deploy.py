"""The first deploy: many processes migrate one empty database."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import connections, transaction
from django.db.utils import ConnectionHandler
from django.test.utils import CaptureQueriesContext
from pytest_django import DjangoDbBlocker

from django_shedlock.locks.configuration import make_request
from django_shedlock.providers import get_provider
from django_shedlock.providers.database import first_deploy
from django_shedlock.registry.migrate import before_first_migrate
from tests.support.paths import ROOT
from tests.support.stores import SUFFIX_VARIABLE
from tests.support.waiting import PATIENCE, wait_for

SETTINGS = """
from tests.support.lean_settings import *

DATABASES = {{"default": {{**DATABASES["default"], **{address!r}}}}}
INSTALLED_APPS = ["django_shedlock", "deployed"]
SHEDLOCK_COMMANDS = {{"migrate": {{"wait": "10m"}}}}
"""
MIGRATION = """
import os, time
from pathlib import Path

from django.db import migrations

here = Path(__file__).parent

def wait(apps, schema_editor):
    with (here / "log").open("a") as log:
        print(os.getpid(), file=log)
    while not (here / "go").exists():
        time.sleep(0.01)

class Migration(migrations.Migration):
    dependencies = {dependencies!r}
    operations = [migrations.RunPython(wait)]
"""
MIGRATE = [sys.executable, "-m", "django", "migrate"]
WRAPPED = [*MIGRATE[:3], "shedlock", "run", "deploy", "--wait", "10m", "--", *MIGRATE]
SESSIONS = {
    "postgresql": "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = %s",
    "mysql": "SELECT COUNT(*) FROM information_schema.processlist WHERE db = %s",
}


class Deploy:
    """Processes that migrate a new database, in which one migration waits for us."""

    def __init__(self, folder: Path, stack: ExitStack):
        self.folder = folder
        self.vendor = connections["default"].vendor
        # Others of pytest's workers have one of their own at the same time.
        mine = (SUFFIX_VARIABLE, "PYTEST_XDIST_WORKER")
        self.name = "".join(
            ["test_shedlock_deploy", *(os.environ.get(each, "") for each in mine)]
        )
        if self.vendor == "sqlite":
            self.name = str(folder / "deploy.sqlite3")
        self._stack = stack
        self._started: list[subprocess.Popen[str]] = []

    def prepare(self, *, dependencies: list[tuple[str, str]]) -> None:
        """Write the project; the migration comes after those that it depends on."""
        app = self.folder / "deployed"
        (app / "migrations").mkdir(parents=True)
        (app / "__init__.py").touch()
        (app / "migrations" / "__init__.py").touch()
        code = MIGRATION.format(dependencies=dependencies)
        (app / "migrations" / "0001_initial.py").write_text(code)
        given = connections["default"].settings_dict
        kept = ("ENGINE", "USER", "PASSWORD", "HOST", "PORT", "OPTIONS")
        address = {**{key: given[key] for key in kept}, "NAME": self.name}
        code = SETTINGS.format(address=address)
        (self.folder / "deploy_settings.py").write_text(code)
        self._database = ConnectionHandler({"default": address})["default"]
        self._stack.callback(self._database.close)

    def start(self, count: int, command: list[str]) -> None:
        """Start so many processes at once."""
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "deploy_settings",
            "PYTHONPATH": os.pathsep.join([str(self.folder), str(ROOT)]),
        }
        for _ in range(count):
            process = subprocess.Popen(
                command,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            self._started.append(process)
            self._stack.callback(process.communicate)
            self._stack.callback(process.kill)

    def begun(self) -> list[int]:
        """Return the processes that have begun the migration."""
        for process in self._started:
            assert process.poll() in {None, 0, -signal.SIGKILL}, process.stderr.read()
        log = self.folder / "deployed" / "migrations" / "log"
        return [int(line) for line in log.read_text().split()] if log.exists() else []

    def wait_until_all_ask(self) -> None:
        """Wait until each process that still runs has connected to the database."""

        def all_ask() -> bool:
            alive = sum(process.poll() is None for process in self._started)
            return self.ask(SESSIONS[self.vendor], self.name) - 1 >= alive

        wait_for(all_ask)

    def ask(self, query: str, *values: str) -> int:
        """Return the number that the database answers."""
        with self._database.cursor() as cursor:
            cursor.execute(query, values)
            return int(cursor.fetchone()[0])

    def go(self) -> list[tuple[int, str]]:
        """Let the migration go on; return the statuses and outputs."""
        (self.folder / "deployed" / "migrations" / "go").touch()
        ended = []
        for process in self._started:
            out, err = process.communicate(timeout=PATIENCE)
            assert process.returncode in {0, -signal.SIGKILL}, err
            ended.append((process.returncode, out))
        return ended


@pytest.fixture
def deploy(tmp_path: Path, django_db_blocker: DjangoDbBlocker) -> Iterator[Deploy]:
    with django_db_blocker.unblock(), ExitStack() as stack:
        made = Deploy(tmp_path, stack)
        if made.vendor != "sqlite":
            name = connections["default"].ops.quote_name(made.name)
            stack.callback(_on_server, f"DROP DATABASE IF EXISTS {name}")
            _on_server(f"DROP DATABASE IF EXISTS {name}")
            _on_server(f"CREATE DATABASE {name}")
        yield made


def _on_server(statement: str) -> None:
    with connections["default"]._nodb_cursor() as cursor:
        cursor.execute(statement)


RUNS_OF_EACH_LOCK = (
    "SELECT MAX(runs) FROM "
    "(SELECT COUNT(*) AS runs FROM shedlock_run GROUP BY name) AS of_lock"
)
TIMEOUT = "idle_in_transaction_session_timeout"
OURS = ("django_shedlock", "0001_initial")


@pytest.mark.servers_only
@pytest.mark.parametrize(
    ("command", "dependencies", "count"),
    [(MIGRATE, [], 8), (MIGRATE, [OURS], 8), (WRAPPED, [OURS], 4)],
    ids=["before our table", "after our table", "by the wrapper"],
)
def test_one_migrates(
    deploy: Deploy, command: list[str], dependencies: Any, count: int
) -> None:
    """The others wait, before and after the table is made, and find nothing to do."""
    deploy.prepare(dependencies=dependencies)
    deploy.start(count - 1, command)
    wait_for(deploy.begun)
    deploy.start(1, command)  # it may find the table that the first one has made
    deploy.wait_until_all_ask()
    assert len(deploy.begun()) == 1
    ended = deploy.go()
    assert len(deploy.begun()) == 1
    assert [status for status, _ in ended] == [0] * count
    assert sum("No migrations to apply" in out for _, out in ended) == count - 1
    # Those that find the table have a record again, and with it a history.
    # By the wrapper there are those of its own lock, and those of the command's.
    assert deploy.ask(RUNS_OF_EACH_LOCK) == count - 1


@pytest.mark.servers_only
@pytest.mark.parametrize("dependencies", [[], [OURS]], ids=["before", "after"])
def test_another_goes_on(deploy: Deploy, dependencies: Any) -> None:
    """If the one that migrates is killed, its database's lock goes with it."""
    deploy.prepare(dependencies=dependencies)
    deploy.start(3, MIGRATE)
    [first] = wait_for(deploy.begun)
    deploy.wait_until_all_ask()
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: len(deploy.begun()) == 2)
    ended = deploy.go()
    assert len(set(deploy.begun())) == 2
    assert sorted(status for status, _ in ended) == [-signal.SIGKILL, 0, 0]


@pytest.mark.sqlite_only
@pytest.mark.parametrize("command", [MIGRATE, WRAPPED], ids=["setting", "wrapper"])
def test_sqlite_is_migrated(deploy: Deploy, command: list[str]) -> None:
    """It has no lock that could stand in, and one machine."""
    deploy.prepare(dependencies=[])
    deploy.start(1, command)
    [(status, out)] = deploy.go()
    assert (status, "OK" in out, len(deploy.begun())) == (0, True, 1)


@pytest.mark.servers_only
@pytest.mark.django_db(transaction=True)
def test_table_that_comes_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the first look and the other lock: then the record decides."""
    looks = iter([False, True])
    monkeypatch.setattr(first_deploy, "has_table", lambda using: next(looks))
    with get_provider().stand_in("migrate") as is_ours:
        assert is_ours is None
    assert list(looks) == []


@pytest.mark.django_db(transaction=True)
def test_callers_transaction_is_left_alone() -> None:
    """A statement that finds no table would break it; nothing is asked."""
    with transaction.atomic(), CaptureQueriesContext(connections["default"]) as sent:
        with get_provider().stand_in("migrate") as is_ours:
            assert is_ours is None
    assert not any("shedlock" in query["sql"] for query in sent)


@pytest.mark.django_db(transaction=True)
def test_table_that_is_there() -> None:
    """Nothing stands in, unless another process still does."""
    with get_provider().stand_in("migrate") as is_ours:
        assert is_ours is None


@pytest.mark.servers_only
@pytest.mark.django_db(transaction=True)
def test_body_may_migrate_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process has what stands in, so it goes on, as inside any lock."""
    monkeypatch.setattr(first_deploy, "has_table", lambda using: False)
    request = make_request("migrate", {})
    with before_first_migrate(request) as outer, before_first_migrate(request) as inner:
        assert (outer, inner) == (True, True)


@pytest.mark.postgres_only
@pytest.mark.django_db(transaction=True)
def test_what_stands_in_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """No timeout of an idle transaction ends it, and it keeps no old snapshot."""
    given = f"-c {TIMEOUT}=60s"
    given += " -c default_transaction_isolation=serializable"
    options = connections["default"].settings_dict["OPTIONS"]
    monkeypatch.setitem(options, "options", given)
    monkeypatch.setattr(first_deploy, "has_table", lambda using: False)
    ask, told = first_deploy.ask, []

    def ask_and_tell(connection: Any, how: dict[str, str], name: str) -> bool:
        with connection.cursor() as cursor:
            for setting in (
                "idle_in_transaction_session_timeout",
                "transaction_isolation",
            ):
                cursor.execute(f"SHOW {setting}")
                told.append(cursor.fetchone()[0])
        return ask(connection, how, name)

    monkeypatch.setattr(first_deploy, "ask", ask_and_tell)
    with get_provider().stand_in("migrate") as is_ours:
        assert is_ours is True
    assert told == ["0", "read committed"]


def test_skip_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As any other: else a pod that skips prints nothing, and exits with 0."""
    stands_in = contextmanager(lambda name: iter([False]))
    monkeypatch.setattr(get_provider(), "stand_in", stands_in)
    caplog.set_level("INFO", "django_shedlock")
    with before_first_migrate(make_request("migrate", {})) as goes_on:
        assert goes_on is False
    assert "Lock 'migrate' not acquired: what stands in" in caplog.text
