"""What ZooKeeper does that is full, refuses a user, or is not where it should be."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kazoo.security import READ_ACL_UNSAFE, make_digest_acl

from django_shedlock.providers.zookeeper import ZooKeeperLockProvider
from tests.support.locks import configure, take
from tests.support.store_states import StoreStates
from tests.support.zookeeper_servers import PATIENT, ReachableZooKeeper, paths

LOGIN: dict[str, Any] = {
    "auth_data": [("digest", "bob:of the tests")],
    "default_acl": [
        make_digest_acl("bob", "of the tests", all=True),
        *READ_ACL_UNSAFE,
    ],
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
class TestStates(StoreStates):
    """
    It is full if its quota is used up; a member whose disk is full ends itself.

    Only the tests' own server has a quota that is enforced.
    """

    store = "ZooKeeper"
    full_fix = "Raise the quota of its nodes"
    forbidden_fix = "Its user needs the rights"

    @pytest.fixture
    def locks(self, own_zookeeper: ReachableZooKeeper) -> Iterator[Any]:
        options = {"hosts": own_zookeeper.address, "path": next(paths), **PATIENT}
        provider = ZooKeeperLockProvider("default", **options, **LOGIN)
        take(configure("first"), provider).release()
        yield provider
        provider.clients.close()

    @contextmanager
    def full(self, locks: Any) -> Iterator[None]:
        client = locks.clients.get().client
        quota = f"/zookeeper/quota{locks.root}"
        limits = b"count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=3"
        client.create(f"{quota}/zookeeper_stats", b"count=99,bytes=0", makepath=True)
        client.create(f"{quota}/zookeeper_limits", limits)
        yield
        client.delete(quota, recursive=True)

    @contextmanager
    def forbidden(self, locks: Any) -> Iterator[Any]:
        path = locks.root.removeprefix("/")
        options = {"hosts": locks._hosts, "path": path, **PATIENT}
        provider = ZooKeeperLockProvider("default", **options)
        yield provider
        provider.clients.close()

    @pytest.fixture(autouse=True)
    def opened(self, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
        """Close what a test has opened: kazoo would go on trying to connect."""
        # Records of its log have errors, which hold the sockets that it leaves open.
        caplog.set_level(logging.CRITICAL, "kazoo.client")
        self._opened: list[ZooKeeperLockProvider] = []
        yield
        while self._opened:
            self._opened.pop().clients.close()
        gc.collect()

    def at(self, port: int, *, tls: bool) -> ZooKeeperLockProvider:
        where = {"hosts": f"127.0.0.1:{port}", "timeout": "2s"}
        provider = ZooKeeperLockProvider("default", **where, use_ssl=tls)
        self._opened.append(provider)
        return provider

    @contextmanager
    def plain_port(self, locks: Any) -> Iterator[int]:
        yield int(locks._hosts.rpartition(":")[2])
