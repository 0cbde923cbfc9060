"""The caches that keep locks: each empty, and of the tests' own."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from tests.support.memcached_servers import Memcached, memcached
from tests.support.waiting import PATIENCE, wait_for

BACKENDS = "django.core.cache.backends"
TABLE = "tests_locks_in_a_cache"

Caches = dict[str, dict[str, Any]]
"""As the setting of this name."""


@pytest.fixture(scope="session")
def running_memcached() -> Iterator[Memcached]:
    with memcached() as server:
        yield server


@pytest.fixture
def memcached_server(running_memcached: Memcached) -> Memcached:
    """Return a Memcached with nothing in it."""
    running_memcached.forget()
    return running_memcached


@pytest.fixture(scope="session")
def redis_socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is missing: install Debian's package redis-server")
    path = tmp_path_factory.mktemp("redis") / "socket"
    command = ["redis-server", "--port", "0", "--unixsocket", str(path), "--save", ""]
    process = subprocess.Popen([*command, "--dir", "/"], stdout=subprocess.DEVNULL)
    try:
        assert wait_for(path.exists)
        yield path
    finally:
        process.kill()
        process.wait(PATIENCE)


@pytest.fixture
def local(settings: Any, request: pytest.FixtureRequest) -> Caches:
    """Let the project's cache be in memory, with a place of its own for each test."""
    location = request.node.nodeid
    backend = {"BACKEND": f"{BACKENDS}.locmem.LocMemCache", "LOCATION": location}
    settings.CACHES = {"default": backend}
    return settings.CACHES


@pytest.fixture
def remote(settings: Any, memcached_server: Memcached) -> Caches:
    """Let the project's cache be Memcached."""
    server = memcached_server.cache
    away = {**server, "LOCATION": f"{server['LOCATION']}.none"}
    settings.CACHES = {"default": server, "away": away}
    return settings.CACHES


@pytest.fixture
def redis(settings: Any, redis_socket: Path) -> Caches:
    """Let the project's cache be Redis."""
    from redis import Redis

    with Redis(unix_socket_path=str(redis_socket)) as client:
        client.flushall()
    limits = {"socket_timeout": PATIENCE, "socket_connect_timeout": PATIENCE}
    backend = {"BACKEND": f"{BACKENDS}.redis.RedisCache", "OPTIONS": limits}
    url = f"unix://{redis_socket}"
    settings.CACHES = {
        "default": {**backend, "LOCATION": url},
        "away": {**backend, "LOCATION": f"{url}.none"},
    }
    return settings.CACHES


@pytest.fixture
def table(settings: Any, transactional_db: None) -> Iterator[Caches]:
    """Let the project's cache be a table of the database under test."""
    backend = {"BACKEND": f"{BACKENDS}.db.DatabaseCache", "LOCATION": TABLE}
    settings.CACHES = {"default": {**backend, "OPTIONS": {"MAX_ENTRIES": 100_000}}}
    call_command("createcachetable")
    yield settings.CACHES
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE {TABLE}")
