"""What is sent to etcd, what it keeps, and what a lost answer changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

from django_shedlock.durations import LONGEST_DURATION
from django_shedlock.exceptions import InvalidLockConfiguration, LockProviderError
from django_shedlock.locks.configuration import LockConfiguration
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockHolder
from django_shedlock.providers import etcd_gateway as gateway
from django_shedlock.providers.etcd import EtcdLockProvider
from django_shedlock.providers.etcd_gateway import Members
from tests.providers.etcd.test_contract import put_record, send
from tests.support.etcd_fixtures import PATIENT, prefixes
from tests.support.etcd_servers import ReachableEtcd
from tests.support.forks import assert_child_connects_anew, forked
from tests.support.locks import MINUTE, configure, status_of, take_from, try_from
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
        lock = take_from(locks, configure())
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


@pytest.mark.parametrize("name", ["grün", "a/b", "*", "a b"], ids=repr)
def test_names_are_taken_literally(locks: EtcdLockProvider, name: str) -> None:
    """Whatever characters they have."""
    take_from(locks, configure(name))
    take_from(locks, configure("job"))
    assert [s.name for s in locks.statuses()] == sorted([name, "job"])
    assert set(locks.names()) == {name, "job"}
    assert status_of(locks, name).remaining


def numbered(**changed: str) -> bytes:
    """Return a record with these values, as JSON."""
    times = dict.fromkeys(("locked_at", "lock_until", "lock_at_least_until"), "1")
    pairs = {"locked_by": '"me"', **times, **changed}.items()
    text = ", ".join(f'"{field}": {value}' for field, value in pairs)
    return f"{{{text}}}".encode()


@pytest.mark.parametrize("is_held", [False, True], ids=["free", "held"])
@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b"no JSON",
        b'{"locked_by": 1}',
        b"gr\xfcn",
        b"[" * 100_000,
        numbered(lock_until="NaN"),
        numbered(lock_until="1e999"),
        numbered(lock_until="null"),
        numbered(lock_until="1" * 400),
        numbered(locked_at="[]"),
        numbered(lease_seconds="1" * 400),
        numbered(locked_by='"\\ud800"'),
    ],
    ids=lambda value: value[-40:].decode(errors="replace"),
)
def test_unreadable_record(
    locks: EtcdLockProvider, value: bytes, *, is_held: bool
) -> None:
    """It is told, and neither lost nor taken for a free lock."""
    put_record(locks, value)
    if is_held:
        send(locks, gateway.put_key(locks._keys("job")[1], value))
    take_from(locks, configure("other"))
    broken, other = locks.statuses()
    assert broken.unreadable
    assert not other.unreadable
    with pytest.raises(LockProviderError, match="'job'.*can't be read"):
        try_from(locks, configure())
    assert known_value(locks) == value


@pytest.mark.parametrize("kind", ["records", "holders"])
def test_name_that_is_no_text(locks: EtcdLockProvider, kind: str) -> None:
    """It is one record that can't be read, and the rest is listed."""
    take_from(locks, configure("other"))
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
    steps = [gateway.read_key(key)]
    result, _ = locks.members.ask("kv/txn", {"success": steps})
    return gateway.answers(result)[key].value


def two_endpoints(running_etcd: ReachableEtcd, **options: Any) -> EtcdLockProvider:
    """Return a provider with one server at two endpoints, as two members are."""
    return EtcdLockProvider(
        "default",
        endpoints=[running_etcd.url, running_etcd.url],
        prefix=next(prefixes),
        **{**PATIENT, **options},
    )


@contextmanager
def lost_answers(
    monkeypatch: pytest.MonkeyPatch, count: int, meanwhile: Callable[[], object] = list
) -> Iterator[None]:
    """
    Let etcd make a change, and the connection break before it says so.

    So often, and something happens ``meanwhile``.
    """
    from etcd3gw import Etcd3Client
    from etcd3gw.exceptions import ConnectionFailedError

    post: Callable[..., Any] = Etcd3Client.post
    left = [meanwhile] * count

    def fail(self: Any, url: str, **kwargs: Any) -> Any:
        answer = post(self, url, **kwargs)
        if left and "compare" in kwargs["json"]:
            left.pop()()
            raise ConnectionFailedError("lost")
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(Etcd3Client, "post", fail)
        yield
    assert not left


def test_lost_answers(
    running_etcd: ReachableEtcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next member is asked, and the record tells that it was done already."""
    locks = two_endpoints(running_etcd)
    with lost_answers(monkeypatch, 1):
        lock = take_from(locks, configure())
    with lost_answers(monkeypatch, 1):
        assert locks.extend(lock, MINUTE)
    with lost_answers(monkeypatch, 1):
        assert locks.release(lock)
    assert isinstance(try_from(locks, configure()), Lock)
    locks.members.clients.close()


def test_all_answers_lost(
    running_etcd: ReachableEtcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows whether it was done, and the error says so."""
    locks = two_endpoints(running_etcd)
    with lost_answers(monkeypatch, 2):
        with pytest.raises(LockProviderError, match="'job'.*lost") as failure:
            try_from(locks, configure())
    assert failure.value.is_uncertain
    locks.members.clients.close()


def test_nobody_listens() -> None:
    """Then it is certain that nothing was done."""
    locks = EtcdLockProvider("default", endpoints=f"http://127.0.0.1:{free_port()}")
    with pytest.raises(LockProviderError, match="'job' in etcd") as failure:
        try_from(locks, configure())
    assert not failure.value.is_uncertain


def test_endpoint_that_nobody_listens_on(running_etcd: ReachableEtcd) -> None:
    """The other one is asked, and from then on first."""
    endpoints = [f"http://127.0.0.1:{free_port()}", running_etcd.url]
    locks = EtcdLockProvider("default", endpoints=endpoints, prefix=next(prefixes))
    assert take_from(locks, configure()).release()
    [first, _] = locks.members.clients.get()
    assert first.port == urlsplit(running_etcd.url).port
    locks.members.clients.close()


def test_forked_child_connects_anew(locks: EtcdLockProvider) -> None:
    """It uses none of its parent's connections."""
    assert_child_connects_anew(locks)
    ours = locks.members.clients.get()
    assert forked(lambda: locks.members.clients.get() is not ours)


def test_lease_below_a_second() -> None:
    """etcd has whole seconds."""
    locks = EtcdLockProvider("default", endpoints="http://127.0.0.1:1")
    with pytest.raises(InvalidLockConfiguration, match="too short"):
        try_from(locks, LockConfiguration("job", timedelta(milliseconds=999)))


def test_longest_lease(locks: EtcdLockProvider) -> None:
    """etcd has leases as long as any lock's."""
    take_from(locks, LockConfiguration("job", LONGEST_DURATION))
    assert isinstance(try_from(locks, configure()), LockHolder)
