"""What providers have in common whose store is a server."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from django_shedlock.checks import check_providers, check_stores
from django_shedlock.exceptions import LockProviderError
from django_shedlock.providers import get_provider
from tests.support.locks import configure
from tests.support.redis_servers import free_port


class Kind(NamedTuple):
    """A provider's class, options for a port of loopback, and its library's modules."""

    backend: str
    options: Callable[[int], dict[str, Any]]
    modules: tuple[str, ...]


def away(scheme: str) -> Callable[[int], dict[str, Any]]:
    """Return what makes the options of a provider with such URLs."""
    return lambda port: {"url": f"{scheme}://127.0.0.1:{port}"}


KINDS = {
    "redis": Kind("redis.RedisLockProvider", away("redis"), ("redis",)),
    "etcd": Kind(
        "etcd.EtcdLockProvider",
        lambda port: {"endpoints": f"http://127.0.0.1:{port}"},
        ("etcd3gw", "etcd3gw.exceptions"),
    ),
    "mongodb": Kind(
        "mongodb.MongoLockProvider",
        lambda port: {**away("mongodb")(port), "timeout": "200ms"},
        ("pymongo", "pymongo.uri_parser"),
    ),
}


@pytest.fixture(params=KINDS)
def extra(request: pytest.FixtureRequest, settings: Any) -> str:
    """Use a server that does not answer; return the extra of its provider."""
    kind = KINDS[request.param]
    entry = {
        "BACKEND": f"django_shedlock.providers.{kind.backend}",
        "OPTIONS": kind.options(free_port()),
    }
    settings.SHEDLOCK_PROVIDERS = {"default": entry}
    return str(request.param)


def test_missing_library(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check, and the error of a lock, say how to install it."""
    install = f'Install it: pip install "django-shedlock[{extra}]"'
    for module in KINDS[extra].modules:
        monkeypatch.setitem(sys.modules, module, None)
    [message] = check_providers()
    assert (message.id, message.hint) == ("shedlock.E002", install)
    with pytest.raises(LockProviderError, match="'job'") as raised:
        get_provider().acquire(configure())
    assert install in str(raised.value)
    assert not raised.value.is_uncertain


def test_server_that_does_not_answer(extra: str) -> None:
    """No job with a lock would run."""
    assert check_providers() == []
    [message] = check_stores()
    assert message.id == "shedlock.W005"
    assert "'default'" in message.msg
    assert message.hint == "No job with a lock runs while its store is unreachable."
