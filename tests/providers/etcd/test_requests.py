"""What is sent to etcd, what it keeps, and what a lost answer changes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from django_shedlock.durations import LONGEST
from django_shedlock.exceptions import InvalidLockConfiguration, LockProviderError
from django_shedlock.locks.configuration import LockConfiguration
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.states import LockHolder
from django_shedlock.providers.etcd import EtcdLockProvider, transactions
from django_shedlock.providers.etcd.clients import Members
from tests.providers.etcd.test_contract import (
    PATIENT,
    end_lease,
    known,
    prefixes,
    send,
)
from tests.support.etcd_servers import EtcdServer
from tests.support.forks import forked
from tests.support.locks import MINUTE, configure, take_from
from tests.support.redis_servers import free_port


@pytest.fixture
def locks(running_etcd: EtcdServer) -> Iterator[EtcdLockProvider]:
    provider = EtcdLockProvider(
        "default", endpoints=[running_etcd.url], prefix=next(prefixes), **PATIENT
    )
    yield provider
    provider.members.close()


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
        assert isinstance(locks.acquire(configure()), LockHolder)
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


def test_lease_is_never_too_short(locks: EtcdLockProvider) -> None:
    """Whole seconds, and one more since two members' clocks may differ by one."""
    take_from(locks, LockConfiguration("job", timedelta(seconds=90.2)))
    lease = known(locks, "job")[1].lease
    answer, _ = locks.members.ask("lease/timetolive", {"ID": str(lease)})
    assert int(answer["grantedTTL"]) == math.ceil(90.2) + 1


def test_lease_of_etcd_decides(locks: EtcdLockProvider) -> None:
    """Not the times in the record, which are for people and for ticks."""
    lock = take_from(locks, configure())
    end_lease(locks, "job")
    assert not locks.extend(lock, MINUTE)
    [status] = locks.statuses()
    assert not status.remaining
    take_from(locks, configure())
    values = json.loads(known(locks, "job")[0].value)
    values["lock_until"] = 1.0
    put_record(locks, json.dumps(values).encode())
    assert isinstance(locks.acquire(configure()), LockHolder)
    [status] = locks.statuses()
    assert status.remaining


def put_record(locks: EtcdLockProvider, value: bytes) -> None:
    send(locks, transactions.put(locks._keys("job")[0], value))


def test_no_lease_is_left(locks: EtcdLockProvider) -> None:
    """Neither by a release, nor by an extension."""
    lock = take_from(locks, configure())
    leases = [known(locks, "job")[1].lease]
    assert locks.extend(lock, MINUTE)
    leases.append(known(locks, "job")[1].lease)
    assert locks.release(lock)
    for lease in leases:
        answer, _ = locks.members.ask("lease/timetolive", {"ID": str(lease)})
        assert answer["TTL"] == "-1"


