"""The example project in processes of its own, on a new database."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from django.db import connections
from django.db.utils import ConnectionHandler
from pytest_django import DjangoDbBlocker

from tests.support.paths import MANAGE
from tests.support.stores import chosen_store
from tests.support.waiting import STARTUP_PATIENCE, wait_for

ENDED = "ended with status"
HOSTS = f"""
import importlib, json, os, sys, threading

import django
from django.core.management import call_command, execute_from_command_line
from django.db import connections

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example.settings")
django.setup()
for name in sys.argv[1:]:
    importlib.import_module(name)
call_command("migrate", verbosity=0)
connections.close_all()
alive, parents_end = os.pipe()
held_until_the_end = os.dup(2)

def end_with_parent():
    os.read(alive, 1)
    os._exit(0)

def become_host(log, code):
    os.close(parents_end)
    threading.Thread(target=end_with_parent, daemon=True).start()
    with open(log, "w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    try:
        exec(code, globals())
        print("{ENDED} 0", flush=True)
    except SystemExit as end:
        print("{ENDED}", end.code or 0, flush=True)

for line in sys.stdin:
    if os.fork() == 0:
        become_host(**json.loads(line))
        sys.exit()
os._exit(0)
"""
"""Migrates; then each line of its input is for a process that is forked from it."""


@dataclass(frozen=True)
class Database:
    """A new database of the store under test."""

    variables: dict[str, str]
    """What the example project finds it by, in the environment."""
    settings: dict[str, Any]
    blocker: DjangoDbBlocker

    def end_lease(self, name: str) -> None:
        """Let the lease be over, as if its time had passed."""
        self._ask("UPDATE shedlock SET lock_until = locked_at WHERE name = %s", name)

    def runs(self, job: str) -> int:
        """Return how often the job's body ran to its end, by the project's ledger."""
        query = "SELECT COUNT(*) FROM example_jobrun WHERE job = %s"
        [[count]] = self._ask(f"{query} AND ended_at IS NOT NULL", job)
        return int(count)

    def _ask(self, statement: str, name: str) -> list[tuple[Any, ...]]:
        connection = ConnectionHandler({"default": self.settings})["default"]
        with self.blocker.unblock(), connection.cursor() as cursor:
            cursor.execute(statement, [name])
            rows = cursor.fetchall() if cursor.description else []
            connection.close()
        return rows


@contextmanager
def new_database(folder: Path, blocker: DjangoDbBlocker) -> Iterator[Database]:
    """Make a database, and drop it in the end."""
    if chosen_store() != "postgres":
        file = str(folder / "example.sqlite3")
        settings: dict[str, Any] = {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": file,
            "OPTIONS": {"timeout": STARTUP_PATIENCE},
        }
        yield Database({"SHEDLOCK_EXAMPLE_FILE": file}, settings, blocker)
        return
    name = f"shedlock_example_{uuid4().hex}"
    settings = {**connections["default"].settings_dict, "NAME": name}
    with blocker.unblock():
        _on_server(f"CREATE DATABASE {name}")
    try:
        yield Database(
            {"SHEDLOCK_EXAMPLE_DATABASE_URL": _postgres_url(settings)},
            settings,
            blocker,
        )
    finally:
        with blocker.unblock():
            # Not by FORCE: only a superuser may end the server's own workers.
            _on_server(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                f"WHERE datname = '{name}' AND usename = current_user"
            )
            _on_server(f"DROP DATABASE {name}")


def _on_server(statement: str) -> None:
    with connections["default"]._nodb_cursor() as cursor:
        cursor.execute(statement)


def _postgres_url(settings: dict[str, Any]) -> str:
    user, password, host = (
        quote(settings[part], safe="") for part in ("USER", "PASSWORD", "HOST")
    )
    port = settings["PORT"] or 5432
    return f"postgres://{user}:{password}@:{port}/{settings['NAME']}?host={host}"


def environment(*folders: Path, **variables: str) -> dict[str, str]:
    """Return the environment of a process that imports from these folders first."""
    ours = {"DJANGO_SETTINGS_MODULE", "SHEDLOCK_EXAMPLE_DATABASE_URL", "SHEDLOCK_OFF"}
    inherited = {k: v for k, v in os.environ.items() if k not in ours}
    path = [*map(str, folders), str(MANAGE.parent), os.environ.get("PYTHONPATH", "")]
    return {
        **inherited,
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        **variables,
    }


def manage(*args: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run ``manage.py`` as a user does."""
    return subprocess.run(
        [sys.executable, str(MANAGE), *args],
        env=environment,
        capture_output=True,
        text=True,
        timeout=STARTUP_PATIENCE,
        check=False,
    )


class Host:
    """A process of the project."""

    def __init__(self, log: Path):
        self._log = log

    @property
    def output(self) -> str:
        """What it has printed so far, errors among it, and last its exit status."""
        return self._log.read_text() if self._log.exists() else ""

    def ended(self) -> str:
        """Wait for its end; return what it printed. Fail unless its status is 0."""
        output = wait_for(self._whole_output, STARTUP_PATIENCE)
        printed, _, status = output.rpartition(ENDED)
        assert status == " 0\n", output
        return str(printed)

    def _whole_output(self) -> str:
        # The line with the status may come in two pieces.
        output = self.output
        return output if ENDED in output and output.endswith("\n") else ""


class Hosts:
    """
    Processes that are forked from one: it has migrated, and imported the modules.

    They end with the tests, however those end.
    """

    def __init__(self, folder: Path, *modules: str, environment: dict[str, str]):
        self._folder = folder
        self._count = 0
        self._parent = subprocess.Popen(
            [sys.executable, "-c", HOSTS, *modules],
            env=environment,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def start(self, code: str) -> Host:
        """Run this code in one more process."""
        self._count += 1
        log = self._folder / f"host-{self._count}.log"
        assert self._parent.stdin
        self._parent.stdin.write(json.dumps({"log": str(log), "code": code}) + "\n")
        self._parent.stdin.flush()
        return Host(log)

    def manage(self, *args: str) -> Host:
        """Run ``manage.py`` in one more process."""
        return self.start(f"execute_from_command_line({['manage.py', *args]!r})")

    def close(self) -> None:
        """End all of them."""
        self._parent.kill()
        # Each has a copy of this pipe: all have ended when it is closed.
        _, errors = self._parent.communicate(timeout=STARTUP_PATIENCE)
        sys.stderr.write(errors)
