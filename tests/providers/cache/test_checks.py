"""What ``manage.py check`` says of a cache that is to keep locks."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from django.core.cache.backends.locmem import LocMemCache
from django.core.checks import CheckMessage, run_checks
from django.db import connection

from django_shedlock import checks, scheduler_lock
from django_shedlock.providers.cache import CacheLockProvider
from tests.support.jobs import only_jobs_of
from tests.support.memcached_servers import Memcached

BACKENDS = "django.core.cache.backends"
PROVIDERS = {
    "default": {"BACKEND": "django_shedlock.providers.cache.CacheLockProvider"}
}
LIMITS = {"connect_timeout": 5, "timeout": 5}


def check(settings: Any, backend: str, **parameters: Any) -> list[CheckMessage]:
    """Return what is said of this cache, as the provider's."""
    settings.CACHES = {"default": {"BACKEND": backend, **parameters}}
    return CacheLockProvider("default").check()


def memcached(settings: Any, location: Any = "unix:/nowhere", **options: Any) -> Any:
    backend = f"{BACKENDS}.memcached.PyMemcacheCache"
    return check(settings, backend, LOCATION=location, OPTIONS={**LIMITS, **options})


def redis(settings: Any, location: Any, **options: Any) -> list[CheckMessage]:
    backend = f"{BACKENDS}.redis.RedisCache"
    return check(settings, backend, LOCATION=location, OPTIONS=options)


class HidingCache(LocMemCache):
    """As django-redis with ``DJANGO_REDIS_IGNORE_EXCEPTIONS``."""

    _ignore_exceptions = True


@pytest.mark.parametrize(
    ("options", "is_shared"),
    [
        ({}, True),
        ({"cache": "same"}, True),
        ({"cache": "other"}, False),
        ({"cache": "unknown"}, False),
        ({"prefix": "reports:"}, False),
    ],
)
def test_e013_two_providers_with_one_place(
    settings: Any, options: dict[str, Any], is_shared: bool
) -> None:
    """Equal entries of CACHES and equal prefixes are one set of locks."""
    backend = {"BACKEND": f"{BACKENDS}.memcached.PyMemcacheCache", "OPTIONS": LIMITS}
    here = {**backend, "LOCATION": "unix:/here"}
    settings.CACHES = {
        "default": here,
        "same": {**here, "TIMEOUT": 5},
        "other": {**here, "KEY_PREFIX": "other"},
    }
    entry = PROVIDERS["default"]
    twin = {**entry, "OPTIONS": options}
    settings.SHEDLOCK_PROVIDERS = {"default": entry, "twin": twin}
    messages = [m.msg for m in checks.check_providers() if m.id == "shedlock.E013"]
    assert len(messages) == is_shared
    for message in messages:
        assert "keep their locks in the cache 'default', with the prefix" in message


def test_sound_cache(settings: Any) -> None:
    """One server with time limits: nothing is said of it."""
    assert memcached(settings) == []
    assert redis(settings, "redis://127.0.0.1:1") == []


def test_checks_of_the_project(settings: Any) -> None:
    """Django's own command asks the provider."""
    settings.SHEDLOCK_PROVIDERS = PROVIDERS
    settings.CACHES = {"default": {"BACKEND": f"{BACKENDS}.dummy.DummyCache"}}
    messages = checks.check_providers()
    assert [message.id for message in messages] == ["shedlock.E020"]


def test_e002_unknown_cache(settings: Any) -> None:
    """E002 names the caches that there are."""
    settings.CACHES = {"default": {"BACKEND": f"{BACKENDS}.locmem.LocMemCache"}}
    [message] = CacheLockProvider("shared", cache="locks").check()
    assert message.id == "shedlock.E002"
    assert "SHEDLOCK_PROVIDERS['shared'] uses the cache 'locks'" in message.msg
    assert message.hint == "CACHES has 'default'."


def test_e002_backend_that_cannot_be_made(settings: Any) -> None:
    """E002 tells why: perhaps its client is not installed."""
    [message] = check(settings, "no.such.Backend")
    assert message.id == "shedlock.E002"
    assert "can't be made" in message.msg
    assert "no.such.Backend" in message.msg


@pytest.mark.parametrize(
    ("client", "backend"),
    [("pymemcache", "memcached.PyMemcacheCache"), ("redis", "redis.RedisCache")],
)
def test_e002_missing_client(
    settings: Any, monkeypatch: pytest.MonkeyPatch, client: str, backend: str
) -> None:
    """E002 tells it before the first job does."""
    for module in [name for name in sys.modules if name.split(".")[0] == client]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, client, None)
    [message] = check(settings, f"{BACKENDS}.{backend}", LOCATION="x")
    assert message.id == "shedlock.E002"
    assert client in message.msg


@pytest.mark.parametrize(
    ("backend", "text"),
    [
        ("dummy.DummyCache", "every caller would get every lock"),
        ("filebased.FileBasedCache", "two callers may get one lock"),
    ],
)
def test_e020_backend_that_excludes_nobody(
    settings: Any, backend: str, text: str
) -> None:
    """E020 refuses what has no atomic add, and says what to use."""
    [message] = check(settings, f"{BACKENDS}.{backend}", LOCATION="/tmp/nowhere")
    assert message.id == "shedlock.E020"
    assert text in message.msg
    assert "DatabaseLockProvider" in str(message.hint)


