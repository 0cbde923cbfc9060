"""A server for each process of the tests, and a provider with nodes of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from django_shedlock.providers.zookeeper import ZooKeeperLockProvider
from tests.support.zookeeper_servers import ZooKeeperServer, zookeeper_servers

PATIENT: dict[str, Any] = {"timeout": "4m"}
paths = (f"test-{number}" for number in count())


@pytest.fixture(scope="session")
def running_zookeeper(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ZooKeeperServer]:
    with zookeeper_servers(tmp_path_factory.mktemp("zookeeper"), 1) as [server]:
        yield server


@pytest.fixture
def locks(running_zookeeper: ZooKeeperServer) -> Iterator[ZooKeeperLockProvider]:
    provider = ZooKeeperLockProvider(
        "default", hosts=running_zookeeper.address, path=next(paths), **PATIENT
    )
    yield provider
    provider.clients.close()
