"""Database servers of the tests' own, which may be stopped and started again."""

from __future__ import annotations

import os
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.core.management import call_command
from django.db import OperationalError, connections

from tests.support.guardian import guarded_folder, remove
from tests.support.stores import chosen_store, parse_url, start_postgres
from tests.support.waiting import STARTUP_PATIENCE, wait_for


class Server(ABC):
    """A server with nobody else's data."""

    @abstractmethod
    def start(self) -> None:
        """Start it."""

    @abstractmethod
    def stop(self) -> None:
        """Stop it: connections break, and none can be made."""

    @abstractmethod
    def crash(self) -> None:
        """Kill it, and wait until all of it is gone."""

    @abstractmethod
    def processes(self) -> list[psutil.Process]:
        """Return its processes."""

    @abstractmethod
    def addresses(self) -> Sequence[str | int]:
        """Return the path of its Unix socket, or the port of each member."""


class DatabaseServer(Server):
    """A database server that a test may stop and start again."""

    @abstractmethod
    def main_process(self) -> int:
        """Return the number of the process that started all others of it."""

    @abstractmethod
    def address(self) -> str:
        """Return the path of its Unix socket."""

    def addresses(self) -> list[str]:
        return [self.address()]

    def processes(self) -> list[psutil.Process]:
        """Return its processes, that which started them first."""
        main = psutil.Process(self.main_process())
        return [main, *main.children(recursive=True)]

    def crash(self) -> None:
        processes = self.processes()
        processes[0].kill()
        # PostgreSQL's others notice it by themselves.
        for other in psutil.wait_procs(processes, timeout=STARTUP_PATIENCE)[1]:
            other.kill()

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return its part of ``DATABASES``."""


class Postgres(DatabaseServer):
    """The PostgreSQL that comes as a wheel."""

    def __init__(self, folder: Path):
        self._server = start_postgres(folder)

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    def main_process(self) -> int:
        return int(self._server.get_pid())

    def address(self) -> str:
        settings = self.settings()
        return f"{settings['HOST']}/.s.PGSQL.{settings['PORT'] or 5432}"

    def settings(self) -> dict[str, Any]:
        engine = "django.db.backends.postgresql"
        return {**parse_url(self._server.get_uri()), "ENGINE": engine}


class MariaDB(DatabaseServer):
    """The MariaDB that is installed on this host, on a socket that nobody else has."""

    options: tuple[str, ...] = ("--skip-networking",)
    """What each start of it adds."""

    def __init__(self, folder: Path):
        folder.chmod(0o755)
        self._data = folder / "data"
        # A server that starts deletes the temporary tables of all that share /tmp.
        temporary = folder / "tmp"
        temporary.mkdir()
        temporary.chmod(0o1777)
        files = [f"--datadir={self._data}", f"--tmpdir={temporary}"]
        self._files = ["--no-defaults", *files]
        if os.getuid() == 0:
            self._files.append("--user=mysql")
        self.create()
        self.start()

    def create(self) -> None:
        """Make an empty one."""
        login = "--auth-root-authentication-method=normal"
        install = ["mariadb-install-db", *self._files, login]
        subprocess.run(install, check=True, capture_output=True)

    def start(self) -> None:
        program = shutil.which("mariadbd") or "/usr/sbin/mariadbd"
        # As on the wheel's PostgreSQL: its data need not outlive the machine.
        unsafe = ["--innodb-flush-log-at-trx-commit=2", "--innodb-flush-method=nosync"]
        files = [f"--socket={self._data}/socket", f"--pid-file={self._data}/pid"]
        self._process = subprocess.Popen(
            [program, *self._files, *self.options, *unsafe, *files],
            stderr=subprocess.DEVNULL,
        )

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(STARTUP_PATIENCE)

    def main_process(self) -> int:
        return self._process.pid

    def address(self) -> str:
        return f"{self._data}/socket"

    def crash(self) -> None:
        super().crash()
        self._process.wait(STARTUP_PATIENCE)

    def settings(self) -> dict[str, Any]:
        url = f"mysql://root@/test?host={self._data}/socket"
        return {**parse_url(url), "ENGINE": "django.db.backends.mysql"}


SERVERS: dict[str, Callable[[Path], DatabaseServer]] = {
    "postgres": Postgres,
    "mariadb": MariaDB,
}


def needs_server() -> None:
    """Skip a test if this host can't run a server like the one under test."""
    if chosen_store() == "mariadb" and not shutil.which("mariadb-install-db"):
        pytest.skip("the server of MariaDB is not installed on this host")


@contextmanager
def own_server() -> Iterator[DatabaseServer]:
    """Run a server like the one under test, with tables; use it as ``default``."""
    needs_server()
    folder = guarded_folder("shedlock_server_")
    before = connections["default"].settings_dict.copy()
    connections["default"].close()
    server = SERVERS[chosen_store()](folder)
    try:
        use(server.settings())
        wait_for(answers, pause=0.05, timeout=STARTUP_PATIENCE)
        call_command("migrate", run_syncdb=True, verbosity=0)
        yield server
    finally:
        connections["default"].close()
        connections["default"].settings_dict.update(before)
        server.stop()
        remove(folder)


@contextmanager
def migrated(settings: dict[str, Any]) -> Iterator[None]:
    """Let ``default`` lead to the database of these settings, with our tables."""
    before = connections["default"].settings_dict.copy()
    try:
        use(settings)
        call_command("migrate", run_syncdb=True, verbosity=0)
        yield
    finally:
        use(before)


def use(settings: dict[str, Any]) -> None:
    """Let this process's ``default`` be the database of these settings."""
    connections["default"].close()
    connections["default"].settings_dict.update(settings)


def answers() -> bool:
    """Return whether ``default`` can be reached."""
    try:
        connections["default"].ensure_connection()
    except OperationalError:
        return False
    return True
