"""What ``manage.py check`` says of MongoDB."""

from __future__ import annotations

from typing import Any

import pytest

from django_shedlock.checks import check_providers, check_stores
from django_shedlock.exceptions import LockProviderError
from django_shedlock.providers import get_provider
from django_shedlock.providers.mongodb import MongoLockProvider
from tests.support.locks import configure, try_from

BACKEND = "django_shedlock.providers.mongodb.MongoLockProvider"


def use(settings: Any, **options: Any) -> None:
    settings.SHEDLOCK_PROVIDERS = {"default": {"BACKEND": BACKEND, "OPTIONS": options}}


@pytest.mark.parametrize(
    "url",
    ["mongodb://a,b:1/shop?replicaSet=x", "mongodb+srv://me@cluster.example/shop"],
)
def test_right_options(settings: Any, url: str) -> None:
    """Nothing is said of them, whether or not a server answers; none is asked."""
    use(settings, url=url, appname="shop")
    assert check_providers() == []


@pytest.mark.parametrize("option", ["tlsCAFile", "tlsCertificateKeyFile"])
def test_missing_file(option: str) -> None:
    """A lock's error names it, and the lock; nothing was sent."""
    options: dict[str, Any] = {"url": "mongodb://a", option: "/no/such.pem"}
    locks = MongoLockProvider("default", **options)
    with pytest.raises(LockProviderError, match="'job' in MongoDB.*/no/such.pem") as no:
        try_from(locks, configure())
    assert not no.value.is_uncertain


def test_server_that_answers(settings: Any, mongodb: dict[str, Any]) -> None:
    """Nothing is said of it."""
    use(settings, **mongodb)
    assert check_stores() == []
    provider: Any = get_provider()
    provider.clients.close()


@pytest.mark.parametrize(
    ("first", "second", "is_one"),
    [
        ("mongodb://a,b", "mongodb://b,a", True),
        ("mongodb://a", "mongodb://me:secret@a:27017/shedlock", True),
        ("mongodb+srv://a.example", "mongodb+srv://me@a.example/?w=1", True),
        ("mongodb://a", "mongodb://a/shop", False),
        ("mongodb://a", "mongodb://c", False),
    ],
)
def test_two_providers_in_one_place(
    settings: Any, first: str, second: str, *, is_one: bool
) -> None:
    """The order of the hosts changes nothing, and nor does who logs in."""
    settings.SHEDLOCK_PROVIDERS = {
        alias: {"BACKEND": BACKEND, "OPTIONS": {"url": url}}
        for alias, url in {"a": first, "default": second}.items()
    }
    messages = check_providers()
    assert [message.id for message in messages] == ["shedlock.E005"] * is_one
    assert "secret" not in str(messages)
