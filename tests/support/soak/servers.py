"""The server of a soak: that of a database, or one that keeps nothing but locks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

from django.core.management import call_command
from django.test import override_settings

from tests.support.etcd_servers import EtcdServer, members_of, needs_etcd
from tests.support.guardian import guarded_folder, remove
from tests.support.redis_servers import RedisServer, needs_redis
from tests.support.servers import SERVERS, Server, own_server
from tests.support.soak.pairs import own_pair
from tests.support.waiting import PATIENCE, wait_for

STORES = ("postgres", "mariadb", "redis", "etcd")


class LockServer(Server):
    """It has on disk what it has confirmed, so a crash of it loses no lock."""

    @abstractmethod
    def process(self) -> Popen[bytes]:
        """Return its only process."""

    @abstractmethod
    def address(self) -> int:
        """Return its port."""

    @abstractmethod
    def provider(self, port: int) -> dict[str, Any]:
        """Return its entry in ``SHEDLOCK_PROVIDERS``, by the port that reaches it."""

    def main_process(self) -> int:
        return self.process().pid

    def stop(self) -> None:
        self.process().terminate()
        self.process().wait(PATIENCE)

    def crash(self) -> None:
        self.process().kill()
        self.process().wait(PATIENCE)


class Redis(LockServer):
    """The Redis of Debian, with each change on disk before it is confirmed."""

    def __init__(self, folder: Path):
        needs_redis()
        # Its own title would not name the folder, by which the guardian finds it.
        durable = ("--appendonly", "yes", "--appendfsync", "always")
        self._server = RedisServer(folder, *durable, "--set-proc-title", "no")

    def start(self) -> None:
        self._server.start()

    def process(self) -> Popen[bytes]:
        return self._server.process

    def address(self) -> int:
        return self._server.port

    def provider(self, port: int) -> dict[str, Any]:
        backend = "django_shedlock.providers.redis.RedisLockProvider"
        return {"BACKEND": backend, "OPTIONS": {"url": f"redis://127.0.0.1:{port}/0"}}


class Etcd(LockServer):
    """One member of etcd, which has no other."""

    def __init__(self, folder: Path):
        needs_etcd()
        self._server = EtcdServer(folder / "data", "m0")
        self.start()

    def start(self) -> None:
        self._server.start(members_of([self._server]))
        wait_for(self._server.is_healthy)

    def process(self) -> Popen[bytes]:
        return self._server.process

    def address(self) -> int:
        return self._server.port

    def provider(self, port: int) -> dict[str, Any]:
        backend = "django_shedlock.providers.etcd.EtcdLockProvider"
        return {
            "BACKEND": backend,
            "OPTIONS": {"endpoints": f"http://127.0.0.1:{port}"},
        }


LOCK_SERVERS: dict[str, type[LockServer]] = {"redis": Redis, "etcd": Etcd}


@contextmanager
def own_lock_server(store: str) -> Iterator[LockServer]:
    """Run a server of locks; let this process keep its locks there."""
    folder = guarded_folder("shedlock_server_")
    try:
        server = LOCK_SERVERS[store](folder)
        try:
            with override_settings(
                SHEDLOCK_PROVIDERS={"default": server.provider(server.address())}
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
