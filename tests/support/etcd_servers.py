"""etcd servers of the tests: a single one, and a cluster of three."""

from __future__ import annotations

import os
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
import requests

from django_shedlock.providers.etcd import EtcdLockProvider
from tests.support.ports import free_port
from tests.support.standstills import ServerProcess
from tests.support.waiting import STARTUP_PATIENCE, wait_for

MISSING = "etcd is missing: install Debian's package etcd-server"
ROOT_PASSWORD = "of the tests"
FILLING = "of nobody"
FAST = ("--heartbeat-interval", "50", "--election-timeout", "500")
ETCD_VARIABLE = "SHEDLOCK_TEST_ETCD_URL"
PATIENT: dict[str, Any] = {"timeout": "4m"}
prefixes = (f"test {uuid4().hex}/" for _ in count())
"""Unique even across processes, which may share a server that outlives them."""
NEW_CERTIFICATE = (
    *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"),
    *("ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=tests"),
    *("-addext", "subjectAltName=IP:127.0.0.1"),
)


class ReachableEtcd:
    """A member that answers at a URL, whoever started it."""

    def __init__(self, url: str):
        self.url = url


class EtcdServer(ReachableEtcd, ServerProcess):
    """
    One member of the tests' own on loopback, that keeps its data in a folder.

    With a certificate it answers by TLS only. ``options`` are those of the program.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        tls: Certificate | None = None,
        options: Sequence[str] = (),
    ):
        self.port, self.peer_port = free_port(), free_port()
        self._folder, self._name, self._tls = folder, name, tls
        self._options = options
        super().__init__(f"{'https' if tls else 'http'}://127.0.0.1:{self.port}")

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
        if self._tls:
            command += ["--cert-file", self._tls.path, "--key-file", self._tls.key]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, **quiet)  # type: ignore[call-overload]

    def is_healthy(self) -> bool:
        """Return whether it answers, and has a leader."""
        with suppress(requests.RequestException):
            trusted = self._tls.path if self._tls else True
            found = requests.get(
                f"{self.url}/health", timeout=5, verify=trusted, cert=self._tls
            )
            return bool(found.json()["health"] == "true")
        return False

    def is_leader(self) -> bool:
        """Return whether it answers, and leads the others."""
        with suppress(requests.RequestException):
            url = f"{self.url}/v3/maintenance/status"
            status = requests.post(url, json={}, timeout=5).json()
            return bool(status["leader"] == status["header"]["member_id"])
        return False

    def require_login(
        self, user: str, password: str, prefix: str, right: str = "READWRITE"
    ) -> None:
        """Give this user the right to what begins so, and nobody else any."""
        begin, end = prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)
        keys = {"key": _base64(begin), "range_end": _base64(end), "permType": right}
        for path, request in (
            ("user/add", {"name": "root", "password": ROOT_PASSWORD}),
            ("role/add", {"name": "root"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("user/add", {"name": user, "password": password}),
            ("role/add", {"name": "locks"}),
            ("role/grant", {"name": "locks", "perm": keys}),
            ("user/grant", {"user": user, "role": "locks"}),
            ("enable", {}),
        ):
            self.ask(f"auth/{path}", request)

    def require_no_login(self) -> None:
        """Give everybody all rights again."""
        self._ask_as_root("auth/disable", {})

    def end_logins(self, user: str, password: str) -> None:
        """Give the user a password anew, which ends all logins."""
        self._ask_as_root("auth/user/changepw", {"name": user, "password": password})

    def fill(self) -> None:
        """Write until there is no room, so that etcd raises its alarm."""
        text = _base64("x" * 100_000)
        with pytest.raises(requests.HTTPError, match="429"):
            while True:
                self.ask("kv/put", {"key": _base64(FILLING), "value": text})

    def make_room(self) -> None:
        """Do what the page of etcd says."""
        filling = {"key": _base64(FILLING)}
        revision = self.ask("kv/deleterange", filling)["header"]["revision"]
        self.ask("kv/compaction", {"revision": revision, "physical": True})
        self.ask("maintenance/defragment", {})
        self.alarm("NOSPACE", "DEACTIVATE")

    def alarm(self, name: str, action: str) -> None:
        """Raise or end an alarm, with the action ``ACTIVATE`` or ``DEACTIVATE``."""
        member = self.ask("maintenance/status", {})["header"]["member_id"]
        alarm = {"alarm": name, "action": action, "memberID": member}
        self.ask("maintenance/alarm", alarm)

    def ask(
        self, path: str, request: dict[str, Any], headers: dict[str, str] | None = None
    ) -> Any:
        """Return its answer. Raise an error if it is one."""
        url = f"{self.url}/v3/{path}"
        answer = requests.post(
            url, json=request, headers=headers, timeout=STARTUP_PATIENCE
        )
        answer.raise_for_status()
        return answer.json()

    def _ask_as_root(self, path: str, request: dict[str, Any]) -> None:
        root = {"name": "root", "password": ROOT_PASSWORD}
        token = self.ask("auth/authenticate", root)["token"]
        self.ask(path, request, {"Authorization": token})


def needs_etcd() -> None:
    """Skip a test where the program is missing; in ``.ci/run`` a skip is a failure."""
    if shutil.which("etcd") is None:
        pytest.skip(MISSING)


def _base64(text: str) -> str:
    return b64encode(text.encode()).decode()


@contextmanager
def etcd_servers(
    folder: Path,
    count: int,
    tls: Certificate | None = None,
    options: Sequence[str] = (),
) -> Iterator[list[EtcdServer]]:
    """Run a cluster of so many members."""
    needs_etcd()
    servers = [
        EtcdServer(folder / f"m{n}", f"m{n}", tls, options) for n in range(count)
    ]
    with ExitStack() as ends:
        for server in servers:
            server.start(members_of(servers))
            ends.callback(server.end)
        for server in servers:
            wait_for(server.is_healthy, STARTUP_PATIENCE)
        yield servers


def members_of(servers: list[EtcdServer]) -> str:
    """Return the cluster as etcd's option wants it."""
    return ",".join(f"m{n}={server.peer_url}" for n, server in enumerate(servers))


@pytest.fixture(scope="session")
def running_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReachableEtcd]:
    """Return the server that the environment names, or one of the tests' own."""
    if url := os.environ.get(ETCD_VARIABLE):
        yield ReachableEtcd(url)
        return
    with etcd_servers(tmp_path_factory.mktemp("etcd"), 1) as [server]:
        yield server


@pytest.fixture
def locks(running_etcd: ReachableEtcd) -> Iterator[EtcdLockProvider]:
    provider = EtcdLockProvider(
        "default", endpoints=[running_etcd.url], prefix=next(prefixes), **PATIENT
    )
    yield provider
    provider.members.clients.close()


class Certificate(NamedTuple):
    """The paths of a certificate of 127.0.0.1, which signed itself, and of its key."""

    path: str
    key: str


def certificate(folder: Path, name: str) -> Certificate:
    """Make one; whoever is to trust it names it as its authority."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is missing: install Debian's package openssl")
    made = Certificate(str(folder / f"{name}.pem"), str(folder / f"{name}.key"))
    command = (*NEW_CERTIFICATE, "-out", made.path, "-keyout", made.key)
    subprocess.run(command, check=True, capture_output=True)
    return made
