"""A server for each process of the tests, and a provider with keys of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from django_shedlock.providers.etcd import EtcdLockProvider
from tests.support.etcd_servers import EtcdServer, etcd_servers

PATIENT: dict[str, Any] = {"timeout": "4m"}
prefixes = (f"test {number}/" for number in count())


@pytest.fixture(scope="session")
def running_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with etcd_servers(tmp_path_factory.mktemp("etcd"), 1) as [server]:
        yield server


@pytest.fixture
def locks(running_etcd: EtcdServer) -> Iterator[EtcdLockProvider]:
    provider = EtcdLockProvider(
        "default", endpoints=[running_etcd.url], prefix=next(prefixes), **PATIENT
    )
    yield provider
    provider.members.clients.close()