def test_lost_race_leaves_no_lease(
    locks: EtcdLockProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that was granted for it is revoked."""
    entry, version = locks.read("job")
    assert entry is None
    winner = take_from(locks, configure())
    taken = locks.read("job")[0]
    assert taken is not None
    with asked(monkeypatch) as paths:
        assert not locks.write("job", taken, version)
    assert paths == ["lease/grant", "kv/txn", "lease/revoke"]
    assert locks.release(winner)


def test_token_grows_over_a_deleted_record(locks: EtcdLockProvider) -> None:
    """It is at least the store's revision."""
    tokens = []
    for _ in range(3):
        lock = take_from(locks, configure())
        tokens.append(lock.fencing_token or 0)
        assert locks.release(lock)
        send(locks, transactions.delete(locks._keys("job")[0]))
    assert tokens == sorted(set(tokens))


@pytest.mark.parametrize("name", ["grün", "a/b", "*", "a b"], ids=repr)
def test_names_are_taken_literally(locks: EtcdLockProvider, name: str) -> None:
    """Whatever characters they have."""
    take_from(locks, configure(name))
    take_from(locks, configure("job"))
    assert [s.name for s in locks.statuses()] == sorted([name, "job"])
    assert list(locks.names()) == sorted([name, "job"])
    assert locks.statuses(name)[0].remaining


@pytest.mark.parametrize("value", [b"", b"[]", b"no JSON", b'{"locked_by": 1}'])
def test_unreadable_record(locks: EtcdLockProvider, value: bytes) -> None:
    """It is told, and neither lost nor taken for a free lock."""
    put_record(locks, value)
    take_from(locks, configure("other"))
    broken, other = locks.statuses()
    assert broken.unreadable
    assert not other.unreadable
    with pytest.raises(LockProviderError, match="'job'.*can't be read"):
        locks.acquire(configure())
    assert known_value(locks) == value


def known_value(locks: EtcdLockProvider) -> bytes:
    steps = [transactions.read(locks._keys("job")[0])]
    result, _ = locks.members.ask("kv/txn", {"success": steps})
    [found] = transactions.answers(result)
    return transactions.Known.parse(found).value


def two_endpoints(running_etcd: EtcdServer, **options: Any) -> EtcdLockProvider:
    """Return a provider with one server at two endpoints, as two members are."""
    return EtcdLockProvider(
        "default",
        endpoints=[running_etcd.url, running_etcd.url],
        prefix=next(prefixes),
        **{**PATIENT, **options},
    )


@contextmanager
def lost_answers(monkeypatch: pytest.MonkeyPatch, count: int) -> Iterator[None]:
    """Let etcd make a change, and the connection break before it says so."""
    from etcd3gw import Etcd3Client
    from etcd3gw.exceptions import ConnectionFailedError

    post: Callable[..., Any] = Etcd3Client.post
    left = [None] * count

    def fail(self: Any, url: str, **kwargs: Any) -> Any:
        answer = post(self, url, **kwargs)
        if left and "compare" in kwargs["json"]:
            left.pop()
            raise ConnectionFailedError("lost")
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(Etcd3Client, "post", fail)
        yield
    assert not left


def test_lost_answers(
    running_etcd: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next member is asked, and the record tells that it was done already."""
    locks = two_endpoints(running_etcd)
    with lost_answers(monkeypatch, 1):
        lock = take_from(locks, configure())
    with lost_answers(monkeypatch, 1):
        assert locks.extend(lock, MINUTE)
    with lost_answers(monkeypatch, 1):
        assert locks.release(lock)
    assert isinstance(locks.acquire(configure()), Lock)
    locks.members.close()


def test_all_answers_lost(
    running_etcd: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows whether it was done, and the error says so."""
    locks = two_endpoints(running_etcd)
    with lost_answers(monkeypatch, 2):
        with pytest.raises(LockProviderError, match="'job'.*lost") as failure:
            locks.acquire(configure())
    assert failure.value.is_uncertain
    locks.members.close()


def test_nobody_listens() -> None:
    """Then it is certain that nothing was done."""
    locks = EtcdLockProvider("default", endpoints=f"http://127.0.0.1:{free_port()}")
    with pytest.raises(LockProviderError, match="'job' in etcd") as failure:
        locks.acquire(configure())
    assert not failure.value.is_uncertain


def test_endpoint_that_nobody_listens_on(running_etcd: EtcdServer) -> None:
    """The other one is asked, and from then on first."""
    endpoints = [f"http://127.0.0.1:{free_port()}", running_etcd.url]
    locks = EtcdLockProvider("default", endpoints=endpoints, prefix=next(prefixes))
    assert take_from(locks, configure()).release()
    [first, _] = locks.members._in_turn()
    assert first.port == running_etcd.port
    locks.members.close()


def test_forked_child_connects_anew(locks: EtcdLockProvider) -> None:
    """Parent and child use no connection both."""
    lock = take_from(locks, configure())

    def work() -> bool:
        ours = take_from(locks, configure("of the child"))
        return isinstance(locks.acquire(configure()), LockHolder) and ours.release()

    assert forked(work)
    assert locks.release(lock)


def test_lease_below_a_second() -> None:
    """etcd has whole seconds."""
    locks = EtcdLockProvider("default", endpoints="http://127.0.0.1:1")
    with pytest.raises(InvalidLockConfiguration, match="too short"):
        locks.acquire(LockConfiguration("job", timedelta(milliseconds=999)))


def test_longest_lease(locks: EtcdLockProvider) -> None:
    """etcd has leases as long as any lock's."""
    take_from(locks, LockConfiguration("job", LONGEST))
    assert isinstance(locks.acquire(configure()), LockHolder)
