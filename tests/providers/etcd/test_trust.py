"""Whom the provider trusts, how it logs in, and what the environment changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from requests import Session

from django_shedlock.checks import check_providers
from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.status import LockHolder
from django_shedlock.providers import get_provider
from django_shedlock.providers.etcd import EtcdLockProvider
from tests.providers.etcd.test_checks import use
from tests.providers.etcd.test_cluster import locks_of
from tests.support.etcd_servers import (
    Certificate,
    EtcdServer,
    certificate,
    etcd_servers,
)
from tests.support.locks import configure, take, try_from
from tests.support.ports import free_port
from tests.support.threads import run_threads

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
PASSWORD = "s3cret, and long"
LOGIN: dict[str, Any] = {"user": "shop", "password": PASSWORD}


@pytest.fixture(scope="module")
def certificates(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Certificate, Certificate]:
    """Return that of the server, and one of somebody else."""
    folder = tmp_path_factory.mktemp("tls")
    return certificate(folder, "ours"), certificate(folder, "theirs")


@pytest.fixture(scope="module")
def secured(
    certificates: tuple[Certificate, Certificate],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[EtcdServer]:
    """Run a server with TLS."""
    folder = tmp_path_factory.mktemp("secured")
    with etcd_servers(folder, 1, certificates[0]) as [server]:
        yield server


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """Run a server that wants a login."""
    with etcd_servers(tmp_path_factory.mktemp("guarded"), 1) as [server]:
        server.require_login("shop", PASSWORD, "shedlock/")
        yield server


@pytest.fixture
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let the environment name a proxy that nobody is, and another login."""
    for name in PROXIES:
        for variable in (name, name.lower()):
            monkeypatch.setenv(variable, f"http://127.0.0.1:{free_port()}")
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login other password other\n")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)


@pytest.mark.usefixtures("surroundings")
def test_environment_replaces_no_authority(
    secured: EtcdServer,
    certificates: tuple[Certificate, Certificate],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the options decide on the CA, whatever the environment says."""
    ours, theirs = certificates
    for name in BUNDLES:
        monkeypatch.setenv(name, theirs.path)
    with locks_of([secured.url], ca_cert=ours.path) as locks:
        assert take(configure(), locks).release()


def test_environment_adds_no_authority(
    secured: EtcdServer,
    certificates: tuple[Certificate, Certificate],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that the options don't trust is not trusted."""
    ours, theirs = certificates
    for name in BUNDLES:
        monkeypatch.setenv(name, ours.path)
    with locks_of([secured.url], ca_cert=theirs.path) as locks:
        with pytest.raises(LockProviderError, match="'job' in etcd.*certificate"):
            try_from(locks, configure())


@pytest.mark.usefixtures("surroundings")
def test_environment_logs_nobody_in(guarded: EtcdServer) -> None:
    """The environment's proxies and netrc don't affect a request without TLS."""
    with locks_of([guarded.url], **LOGIN) as locks:
        assert take(configure(), locks).release()


def test_certificate_of_the_client(
    certificates: tuple[Certificate, Certificate], tmp_path: Path
) -> None:
    """A server that wants one gets it."""
    ours, _ = certificates
    wants = ("--client-cert-auth", "--trusted-ca-file", ours.path)
    with etcd_servers(tmp_path, 1, ours, wants) as [server]:
        with locks_of([server.url], ca_cert=ours.path) as locks:
            with pytest.raises(LockProviderError, match="'job' in etcd"):
                try_from(locks, configure())
        own = {"cert_cert": ours.path, "cert_key": ours.key}
        with locks_of([server.url], ca_cert=ours.path, **own) as locks:
            assert take(configure(), locks).release()


@pytest.mark.parametrize("option", ["ca_cert", "cert_cert", "cert_key"])
def test_missing_file(
    settings: Any,
    certificates: tuple[Certificate, Certificate],
    secured: EtcdServer,
    option: str,
) -> None:
    """The check names it, and a lock's error does; nothing was sent."""
    ours, _ = certificates
    files = {"ca_cert": ours.path, "cert_cert": ours.path, "cert_key": ours.key}
    use(settings, endpoints=secured.url, **{**files, option: "/no/such.pem"})
    [message] = check_providers()
    assert message.id == "shedlock.E002"
    assert "'/no/such.pem'" in message.msg
    with pytest.raises(LockProviderError, match="'job' in etcd.*/no/such.pem") as no:
        try_from(get_provider(), configure())
    assert not no.value.is_uncertain


def test_login(guarded: EtcdServer) -> None:
    """The provider needs no more rights than to the keys under its prefix."""
    with locks_of([guarded.url], **LOGIN) as locks:
        lock = take(configure(), locks)
        assert isinstance(try_from(locks, configure()), LockHolder)
        assert locks.extend(lock, configure().lock_at_most_for)
        assert [status.name for status in locks.statuses()] == ["job"]
        assert lock.release()
        assert locks.check_store([]) == []


def test_threads_share_a_login(
    guarded: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each one costs the server a tenth of a second."""
    logins = logins_of(monkeypatch)
    with locks_of([guarded.url], **LOGIN) as locks:
        times = [locks.clock()]
        run_threads(3, lambda: times.append(locks.clock()))
    assert (len(times), len(logins)) == (4, 1)


def logins_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the logins."""
    logins: list[str] = []
    post: Callable[..., Any] = Session.post

    def spy(self: Any, url: str, **kwargs: Any) -> Any:
        if url.endswith("/auth/authenticate"):
            logins.append(url)
        return post(self, url, **kwargs)

    monkeypatch.setattr(Session, "post", spy)
    return logins


def test_login_is_renewed(guarded: EtcdServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """etcd ends a login that nobody used for minutes, or whose user has changed."""
    logins = logins_of(monkeypatch)
    with locks_of([guarded.url], **LOGIN) as locks:
        held = take(configure("renewed"), locks)
        guarded.end_logins("shop", PASSWORD)
        assert isinstance(try_from(locks, configure("renewed")), LockHolder)
        assert locks.release(held)
    assert len(logins) == 2


@pytest.mark.parametrize(
    ("login", "said"),
    [
        ({"user": "shop", "password": f"{PASSWORD}er"}, "authentication failed"),
        ({}, "user name is empty"),
    ],
)
def test_refused_login(guarded: EtcdServer, login: dict[str, Any], said: str) -> None:
    """The error says so, without the password; it is certain that nothing was done."""
    with locks_of([guarded.url], **login) as locks:
        with pytest.raises(LockProviderError, match=f"'job' in etcd.*{said}") as no:
            try_from(locks, configure())
    assert not no.value.is_uncertain
    assert PASSWORD not in str(no.value)


def test_refused_key(guarded: EtcdServer) -> None:
    """A prefix that is not the user's is an error, and not a lock that is held."""
    with locks_of([guarded.url], prefix="theirs/", **LOGIN) as locks:
        with pytest.raises(LockProviderError, match="permission denied") as no:
            try_from(locks, configure())
    assert not no.value.is_uncertain


@pytest.mark.parametrize(
    "options",
    [{"user": "shop"}, {"password": PASSWORD}, {"cert_cert": "a"}, {"cert_key": "a"}],
)
def test_half_of_a_pair(options: dict[str, Any]) -> None:
    """Half of a pair of options is refused at once, without showing the password."""
    with pytest.raises(ValueError, match="belong together") as no:
        EtcdLockProvider("default", endpoints="http://one", **options)
    assert PASSWORD not in str(no.value)
