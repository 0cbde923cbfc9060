"""What is sent to etcd, what it keeps, and what a lost answer changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from requests import Response, Session
from urllib3.connection import HTTPConnection

from django_shedlock.exceptions import InvalidLockConfiguration, LockProviderError
from django_shedlock.locks.configuration import LockConfiguration
from django_shedlock.locks.status import LockHolder
from django_shedlock.providers import etcd_gateway as gateway
from django_shedlock.providers.etcd import EtcdLockProvider
from django_shedlock.providers.etcd_gateway import Members
from django_shedlock.testing.contract.bad_records import entry_with
from tests.providers.etcd.test_contract import known, lost_answers, put_record, send
from tests.support.etcd_servers import PATIENT, ReachableEtcd, prefixes
from tests.support.locks import MINUTE, configure, take, try_from
from tests.support.ports import free_port


@contextmanager
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Collect what members are asked for."""
    paths: list[str] = []
    ask = Members.ask

    def spy(self: Members, path: str, request: dict[str, Any]) -> tuple[Any, float]:
        paths.append(path)
        return ask(self, path, request)

    with monkeypatch.context() as patch:
        patch.setattr(Members, "ask", spy)
        yield paths


def test_round_trips(locks: EtcdLockProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three for a lock, three for its release, one for a lock that is held."""
    with asked(monkeypatch) as paths:
        lock = take(configure(), locks)
    assert paths == ["kv/txn", "lease/grant", "kv/txn"]
    with asked(monkeypatch) as paths:
        assert isinstance(try_from(locks, configure()), LockHolder)
    assert paths == ["kv/txn"]
    with asked(monkeypatch) as paths:
        assert locks.extend(lock, MINUTE)
    assert paths == ["kv/txn", "lease/grant", "kv/txn", "lease/revoke"]
    with asked(monkeypatch) as paths:
        assert locks.release(lock)
    assert paths == ["kv/txn", "kv/txn", "lease/revoke"]
    with asked(monkeypatch) as paths:
        locks.statuses()
    assert paths == ["kv/txn"]


def test_values_are_short(locks: EtcdLockProvider) -> None:
    """A record omits unknown values. A holder's key also omits the job's state."""
    put_record(locks, entry_with(of_tomorrow="null"))
    take(configure(), locks)
    record, holder = (json.loads(key.value) for key in known(locks, "job"))
    assert [field for field, value in record.items() if value is None] == [
        "of_tomorrow"
    ]
    job_fields = {"failures", "mark"}
    assert record.keys() - holder.keys() >= job_fields
    assert holder.items() <= record.items()


def test_unreadable_record_of_a_free_lock(locks: EtcdLockProvider) -> None:
    """An unreadable record is reported, and is not overwritten like a free lock's."""
    put_record(locks, b"no JSON")
    [status] = locks.statuses()
    assert status.unreadable
    with pytest.raises(LockProviderError, match="'job'.*can't be read"):
        try_from(locks, configure())
    assert known_value(locks) == b"no JSON"


@pytest.mark.parametrize("kind", ["records", "holders"])
def test_name_that_is_no_text(locks: EtcdLockProvider, kind: str) -> None:
    """A key whose name is not UTF-8 is listed as unreadable, next to the others."""
    take(configure("other"), locks)
    key = f"{locks.prefix}{kind}/".encode() + b"gr\xfcn"
    send(locks, gateway.put_key(key, known_value(locks, "other")))
    broken, other = locks.statuses()
    assert broken.name == "gr\\xfcn"
    assert broken.unreadable
    assert not other.unreadable
    assert set(locks.names()) == {"gr\\xfcn", "other"}
    assert locks.status(broken.name) is None


def known_value(locks: EtcdLockProvider, name: str = "job") -> bytes:
    key = locks._keys(name)[0]
    return gateway.Outcome.of(*send(locks, gateway.read_key(key))).of_key(key).value


@contextmanager
def changed_replies(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[Response], object], path: str
) -> Iterator[None]:
    """Change what etcd replies to requests with this path."""
    send: Callable[..., Response] = Session.send

    def changed(self: Session, request: Any, **options: Any) -> Response:
        response = send(self, request, **options)
        if request.path_url.endswith(path):
            change(response)
        return response

    with monkeypatch.context() as patch:
        patch.setattr(Session, "send", changed)
        yield


