"""What ``manage.py check`` says of etcd."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from django_shedlock.checks import check_providers, check_stores
from tests.providers.etcd.test_requests import changed_replies, replaced_by
from tests.support.etcd_servers import ReachableEtcd, etcd_servers

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


@pytest.mark.parametrize(
    ("alarm", "fix"),
    [("NOSPACE", "Compact its history"), ("CORRUPT", "Replace the member")],
)
def test_w016_alarm(settings: Any, tmp_path: Path, alarm: str, fix: str) -> None:
    """The warning names an alarm, with which etcd writes nothing, and its fix."""
    with etcd_servers(tmp_path, 1) as [server]:
        use(settings, endpoints=server.url)
        assert check_stores() == []
        server.alarm(alarm, "ACTIVATE")
        [message] = check_stores()
    assert message.id == "shedlock.W016"
    assert f"SHEDLOCK_PROVIDERS['default'] has the alarm {alarm}" in message.msg
    assert fix in str(message.hint)


@pytest.mark.parametrize(("used", "is_near"), [(80, False), (81, True)])
def test_w016_quota(
    settings: Any,
    running_etcd: ReachableEtcd,
    monkeypatch: pytest.MonkeyPatch,
    used: int,
    *,
    is_near: bool,
) -> None:
    """An etcd that tells its quota is reported before it is full."""
    use(settings, endpoints=running_etcd.url)
    sizes = {"dbSizeInUse": f"{used}", "dbSizeQuota": "100"}
    status = replaced_by(json.dumps({"header": {}, **sizes}))
    with changed_replies(monkeypatch, status, "/v3/maintenance/status"):
        found = check_stores()
    assert [message.id for message in found] == ["shedlock.W016"] * is_near
    assert all(f"uses {used} of the 100 bytes" in message.msg for message in found)


def test_w016_alarm_without_sizes(
    settings: Any, running_etcd: ReachableEtcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An alarm is reported though the rest of the status is missing."""
    use(settings, endpoints=running_etcd.url)
    alarm = {"header": {}, "errors": ["memberID:1 alarm:NOSPACE "]}
    status = replaced_by(json.dumps(alarm))
    with changed_replies(monkeypatch, status, "/v3/maintenance/status"):
        [message] = check_stores()
    assert message.id == "shedlock.W016"


def test_status_that_is_refused(
    settings: Any, running_etcd: ReachableEtcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is said: the user of the locks need not be an administrator."""
    use(settings, endpoints=running_etcd.url)
    refused = replaced_by('{"message": "permission denied", "code": 7}', 403)
    with changed_replies(monkeypatch, refused, "/v3/maintenance/status"):
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
