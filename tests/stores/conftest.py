"""What operators see and do must fit each store: one fixture has them all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from django_shedlock import scheduler_lock
from django_shedlock.providers import provider_instances
from django_shedlock.providers.servers import Clients
from tests.support.dynamodb_fixtures import LOGIN, dynamodb
from tests.support.etcd_servers import prefixes, running_etcd
from tests.support.jobs import only_jobs_of
from tests.support.mongodb_fixtures import mongodb
from tests.support.ports import free_port
from tests.support.redis_servers import (
    PATIENT,
    redis_program,
    running_own_redis,
    running_redis,
    server,
)
from tests.support.zookeeper_servers import (
    own_zookeeper,
    paths,
    running_zookeeper,
)

__all__ = ["dynamodb", "mongodb", "own_zookeeper", "running_etcd", "running_own_redis"]
__all__ += ["redis_program", "running_redis", "running_zookeeper", "server"]

PROVIDERS = "django_shedlock.providers"
DATABASE = f"{PROVIDERS}.database.DatabaseLockProvider"
MEMORY = f"{PROVIDERS}.memory.MemoryLockProvider"
REDIS = f"{PROVIDERS}.redis.RedisLockProvider"
ETCD = f"{PROVIDERS}.etcd.EtcdLockProvider"
MONGODB = f"{PROVIDERS}.mongodb.MongoLockProvider"
DYNAMODB = f"{PROVIDERS}.dynamodb.DynamoDBLockProvider"
ZOOKEEPER = f"{PROVIDERS}.zookeeper.ZooKeeperLockProvider"
RECORDED = {"history_database": "default"}
ON_SERVERS = ("redis", "etcd", "mongo", "dynamo", "zookeeper")


@pytest.fixture(autouse=True)
def known_job() -> Iterator[Any]:
    """Let the project have one job, with the lock ``job``; return it."""
    with only_jobs_of():
        yield scheduler_lock("job")(lambda: None)


@pytest.fixture
def redis(settings: Any, request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """Return the entry of a provider in Redis; its client is closed at the end."""
    url = request.getfixturevalue("server").url
    yield {"BACKEND": REDIS, "OPTIONS": {"url": url, **PATIENT, **RECORDED}}
    close_clients()


@pytest.fixture
def etcd(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """Return the entry of a provider in etcd, with a prefix of the test's own."""
    url = request.getfixturevalue("running_etcd").url
    options = {"endpoints": url, "prefix": next(prefixes), "timeout": "4m"}
    yield {"BACKEND": ETCD, "OPTIONS": {**options, **RECORDED}}
    close_clients()


@pytest.fixture
def mongo(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """Return the entry of a provider in MongoDB, with a collection of its own."""
    options = request.getfixturevalue("mongodb")
    yield {"BACKEND": MONGODB, "OPTIONS": {**options, **RECORDED}}
    close_clients()


@pytest.fixture
def dynamo(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """Return the entry of a provider in DynamoDB, with a table of its own."""
    options = request.getfixturevalue("dynamodb")
    yield {"BACKEND": DYNAMODB, "OPTIONS": {**options, **RECORDED}}
    close_clients()


@pytest.fixture
def zookeeper(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """Return the entry of a provider in ZooKeeper, with a path of the test's own."""
    hosts = request.getfixturevalue("running_zookeeper").address
    options = {"hosts": hosts, "path": next(paths), "timeout": "4m"}
    yield {"BACKEND": ZOOKEEPER, "OPTIONS": {**options, **RECORDED}}
    close_clients()


def close_clients() -> None:
    for provider in provider_instances().values():
        for part in (provider, *vars(provider).values()):
            if isinstance(clients := getattr(part, "clients", None), Clients):
                clients.close()


@pytest.fixture(params=["database", "memory", *ON_SERVERS])
def store(request: pytest.FixtureRequest, settings: Any) -> str:
    """Let the provider "default" keep its locks there; return the store's name."""
    name = str(request.param)
    if name in ON_SERVERS:
        entry = request.getfixturevalue(name)
    else:
        options = {} if name == "database" else RECORDED
        backend = {"database": DATABASE, "memory": MEMORY}[name]
        entry = {"BACKEND": backend, "OPTIONS": options}
    settings.SHEDLOCK_PROVIDERS = {"default": entry}
    return name


@pytest.fixture(params=[*ON_SERVERS, "database"])
def away(request: pytest.FixtureRequest, settings: Any) -> Iterator[str]:
    """Add a provider "away" whose server is down to one in memory; return its kind."""
    entries: dict[str, dict[str, Any]] = {
        "redis": {
            "BACKEND": REDIS,
            "OPTIONS": {"url": f"redis://127.0.0.1:{free_port()}"},
        },
        "etcd": {
            "BACKEND": ETCD,
            "OPTIONS": {"endpoints": f"http://127.0.0.1:{free_port()}"},
        },
        "mongo": {
            "BACKEND": MONGODB,
            "OPTIONS": {
                "url": f"mongodb://127.0.0.1:{free_port()}",
                "timeout": "300ms",
            },
        },
        "dynamo": {
            "BACKEND": DYNAMODB,
            "OPTIONS": {"endpoint_url": f"http://127.0.0.1:{free_port()}", **LOGIN},
        },
        "zookeeper": {
            "BACKEND": ZOOKEEPER,
            "OPTIONS": {"hosts": f"127.0.0.1:{free_port()}", "timeout": "300ms"},
        },
        "database": {"BACKEND": DATABASE, "OPTIONS": {"using": "gone"}},
    }
    settings.SHEDLOCK_PROVIDERS = {
        "away": entries[request.param],
        "default": {"BACKEND": MEMORY},
    }
    yield str(request.param)
    close_clients()
