"""Redis and Valkey for each process of the tests, or what the environment names."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.support.redis_servers import (
    PROGRAMS,
    REDIS_STORE_VARIABLE,
    RedisServer,
    cluster,
    own_redis,
    running_own_redis,
    running_redis,
    server,
)

__all__ = ["own_redis", "running_own_redis", "running_redis", "server"]

# A server that the environment names is tested once.
OWN_PROGRAMS = PROGRAMS[:1] if os.environ.get(REDIS_STORE_VARIABLE) else PROGRAMS


@pytest.fixture(scope="session", params=OWN_PROGRAMS)
def redis_program(request: pytest.FixtureRequest) -> str:
    """Let each test of one server run on Redis, and on Valkey."""
    return str(request.param)


@pytest.fixture(scope="session")
def running_cluster(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[list[RedisServer]]:
    with cluster(tmp_path_factory.mktemp("cluster")) as servers:
        yield servers