def no_date(response: Response) -> None:
    del response.headers["Date"]


def replaced_by(text: str, status: int = 200, reason: str = "OK") -> Any:
    def replace(response: Response) -> None:
        response.status_code, response.reason = status, reason
        response._content = text.encode()

    return replace


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (no_date, "is not etcd"),
        (replaced_by("<html>"), "is not etcd"),
        (replaced_by("[]"), "is not etcd"),
        (replaced_by("{}"), "is not etcd"),
        (replaced_by("<html>", 502, "Bad Gateway"), "HTTP 502 Bad Gateway"),
        (replaced_by('{"code": 14}', 503, "Bad"), "HTTP 503 Bad"),
    ],
    ids=["no date", "no JSON", "no object", "empty", "HTTP 502", "HTTP 503"],
)
def test_reply_that_is_not_of_etcd(
    locks: EtcdLockProvider,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Response], object],
    said: str,
) -> None:
    """A reply that is not etcd's counts as lost, and the next call works."""
    with changed_replies(monkeypatch, change, "/v3/kv/txn"):
        with pytest.raises(LockProviderError, match=f"'job' in etcd.*{said}") as no:
            try_from(locks, configure())
    assert no.value.is_uncertain
    assert take(configure(), locks).release()


@pytest.mark.parametrize("error", [RuntimeError, KeyError, OSError])
def test_library_that_is_at_a_loss(
    locks: EtcdLockProvider, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """An error amid a request is a lost connection, and the next call has another."""

    def fail(connection: HTTPConnection) -> None:
        raise error("at a loss")

    locks.clock()
    with monkeypatch.context() as patch:
        patch.setattr(HTTPConnection, "getresponse", fail)
        with pytest.raises(LockProviderError, match="'job' in etcd.*at a loss") as no:
            try_from(locks, configure())
    assert no.value.is_uncertain
    assert take(configure(), locks).release()


def test_library_that_is_at_a_loss_at_one_member(
    running_etcd: ReachableEtcd,
) -> None:
    """The next member is asked."""
    endpoints = [running_etcd.url, running_etcd.url]
    locks = EtcdLockProvider(
        "default", endpoints=endpoints, prefix=next(prefixes), **PATIENT
    )
    with lost_answers(1, error=RuntimeError):
        assert take(configure(), locks).release()
    locks.members.clients.close()


def test_lost_answer_before_a_member_that_is_away(
    running_etcd: ReachableEtcd,
) -> None:
    """One lost answer makes the outcome uncertain, even if the next member is down."""
    endpoints = [running_etcd.url, f"http://127.0.0.1:{free_port()}"]
    locks = EtcdLockProvider("default", endpoints=endpoints, prefix=next(prefixes))
    with lost_answers(1):
        with pytest.raises(LockProviderError, match="'job'.*refused") as failure:
            try_from(locks, configure())
    assert failure.value.is_uncertain
    locks.members.clients.close()


def test_endpoint_that_nobody_listens_on(running_etcd: ReachableEtcd) -> None:
    """The other one is asked, and from then on first."""
    endpoints = [f"http://127.0.0.1:{free_port()}", running_etcd.url]
    locks = EtcdLockProvider("default", endpoints=endpoints, prefix=next(prefixes))
    assert take(configure(), locks).release()
    assert locks.members.clients.get().urls == endpoints[::-1]
    locks.members.clients.close()


def test_port_of_an_endpoint() -> None:
    """An endpoint without a port gets etcd's default port."""
    endpoints = ["https://one", "http://[::1]/", "http://two:1"]
    locks = EtcdLockProvider("default", endpoints=endpoints)
    urls = locks.members.connect().urls
    assert urls == ["https://one:2379", "http://[::1]:2379", "http://two:1"]


def test_lease_below_a_second() -> None:
    """etcd has whole seconds."""
    locks = EtcdLockProvider("default", endpoints="http://127.0.0.1:1")
    with pytest.raises(InvalidLockConfiguration, match="too short"):
        try_from(locks, LockConfiguration("job", timedelta(milliseconds=999)))
