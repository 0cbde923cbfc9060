"""Deploys: processes that migrate a new database at the same moment."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from django.db import connections
from django.db.utils import ConnectionHandler

from django_shedlock.sql.session_locks import session_lock
from tests.support.paths import ROOT
from tests.support.stores import SUFFIX_VARIABLE
from tests.support.waiting import STARTUP_PATIENCE

SESSIONS = {
    "postgresql": "SELECT pid FROM pg_stat_activity WHERE datname = %s",
    "mysql": "SELECT id FROM information_schema.processlist WHERE db = %s",
}
END_SESSION = {
    "postgresql": "SELECT pg_terminate_backend(%s)",
    "mysql": "KILL %s",
}


class Process:
    """A process of a deploy, and what it prints."""

    def __init__(
        self,
        command: list[str],
        folder: Path,
        output: Path,
        environment: dict[str, str],
    ):
        self._output = output
        with output.open("wb") as file:
            self.popen = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **environment},
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self._output.read_text()

    def kill(self) -> None:
        """Kill it, if it runs, and all that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()

    def end(self) -> int:
        """Wait for the end; return the status."""
        return self.popen.wait(STARTUP_PATIENCE)


class Deploy:
    """Processes of a project that migrate a new database."""

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
        self._address: dict[str, Any] = {}
        self._processes: list[Process] = []

    def prepare(self, files: dict[str, str], *, engine: str | None = None) -> None:
        """Write a project, whose settings are ``deploy_settings.py``."""
        given = connections["default"].settings_dict
        kept = ("ENGINE", "USER", "PASSWORD", "HOST", "PORT", "OPTIONS")
        address = {**{key: given[key] for key in kept}, "NAME": self.name}
        handler = ConnectionHandler({"default": dict(address)})
        self._address = handler.settings["default"]
        self._database = handler["default"]
        self._stack.callback(self._database.close)
        if engine is not None:
            address["ENGINE"] = engine
        for name, code in files.items():
            file = self.folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(code)
        with (self.folder / "deploy_settings.py").open("a") as settings:
            settings.write(f"DATABASES = {{'default': {address!r}}}\n")

    def start(self, command: list[str], **environment: str) -> Process:
        """Start a process."""
        output = self.folder / f"output {len(self._processes)}"
        environment = {
            "DJANGO_SETTINGS_MODULE": "deploy_settings",
            "PYTHONPATH": os.pathsep.join([str(self.folder), str(ROOT)]),
            **environment,
        }
        process = Process(command, self.folder, output, environment)
        self._processes.append(process)
        self._stack.callback(process.kill)
        return process

    def log(self) -> list[str]:
        """Return the lines that migrations have written into the file ``log``."""
        for process in self._processes:
            assert process.popen.poll() in {None, 0, -signal.SIGKILL}, process.output
        log = self.folder / "log"
        return log.read_text().splitlines() if log.exists() else []

    def sessions(self) -> set[int]:
        """Return the numbers of the connections to the database."""
        return {int(row[0]) for row in self.ask(SESSIONS[self.vendor], self.name)}

    def end_sessions(self, numbers: set[int]) -> None:
        """End these connections, as a proxy or a pooler may."""
        with self._database.cursor() as cursor:
            for number in numbers:
                cursor.execute(END_SESSION[self.vendor], [number])

    def holders(self) -> set[int]:
        """Return the numbers of the connections that hold the lock of ``migrate``."""
        connections.settings["deploy"] = self._address
        lock = session_lock("deploy", "migrate:default")
        assert lock is not None
        try:
            return lock.holders()
        finally:
            lock.close()
            del connections["deploy"], connections.settings["deploy"]

    def ask(self, query: str, *values: object) -> list[Any]:
        """Return the rows that the database answers."""
        with self._database.cursor() as cursor:
            cursor.execute(query, values)
            return list(cursor.fetchall())

    def do(self, statement: str) -> None:
        """Let the database carry out a statement."""
        with self._database.cursor() as cursor:
            cursor.execute(statement)

    def print_outputs(self) -> None:
        """Print what the processes have printed, for a test that fails."""
        for number, process in enumerate(self._processes):
            print(f"-- process {number}\n{process.output}")

    def go(self) -> None:
        """Let the migrations go on, which wait for the file ``go``."""
        (self.folder / "go").touch()


@contextmanager
def new_deploy(folder: Path) -> Iterator[Deploy]:
    """Give a deploy of a project in this folder, and a new database for it."""
    with ExitStack() as stack:
        deploy = Deploy(folder, stack)
        stack.callback(deploy.print_outputs)
        if deploy.vendor != "sqlite":
            name = connections["default"].ops.quote_name(deploy.name)
            stack.callback(_on_server, f"DROP DATABASE IF EXISTS {name}")
            _on_server(f"DROP DATABASE IF EXISTS {name}")
            _on_server(f"CREATE DATABASE {name}")
        yield deploy


def _on_server(statement: str) -> None:
    with connections["default"]._nodb_cursor() as cursor:
        cursor.execute(statement)