def test_e020_cache_that_hides_errors(settings: Any) -> None:
    """E020 refuses a client for which a failing server is a held lock."""
    [of_pymemcache] = memcached(settings, ignore_exc=True)
    assert of_pymemcache.id == "shedlock.E020"
    assert "hides errors" in of_pymemcache.msg
    of_django_redis, _ = check(settings, f"{__name__}.HidingCache")
    assert of_django_redis == of_pymemcache


def test_e020_replicas(settings: Any) -> None:
    """E020 refuses to read from replicas, which are late."""
    [message] = redis(settings, ["redis://127.0.0.1:1", "redis://127.0.0.1:2"])
    assert message.id == "shedlock.E020"
    assert "reads from replicas" in message.msg


@pytest.mark.parametrize("prefix", ["a lock ", "x" * 250, 7])
def test_e020_prefix(settings: Any, prefix: Any) -> None:
    """E020 refuses keys that no Memcached would take."""
    settings.CACHES = {"default": {"BACKEND": f"{BACKENDS}.locmem.LocMemCache"}}
    message, *_ = CacheLockProvider("default", prefix=prefix).check()
    assert message.id == "shedlock.E020"
    assert "`prefix`" in str(message.hint)


def test_w020_memory_of_one_process(settings: Any) -> None:
    """W020 warns that each process has locks of its own."""
    [message] = check(settings, f"{BACKENDS}.locmem.LocMemCache")
    assert message.id == "shedlock.W020"
    assert "memory of one process" in message.msg


@pytest.mark.parametrize(("most", "count"), [(None, 1), (9_999, 1), (10_000, 0)])
def test_w020_table_that_is_culled(settings: Any, most: int, count: int) -> None:
    """W020 warns that Django deletes live locks to make room."""
    options = {"MAX_ENTRIES": most} if most else {}
    backend = f"{BACKENDS}.db.DatabaseCache"
    messages = check(settings, backend, LOCATION="locks", OPTIONS=options)
    assert [message.id for message in messages] == ["shedlock.W020"] * count
    assert all(f"more than {most or 300}" in message.msg for message in messages)


def test_w020_several_memcached_servers(settings: Any) -> None:
    """W020 warns that two hosts may look for a lock on two servers."""
    [message] = memcached(settings, ["127.0.0.1:1", "127.0.0.1:2"])
    assert message.id == "shedlock.W020"
    assert "several servers" in message.msg


def test_w021_no_time_limit(settings: Any) -> None:
    """W021 names the options that are missing."""
    [message] = memcached(settings, connect_timeout=None)
    assert message.id == "shedlock.W021"
    assert str(message.hint).startswith("Set connect_timeout in its OPTIONS")
    [message] = memcached(settings, connect_timeout=None, timeout=None)
    assert "connect_timeout and timeout" in str(message.hint)


def test_w021_redis(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """W021 is said of redis-py where that has no limits by itself."""
    connecting = pytest.importorskip("redis.connection").AbstractConnection

    def old(self: object, socket_timeout: float | None = None) -> None: ...

    monkeypatch.setattr(connecting, "__init__", old)
    [message] = redis(settings, "redis://127.0.0.1:1")
    assert "socket_connect_timeout and socket_timeout" in str(message.hint)
    assert redis(settings, "x", socket_connect_timeout=1, socket_timeout=1) == []


def test_w005_server_that_is_away(settings: Any, memcached_server: Memcached) -> None:
    """W005 tells it at the check of the databases, as for any store."""
    server = memcached_server.cache
    away = {**server, "LOCATION": f"{server['LOCATION']}.none"}
    settings.CACHES = {"default": server, "away": away}
    assert CacheLockProvider("default").check_store([]) == []
    [message] = CacheLockProvider("default", cache="away").check_store([])
    assert message.id == "shedlock.W005"
    assert message.msg.startswith("The locks in cache 'away' can't be read: ")
    assert CacheLockProvider("default", cache="unknown").check_store([]) == []


@pytest.mark.django_db
def test_w003_missing_table(settings: Any) -> None:
    """W003 names the command that makes it; other databases are not asked."""
    backend = {"BACKEND": f"{BACKENDS}.db.DatabaseCache", "LOCATION": "no_such_table"}
    settings.CACHES = {"default": backend}
    provider = CacheLockProvider("default")
    assert provider.check_store(["other"]) == []
    [message] = provider.check_store(["default"])
    assert message.id == "shedlock.W003"
    assert "'no_such_table' of the cache 'default'" in message.msg
    assert "createcachetable --database default" in str(message.hint)


@pytest.mark.usefixtures("table")
@pytest.mark.django_db(transaction=True)
def test_table_that_is_there() -> None:
    """Nothing is said of it."""
    assert CacheLockProvider("default").check_store([connection.alias]) == []


def test_e004_lease_that_is_too_short(settings: Any, local: Any) -> None:
    """E004 tells of a job that could never run, before anybody waits for it."""
    settings.SHEDLOCK_PROVIDERS = PROVIDERS
    with only_jobs_of():

        @scheduler_lock("job.name", lock_at_most_for="500ms")
        def job() -> None: ...

        [message] = [m for m in checks.check_jobs() if m.id == "shedlock.E004"]
    assert "'job.name'" in message.msg
    assert "shortest lease is 1s" in message.msg


@pytest.mark.django_db(databases=["default", "other"])
def test_ids_are_of_this_package(settings: Any, local: Any) -> None:
    """All that is said of a cache in memory is the one warning."""
    settings.SHEDLOCK_PROVIDERS = PROVIDERS
    with only_jobs_of():
        found = [m.id for m in run_checks() if str(m.id).startswith("shedlock.")]
    assert found == ["shedlock.W020"]
