"""The server of a soak: that of a database, or one that keeps nothing but locks."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

import psutil
from django.core.management import call_command
from django.test import override_settings

from benchmarks.soak.pairs import own_pair
from tests.support.etcd_servers import EtcdServer, members_of, needs_etcd
from tests.support.guardian import guarded_folder, remove
from tests.support.redis_servers import RedisServer, needs_redis
from tests.support.servers import SERVERS, Server, own_server
from tests.support.standstills import ServerProcess
from tests.support.waiting import STARTUP_PATIENCE, wait_for
from tests.support.zookeeper_servers import (
    ZooKeeperServer,
    libfaketime,
    needs_zookeeper,
)

STORES = ("postgres", "mariadb", "redis", "etcd", "zookeeper")

MEMBER_COUNT = 3
CLOCKS_APART_SECONDS = 5
"""So far apart the members' clocks may be, as workers know it."""
AHEAD_SECONDS = 4
"""So far ahead the clock of one member is."""

Member = TypeVar("Member", bound=ServerProcess)


class LockServer(Server, Generic[Member]):
    """
    A lock server that has each change on disk before it confirms it.

    So a crash of the server loses no lock.
    """

    members: Sequence[Member]
    """Its processes; a single server has one."""

    @abstractmethod
    def provider(self, ports: Sequence[int]) -> dict[str, Any]:
        """Return its entry in ``SHEDLOCK_PROVIDERS``, by the ports that reach it."""

    def addresses(self) -> list[int]:
        return [member.port for member in self.members]

    def processes(self) -> list[psutil.Process]:
        return [psutil.Process(member.process.pid) for member in self.members]

    def stop(self) -> None:
        for member in self.members:
            member.process.terminate()
        for member in self.members:
            member.process.wait(STARTUP_PATIENCE)

    def crash(self) -> None:
        for member in self.members:
            member.process.kill()
        for member in self.members:
            member.process.wait(STARTUP_PATIENCE)


class Redis(LockServer[RedisServer]):
    """The Redis of Debian, with each change on disk before it is confirmed."""

    def __init__(self, folder: Path):
        needs_redis()
        # Its own title would not name the folder, by which the guardian finds it.
        durable = ("--appendonly", "yes", "--appendfsync", "always")
        self.members = [RedisServer(folder, *durable, "--set-proc-title", "no")]

    def start(self) -> None:
        self.members[0].start()

    def provider(self, ports: Sequence[int]) -> dict[str, Any]:
        backend = "django_shedlock.providers.redis.RedisLockProvider"
        return {
            "BACKEND": backend,
            "OPTIONS": {"url": f"redis://127.0.0.1:{ports[0]}/0"},
        }


class Cluster(LockServer[Member]):
    """Three members, of which two have what is confirmed: it outlives any one."""

    def start(self) -> None:
        for member in self.members:
            self.start_member(member)
        for member in self.members:
            wait_for(
                lambda m=member: self.is_healthy(m),
                pause=0.05,
                timeout=STARTUP_PATIENCE,
            )

    def restart_member(self, member: Member) -> None:
        """Start a member that has ended, and wait until it is one again."""
        self.start_member(member)
        wait_for(lambda: self.is_healthy(member), pause=0.05, timeout=STARTUP_PATIENCE)

    def leader(self) -> Member:
        """Return the member that leads the others, as soon as one does."""
        leader: Member = wait_for(self._leader, pause=0.05, timeout=STARTUP_PATIENCE)
        return leader

    def _leader(self) -> Member | None:
        return next((each for each in self.members if self.is_leader(each)), None)

    @abstractmethod
    def start_member(self, member: Member) -> None:
        """Start a member; it may wait for others before it answers."""

    @abstractmethod
    def is_healthy(self, member: Member) -> bool:
        """Return whether a member answers, and knows a leader."""

    @abstractmethod
    def is_leader(self, member: Member) -> bool:
        """Return whether a member leads the others."""


class Etcd(Cluster[EtcdServer]):
    """Three members of etcd."""

    def __init__(self, folder: Path):
        needs_etcd()
        numbers = range(MEMBER_COUNT)
        self.members = [EtcdServer(folder / f"m{n}", f"m{n}") for n in numbers]
        self.start()

    def start_member(self, member: EtcdServer) -> None:
        member.start(members_of(self.members))

    def is_healthy(self, member: EtcdServer) -> bool:
        return member.is_healthy()

    def is_leader(self, member: EtcdServer) -> bool:
        return member.is_leader()

    def provider(self, ports: Sequence[int]) -> dict[str, Any]:
        backend = "django_shedlock.providers.etcd.EtcdLockProvider"
        endpoints = [f"http://127.0.0.1:{port}" for port in ports]
        return {"BACKEND": backend, "OPTIONS": {"endpoints": endpoints}}


class ZooKeeper(Cluster[ZooKeeperServer]):
    """Three members of ZooKeeper. With libfaketime, the clock of the last is ahead."""

    def __init__(self, folder: Path):
        needs_zookeeper()
        ahead = AHEAD_SECONDS if libfaketime() else 0
        if not ahead:
            print("libfaketime is missing: all clocks are the same", file=sys.stderr)
        self.members = [
            ZooKeeperServer(folder / f"m{n}", n, ahead if n == MEMBER_COUNT else 0)
            for n in range(1, MEMBER_COUNT + 1)
        ]
        for member in self.members:
            member.configure(*(each.among_servers for each in self.members))
        self.start()

    def start_member(self, member: ZooKeeperServer) -> None:
        member.start()

    def is_healthy(self, member: ZooKeeperServer) -> bool:
        return bool(member.mode())

    def is_leader(self, member: ZooKeeperServer) -> bool:
        return member.mode() == "leader"

    def provider(self, ports: Sequence[int]) -> dict[str, Any]:
        backend = "django_shedlock.providers.zookeeper.ZooKeeperLockProvider"
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        apart = f"{CLOCKS_APART_SECONDS}s"
        return {"BACKEND": backend, "OPTIONS": {"hosts": hosts, "clocks_apart": apart}}


LOCK_SERVERS: dict[str, Callable[[Path], LockServer[Any]]] = {
    "redis": Redis,
    "etcd": Etcd,
    "zookeeper": ZooKeeper,
}
QUICK_LOCK_SERVERS = ("redis", "etcd")
"""Those that start in a second, and so have tests of their own; Java takes longer."""


@contextmanager
def own_lock_server(store: str) -> Iterator[LockServer[Any]]:
    """Run a server of locks; let this process keep its locks there."""
    folder = guarded_folder("shedlock_server_")
    try:
        server = LOCK_SERVERS[store](folder)
        try:
            with override_settings(
                SHEDLOCK_PROVIDERS={"default": server.provider(server.addresses())}
            ):
                yield server
        finally:
            server.crash()
    finally:
        remove(folder)


def use_provider(provider: dict[str, Any] | None) -> None:
    """Let this process keep its locks there for good, if it is anywhere."""
    if provider is not None:
        override_settings(SHEDLOCK_PROVIDERS={"default": provider}).enable()


@contextmanager
def soaked(store: str, *, replica: bool = False) -> Iterator[Server]:
    """Run the store's server, perhaps with a replica; have tables in ``default``."""
    if replica:
        with own_pair(store) as pair:
            yield pair
    elif store in SERVERS:
        with own_server() as server:
            yield server
    else:
        call_command("migrate", run_syncdb=True, verbosity=0)
        with own_lock_server(store) as server:
            yield server
