"""
A primary and a replica, which confirm a commit once both have it.

Clients reach the primary by a symbolic link to its Unix socket. A fail-over changes the
link, as it changes a name in a real network.
"""

from __future__ import annotations

import shutil
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from django.db import OperationalError, connections

from tests.support.guardian import guarded_folder, remove
from tests.support.ports import free_port
from tests.support.replicas import PostgresPair
from tests.support.servers import DatabaseServer, MariaDB, migrated, needs_server
from tests.support.waiting import STARTUP_PATIENCE, wait_for


class Pair(DatabaseServer):
    """The primary of two servers; what is done to it is not done to its replica."""

    def __init__(self, folder: Path):
        self._link = folder / "primary"

    def address(self) -> str:
        return str(self._link)

    @abstractmethod
    def promote(self) -> None:
        """
        Crash the primary, let the replica take its place, and build a new replica.

        The replica has to be in step before, as for any manager of fail-overs.
        """

    @abstractmethod
    def replica_process(self) -> int:
        """Return the number of the replica's main process."""

    def replica_processes(self) -> list[psutil.Process]:
        """Return the replica's processes, that which started them first."""
        main = psutil.Process(self.replica_process())
        return [main, *main.children(recursive=True)]

    @abstractmethod
    def end(self) -> None:
        """End both servers."""

    def lead_clients(self, socket: Path) -> None:
        """Let new connections lead to this socket."""
        changed = self._link.with_name("changed")
        changed.symlink_to(socket)
        changed.replace(self._link)


class SynchronousPostgres(Pair):
    """A pair with synchronous replication: no fail-over loses a durable commit."""

    def __init__(self, folder: Path):
        super().__init__(folder)
        self._pair = PostgresPair(folder, synchronous=True)
        self.lead_clients(self._pair.primary.socket())

    def start(self) -> None:
        self._pair.primary.start()

    def stop(self) -> None:
        self._pair.primary.stop()

    def main_process(self) -> int:
        return self._pair.primary.main_process()

    def replica_process(self) -> int:
        return self._pair.replica.main_process()

    def settings(self) -> dict[str, Any]:
        return {**self._pair.settings(), "PORT": str(self._pair.primary.port)}

    def promote(self) -> None:
        self._pair.wait_until_in_step()
        self._pair.promote(crash=True)
        self.lead_clients(self._pair.primary.socket())
        self._pair.follow()

    def end(self) -> None:
        self._pair.stop()


NEVER_MILLISECONDS = 10**9
"""So long a primary waits for its replica before it goes on without: 11 days."""


class ReplicatedMariaDB(MariaDB):
    """One of two servers; which one is the primary is said at its start."""

    def __init__(self, folder: Path, number: int):
        folder.mkdir()
        self.port = free_port()
        self.is_primary = False
        self._number = number
        super().__init__(folder)

    @property
    def options(self) -> tuple[str, ...]:  # type: ignore[override]
        """Replicate by GTID; as a primary, answer once the replica has a commit."""
        return (
            "--bind-address=127.0.0.1",
            f"--port={self.port}",
            f"--server-id={self._number}",
            "--log-bin=changes",
            "--relay-log=received",
            "--log-slave-updates",
            "--innodb-log-file-size=16M",  # it is copied
            "--rpl-semi-sync-slave-enabled=1",
            f"--rpl-semi-sync-master-enabled={int(self.is_primary)}",
            "--rpl-semi-sync-master-wait-point=AFTER_SYNC",
            f"--rpl-semi-sync-master-timeout={NEVER_MILLISECONDS}",
        )

    def start(self) -> None:
        super().start()
        wait_for(self.is_answering, pause=0.05, timeout=STARTUP_PATIENCE)

    def is_answering(self) -> bool:
        """Return whether it can be reached."""
        with suppress(OperationalError):
            return bool(self.execute("SELECT 1"))
        return False

    def execute(self, statement: str) -> list[dict[str, Any]]:
        """Return what the server answers to a statement, by no code under test."""
        direct = connections["default"].copy()
        direct.settings_dict.update(self.settings())
        try:
            with direct.cursor() as cursor:
                cursor.execute(statement)
                names = [column[0] for column in cursor.description or ()]
                return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        finally:
            direct.close()

    def be_primary(self) -> None:
        """From now on, confirm a commit once the replica has it."""
        self.is_primary = True
        self.execute("SET GLOBAL rpl_semi_sync_master_enabled = 1")

    def copy(self, primary: ReplicatedMariaDB) -> None:
        """Begin anew from a primary that is stopped in order; both must not run."""
        shutil.rmtree(self._data)
        shutil.copytree(primary._data, self._data)
        owner = primary._data.stat()
        for path in (self._data, *self._data.rglob("*")):
            shutil.chown(path, owner.st_uid, owner.st_gid)
        self.is_primary = False

    def follow(self, primary: ReplicatedMariaDB) -> None:
        """Follow the primary, of which this is a copy."""
        [position] = self.execute("SELECT @@gtid_binlog_pos AS gtid")
        self.execute(f"SET GLOBAL gtid_slave_pos = '{position['gtid']}'")
        self.execute(
            f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {primary.port},"
            " MASTER_USER = 'root', MASTER_CONNECT_RETRY = 1,"
            " MASTER_USE_GTID = slave_pos"
        )
        self.execute("START SLAVE")

    def wait_for_position(self, position: str) -> None:
        """Wait until it has carried out all up to this position."""
        limit = f"SELECT MASTER_GTID_WAIT('{position}', {STARTUP_PATIENCE}) AS status"
        [answer] = self.execute(limit)
        assert answer["status"] == 0, f"the replica did not reach {position}"

    def leave_primary(self) -> None:
        """Carry out all that came from the primary, and follow it no more."""
        self.execute("STOP SLAVE IO_THREAD")
        [status] = self.execute("SHOW SLAVE STATUS")
        self.wait_for_position(status["Gtid_IO_Pos"])
        self.execute("STOP SLAVE")
        self.execute("RESET SLAVE ALL")


