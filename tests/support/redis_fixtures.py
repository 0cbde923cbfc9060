"""
The Redis servers of the tests.

``server`` may be somebody else's: ``SHEDLOCK_TEST_REDIS_STORE_URL`` names it. A test
that configures, stops or counts what is the whole server's needs ``own_redis``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from django_shedlock.providers.redis import RedisLockProvider
from tests.support.redis_servers import (
    PATIENT,
    ReachableRedis,
    RedisServer,
    redis_servers,
)
from tests.support.stores import STORES, chosen_store

REDIS_STORE_VARIABLE = "SHEDLOCK_TEST_REDIS_STORE_URL"
"""Another server than that of SHEDLOCK_TEST_REDIS_URL, the broker of queues."""


def url_for_process(url: str, store: str, worker: str) -> str:
    """
    Return the URL with a database that only this process of the tests uses.

    ``python -m tests`` runs pytest for several databases of Django at once (``store``),
    each time with several workers of pytest-xdist (``gw0``, ``gw1``, ...). The numbers
    begin with that of the URL.
    """
    parts = urlsplit(url)
    first = int(parts.path.strip("/") or 0)
    number = int(worker.removeprefix("gw")) * len(STORES) + STORES.index(store)
    return urlunsplit(parts._replace(path=f"/{first + number}"))


@pytest.fixture(scope="session")
def redis_program() -> str:
    """Return the program of the tests' own server; the provider's tests have two."""
    return "redis-server"


@pytest.fixture(scope="session")
def running_own_redis(
    redis_program: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RedisServer]:
    """Return a server that this process has started, for tests that control it."""
    folder = tmp_path_factory.mktemp("redis")
    with redis_servers(folder, 1, program=redis_program) as [server]:
        yield server


@pytest.fixture(scope="session")
def running_redis(redis_program: str, request: pytest.FixtureRequest) -> ReachableRedis:
    """Return the server that the environment names, or one of the tests' own."""
    if url := os.environ.get(REDIS_STORE_VARIABLE):
        worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
        return ReachableRedis(url_for_process(url, chosen_store(), worker))
    server: RedisServer = request.getfixturevalue("running_own_redis")
    return server


@pytest.fixture
def server(running_redis: ReachableRedis) -> ReachableRedis:
    """Return a server without keys; it may be somebody else's."""
    running_redis.empty()
    return running_redis


@pytest.fixture
def own_redis(running_own_redis: RedisServer) -> RedisServer:
    """Return a server of the tests' own, without keys and scripts."""
    running_own_redis.empty()
    return running_own_redis


@contextmanager
def locks_on(server: ReachableRedis, **options: Any) -> Iterator[RedisLockProvider]:
    provider = RedisLockProvider("default", url=server.url, **{**PATIENT, **options})
    yield provider
    provider.server.clients.close()
