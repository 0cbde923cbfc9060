"""
The ZooKeeper of the tests, and a provider with nodes of its own.

It may be somebody else's: ``SHEDLOCK_TEST_ZOOKEEPER_HOSTS`` names it. A test that stops
it needs ``own_zookeeper``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any
from uuid import uuid4

import pytest

from django_shedlock.providers.zookeeper import ZooKeeperLockProvider
from tests.support.zookeeper_servers import (
    ReachableZooKeeper,
    ZooKeeperServer,
    zookeeper_servers,
)

ZOOKEEPER_VARIABLE = "SHEDLOCK_TEST_ZOOKEEPER_HOSTS"
PATIENT: dict[str, Any] = {"timeout": "4m"}
paths = (f"test-{uuid4().hex}" for _ in count())
"""Unique even across processes, which may share a server that outlives them."""


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
