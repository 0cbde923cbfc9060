"""A fixture with a server for each process of the tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.etcd_servers import EtcdServer, etcd_servers


@pytest.fixture(scope="session")
def running_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with etcd_servers(tmp_path_factory.mktemp("etcd"), 1) as [server]:
        yield server
