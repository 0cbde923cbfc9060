"""What ``manage.py check`` says of Redis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from django_shedlock.checks import check_providers, check_stores
from django_shedlock.exceptions import LockProviderError
from django_shedlock.providers import get_provider
from django_shedlock.providers.redis import RedisLockProvider
from tests.support.locks import configure, try_from
from tests.support.redis_servers import (
    ReachableRedis,
    RedisServer,
    follow,
    redis_servers,
)

BACKEND = "django_shedlock.providers.redis.RedisLockProvider"


def use(settings: Any, **options: Any) -> None:
    settings.SHEDLOCK_PROVIDERS = {"default": {"BACKEND": BACKEND, "OPTIONS": options}}


def shared(settings: Any, one: dict[str, Any], two: dict[str, Any]) -> list[str]:
    """Return what is said of two providers with these options."""
    settings.SHEDLOCK_PROVIDERS = {
        "default": {"BACKEND": BACKEND, "OPTIONS": one},
        "twin": {"BACKEND": BACKEND, "OPTIONS": two},
    }
    messages = check_providers()
    assert {message.id for message in messages} <= {"shedlock.E005"}
    return [message.msg for message in messages]


HERE = {"url": "redis://:secret@cache.local/7"}
SENTINELS = {"url": "redis+sentinel://a,b/jobs"}


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (HERE, HERE),
        (HERE, {"url": "redis://cache.local:6379", "db": 7, "retention": "2d"}),
        ({"url": "unix:///run/redis?db=1"}, {"url": "unix:///run/redis", "db": 1}),
        (SENTINELS, {"url": "redis+sentinel://b:26379,a/jobs"}),
    ],
)
def test_e005_two_providers_with_one_place(
    settings: Any, one: dict[str, Any], two: dict[str, Any]
) -> None:
    """Equal servers, databases and prefixes are one set of locks; no secret is told."""
    [text] = shared(settings, one, two)
    assert "'default' and 'twin' of SHEDLOCK_PROVIDERS keep their locks in one " in text
    assert "Redis server, with the prefix 'shedlock:'" in text
    assert "secret" not in text


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (HERE, {**HERE, "prefix": "reports:"}),
        (HERE, {"url": "redis://cache.local/6"}),
        (HERE, {"url": "redis://cache.local:6380/7"}),
        (HERE, {"url": "redis://other.local/7"}),
        (SENTINELS, {"url": "redis+sentinel://a,b/reports"}),
    ],
)
def test_e005_not_of_other_places(
    settings: Any, one: dict[str, Any], two: dict[str, Any]
) -> None:
    """Another server, database, service or prefix has locks of its own."""
    assert shared(settings, one, two) == []


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:secret@localhost:1/7",
        "rediss://localhost",
        "unix:///nowhere",
        "redis+sentinel://one,two:26380/jobs/3",
        "redis+cluster://localhost:1",
    ],
)
def test_right_options(settings: Any, url: str) -> None:
    """Nothing is said of them, whether or not a server answers."""
    use(settings, url=url, client_name="jobs")
    assert check_providers() == []


def test_w016_server_that_deletes_keys(settings: Any, own_redis: RedisServer) -> None:
    """Where it needs room it might delete locks."""
    use(settings, url=own_redis.url)
    assert check_stores() == []
    own_redis.ask("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
    assert check_stores() == []
    own_redis.ask("CONFIG", "SET", "maxmemory", "1gb")
    try:
        [message] = check_stores()
    finally:
        own_redis.ask("CONFIG", "SET", "maxmemory", "0")
        own_redis.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert message.id == "shedlock.W016"
    assert "volatile-lru" in message.msg
    assert message.hint == (
        "Set maxmemory-policy to noeviction, or use another server."
    )


def test_w016_each_server_of_a_cluster(
    settings: Any, running_cluster: list[RedisServer]
) -> None:
    """Each keeps locks, and the warning says which of them deletes keys."""
    use(settings, url=f"redis+cluster://127.0.0.1:{running_cluster[0].port}")
    assert check_stores() == []
    for server in running_cluster:
        server.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lfu")
        server.ask("CONFIG", "SET", "maxmemory", "1gb")
        try:
            [message] = check_stores()
        finally:
            server.ask("CONFIG", "SET", "maxmemory", "0")
            server.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
        assert message.id == "shedlock.W016"
        assert f"'default'] (127.0.0.1:{server.port}) deletes" in message.msg


@pytest.mark.parametrize(
    ("info", "unseen", "ids"),
    [
        ({}, "role, maxmemory, maxmemory_policy", ["W016"]),
        ({"role": "slave"}, "maxmemory, maxmemory_policy", ["W016", "W017"]),
        (None, "role, maxmemory, maxmemory_policy", ["W016"]),
    ],
    ids=["nothing", "a part", "nonsense"],
)
def test_w016_server_that_reports_less(
    settings: Any,
    server: ReachableRedis,
    monkeypatch: pytest.MonkeyPatch,
    info: Any,
    unseen: str,
    ids: list[str],
) -> None:
    """What INFO does not have is named, and the rest is looked at."""
    use(settings, url=server.url)
    client = get_provider().server.clients.get()  # type: ignore[attr-defined]
    client.set_response_callback("INFO", lambda text: {**info})
    messages = check_stores()
    assert [message.id.removeprefix("shedlock.") for message in messages] == ids
    assert f"does not report its {unseen}, so it may be a replica" in messages[0].msg
    assert "Allow INFO" in messages[0].hint


@pytest.mark.parametrize("is_writable", [False, True], ids=["read-only", "writable"])
def test_w017_replica(settings: Any, tmp_path: Path, *, is_writable: bool) -> None:
    """W017 reports a url that names a replica, even a writable one."""
    with redis_servers(tmp_path, 2, "--repl-diskless-sync-delay", "0") as servers:
        master, replica = servers
        follow(replica, master.port)
        if is_writable:
            replica.ask("CONFIG", "SET", "replica-read-only", "no")
        use(settings, url=master.url)
        assert check_stores() == []
        use(settings, url=replica.url)
        [message] = check_stores()
        assert message.id == "shedlock.W017"
        assert "'default'] is a replica" in message.msg
        assert message.hint == (
            "Let `url` name the master, or the sentinels that know it."
        )
        if not is_writable:
            with pytest.raises(LockProviderError, match="'job'.*name the master"):
                try_from(get_provider(), configure())


def test_provider_without_a_url() -> None:
    """A Redis provider without a url is refused at once."""
    with pytest.raises(TypeError, match="url"):
        RedisLockProvider("default")  # type: ignore[call-arg]
