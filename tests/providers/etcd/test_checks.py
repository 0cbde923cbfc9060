"""What ``manage.py check`` says of etcd."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django_shedlock.checks import check_providers, check_stores
from tests.support.etcd_servers import ReachableEtcd

BACKEND = "django_shedlock.providers.etcd.EtcdLockProvider"


def use(settings: Any, **options: Any) -> None:
    settings.SHEDLOCK_PROVIDERS = {"default": {"BACKEND": BACKEND, "OPTIONS": options}}


def test_right_options(settings: Any, tmp_path: Path) -> None:
    """Nothing is said of them, whether or not a member answers."""
    (authority := tmp_path / "ca.pem").touch()
    endpoints = ["https://one", "http://[::1]:1"]
    login = {"user": "shop", "password": "secret"}
    use(settings, endpoints=endpoints, ca_cert=str(authority), **login)
    assert check_providers() == []


def test_member_that_answers(settings: Any, running_etcd: ReachableEtcd) -> None:
    """Nothing is said of it."""
    use(settings, endpoints=running_etcd.url)
    assert check_stores() == []


def test_two_providers_in_one_place(settings: Any) -> None:
    """The order of the members changes nothing, but the prefix does."""
    one, other = "http://one", "http://other"
    options = {"a": {"endpoints": [one, other]}, "default": {"endpoints": [other, one]}}
    settings.SHEDLOCK_PROVIDERS = {
        alias: {"BACKEND": BACKEND, "OPTIONS": each} for alias, each in options.items()
    }
    [message] = check_providers()
    assert message.id == "shedlock.E005"
    assert "one etcd, with the prefix 'shedlock/'" in message.msg
    options["a"]["prefix"] = "theirs/"  # type: ignore[assignment]
    settings.SHEDLOCK_PROVIDERS = {**settings.SHEDLOCK_PROVIDERS}
    assert check_providers() == []