class SemiSynchronousMariaDB(Pair):
    """
    A pair with semi-synchronous replication that never goes on without the replica.

    With ``AFTER_SYNC`` nobody sees a commit before the replica has it.
    """

    def __init__(self, folder: Path):
        super().__init__(folder)
        folder.chmod(0o755)
        self._primary = ReplicatedMariaDB(folder / "one", 1)
        self._replica = ReplicatedMariaDB(folder / "two", 2)
        self._primary.execute("CREATE DATABASE IF NOT EXISTS test")
        self._replica.stop()
        self._rebuild_replica()

    def start(self) -> None:
        self._primary.start()

    def stop(self) -> None:
        self._primary.stop()

    def crash(self) -> None:
        self._primary.crash()

    def main_process(self) -> int:
        return self._primary.main_process()

    def replica_process(self) -> int:
        return self._replica.main_process()

    def settings(self) -> dict[str, Any]:
        return self._primary.settings()

    def promote(self) -> None:
        wait_for(self._has_replica, STARTUP_PATIENCE)
        [position] = self._primary.execute("SELECT @@gtid_binlog_pos AS gtid")
        self._replica.wait_for_position(position["gtid"])
        self._primary.crash()
        self._link.unlink()  # else it led to the new replica
        self._primary, self._replica = self._replica, self._primary
        self._primary.leave_primary()
        self._rebuild_replica()

    def end(self) -> None:
        for server in (self._replica, self._primary):
            with suppress(psutil.NoSuchProcess):  # it does not run
                server.crash()

    def _rebuild_replica(self) -> None:
        # Nobody is led to the new primary before it has a replica.
        self._primary.stop()
        self._replica.copy(self._primary)
        self._primary.start()
        self._replica.start()
        self._replica.follow(self._primary)
        self._primary.be_primary()
        wait_for(self._has_replica, STARTUP_PATIENCE)
        self.lead_clients(Path(self._primary.address()))

    def _has_replica(self) -> bool:
        status = "SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_master_%'"
        values = {
            row["Variable_name"].removeprefix("Rpl_semi_sync_master_"): row["Value"]
            for row in self._primary.execute(status)
        }
        return values["status"] == "ON" and int(values["clients"]) > 0


PAIRS: dict[str, type[Pair]] = {
    "postgres": SynchronousPostgres,
    "mariadb": SemiSynchronousMariaDB,
}


@contextmanager
def own_pair(store: str) -> Iterator[Pair]:
    """Run a pair with our tables; use its primary as ``default``."""
    needs_server()
    folder = guarded_folder("shedlock_pair_")
    pair = PAIRS[store](folder)
    try:
        with migrated(pair.settings()):
            yield pair
    finally:
        pair.end()
        remove(folder)
