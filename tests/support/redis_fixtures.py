"""The Redis servers of the tests, for each of their processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.redis_servers import RedisServer, redis_servers


@pytest.fixture(scope="session")
def running_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_servers(tmp_path_factory.mktemp("redis"), 1) as [server]:
        yield server


@pytest.fixture
def server(running_redis: RedisServer) -> RedisServer:
    """Return a server without keys and scripts."""
    running_redis.ask("FLUSHALL")
    running_redis.ask("SCRIPT", "FLUSH")
    return running_redis
