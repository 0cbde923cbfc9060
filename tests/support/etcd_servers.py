"""etcd servers of the tests' own: a single one, and a cluster of three."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
import requests

from tests.support.redis_servers import free_port
from tests.support.standstills import stopped
from tests.support.waiting import PATIENCE, wait_for

MISSING = "etcd is missing: install Debian's package etcd-server"
FAST = ("--heartbeat-interval", "50", "--election-timeout", "500")


class EtcdServer:
    """One member on loopback, that keeps its data in a folder."""

    def __init__(self, folder: Path, name: str, *options: str):
        self.port, self.peer_port = free_port(), free_port()
        self._folder, self._name, self._options = folder, name, options

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def peer_url(self) -> str:
        return f"http://127.0.0.1:{self.peer_port}"

    def start(self, members: str) -> None:
        """Start it; it may wait for others before it answers."""
        command = ["etcd", "--name", self._name, "--data-dir", str(self._folder), *FAST]
        for kind, url in (("client", self.url), ("peer", self.peer_url)):
            advertise = "advertise-client" if kind == "client" else "initial-advertise"
            tail = "urls" if kind == "client" else "peer-urls"
            command += [f"--listen-{kind}-urls", url, f"--{advertise}-{tail}", url]
        command += ["--initial-cluster", members, *self._options]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, **quiet)  # type: ignore[call-overload]

    def is_healthy(self) -> bool:
        """Return whether it answers, and has a leader."""
        with suppress(requests.RequestException):
            found = requests.get(f"{self.url}/health", timeout=5).json()
            return bool(found["health"] == "true")
        return False

    def end(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait(PATIENCE)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let it do nothing, as a host that hangs."""
        with stopped(self.process):
            yield


def needs_etcd() -> None:
    """Skip a test where the program is missing; in ``.ci/run`` a skip is a failure."""
    if shutil.which("etcd") is None:
        pytest.skip(MISSING)


@contextmanager
def etcd_servers(folder: Path, count: int) -> Iterator[list[EtcdServer]]:
    """Run a cluster of so many members."""
    needs_etcd()
    servers = [EtcdServer(folder / f"m{n}", f"m{n}") for n in range(count)]
    with ExitStack() as ends:
        for server in servers:
            server.start(members_of(servers))
            ends.callback(server.end)
        for server in servers:
            wait_for(server.is_healthy)
        yield servers


def members_of(servers: list[EtcdServer]) -> str:
    """Return the cluster as etcd's option wants it."""
    return ",".join(f"m{n}={server.peer_url}" for n, server in enumerate(servers))
