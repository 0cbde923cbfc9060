"""ZooKeeper servers of the tests: a single one, and an ensemble of three."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from django_shedlock.providers.zookeeper import ZooKeeperLockProvider
from tests.support.ports import free_port
from tests.support.standstills import ServerProcess
from tests.support.waiting import STARTUP_PATIENCE, wait_for

JAR = Path("/usr/share/java/zookeeper.jar")
MISSING = f"{JAR} or java is missing: install Debian's package libzookeeper-java"
JAVA = (
    *("java", "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    *("-cp", str(JAR), "org.apache.zookeeper.server.quorum.QuorumPeerMain"),
)
SETTINGS = """
tickTime=200
initLimit=300
syncLimit=30
maxSessionTimeout=40000
maxClientCnxns=0
clientPortAddress=127.0.0.1
admin.enableServer=false
4lw.commands.whitelist=srvr
forceSync=no
enforceQuota=true
"""
"""Quick to elect a leader; its data need not outlive the machine."""
ZOOKEEPER_VARIABLE = "SHEDLOCK_TEST_ZOOKEEPER_HOSTS"
PATIENT: dict[str, Any] = {"timeout": "4m"}
paths = (f"test-{uuid4().hex}" for _ in count())
"""Unique even across processes, which may share a server that outlives them."""


class ReachableZooKeeper:
    """One or more members that answer at an address, whoever started them."""

    def __init__(self, address: str):
        self.address = address


class ZooKeeperServer(ReachableZooKeeper, ServerProcess):
    """
    One member of the tests' own on loopback, that keeps its data in a folder.

    Its clock is so many seconds ``ahead``, which needs libfaketime.
    """

    def __init__(self, folder: Path, number: int, ahead: int = 0):
        self.port = free_port()
        self._ahead = ahead
        super().__init__(f"127.0.0.1:{self.port}")
        self.among_servers = f"server.{number}=127.0.0.1:{free_port()}:{free_port()}"
        self._folder = folder
        folder.mkdir()
        (folder / "myid").write_text(str(number))

    def configure(self, *members: str) -> None:
        """Let these be the members, or none, for a single server."""
        place = f"dataDir={self._folder}\nclientPort={self.port}\n"
        settings = SETTINGS + place + "\n".join(members)
        (self._folder / "zoo.cfg").write_text(settings)

    def start(self) -> None:
        """Start it; it may wait for others before it answers."""
        self.process = subprocess.Popen(
            [*JAVA, str(self._folder / "zoo.cfg")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **(ahead_by(self._ahead) if self._ahead else {})},
        )

    def mode(self) -> str:
        """Return ``leader``, ``follower``, ``standalone``; or ``""`` if it is none."""
        with suppress(OSError):
            with socket.create_connection(("127.0.0.1", self.port), 5) as asking:
                asking.sendall(b"srvr")
                told = asking.makefile().read()
            return told.partition("Mode: ")[2].partition("\n")[0]
        return ""


def libfaketime() -> Path | None:
    """Return the library that changes a process's clock, if this host has it."""
    return next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)


def ahead_by(seconds: int) -> dict[str, str]:
    """Return the environment of a process whose wall clock is so many seconds ahead."""
    return {
        "LD_PRELOAD": str(libfaketime()),
        "FAKETIME": f"{seconds:+d}s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def needs_zookeeper() -> None:
    """Skip a test where it is missing; in ``.ci/run`` a skip is a failure."""
    if not JAR.exists() or shutil.which("java") is None:
        pytest.skip(MISSING)


@contextmanager
def zookeeper_servers(folder: Path, count: int) -> Iterator[list[ZooKeeperServer]]:
    """Run an ensemble of so many members."""
    needs_zookeeper()
    servers = [ZooKeeperServer(folder / f"m{n}", n) for n in range(1, count + 1)]
    members = [server.among_servers for server in servers if len(servers) > 1]
    with ExitStack() as ends:
        for server in servers:
            server.configure(*members)
            server.start()
            ends.callback(server.end)
        for server in servers:
            wait_for(server.mode, pause=0.05, timeout=STARTUP_PATIENCE)
        yield servers


@pytest.fixture(scope="session")
def own_zookeeper(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ZooKeeperServer]:
    """Return a server that this process has started, for tests that control it."""
    with zookeeper_servers(tmp_path_factory.mktemp("zookeeper"), 1) as [server]:
        yield server


@pytest.fixture(scope="session")
def running_zookeeper(request: pytest.FixtureRequest) -> ReachableZooKeeper:
    """Return the servers that the environment names, or one of the tests' own."""
    if hosts := os.environ.get(ZOOKEEPER_VARIABLE):
        return ReachableZooKeeper(hosts)
    server: ZooKeeperServer = request.getfixturevalue("own_zookeeper")
    return server


@pytest.fixture
def locks(running_zookeeper: ReachableZooKeeper) -> Iterator[ZooKeeperLockProvider]:
    with locks_on(running_zookeeper) as provider:
        yield provider


@contextmanager
def locks_on(server: ReachableZooKeeper) -> Iterator[ZooKeeperLockProvider]:
    options = {"hosts": server.address, "path": next(paths), **PATIENT}
    provider = ZooKeeperLockProvider("default", **options)
    yield provider
    provider.clients.close()
