"""Servers for each process of the tests, or one that the environment names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.redis_fixtures import (
    own_redis,
    running_own_redis,
    running_redis,
    server,
)
from tests.support.redis_servers import RedisServer, cluster

__all__ = ["own_redis", "running_own_redis", "running_redis", "server"]


@pytest.fixture(scope="session")
def running_cluster(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[list[RedisServer]]:
    with cluster(tmp_path_factory.mktemp("cluster")) as servers:
        yield servers
