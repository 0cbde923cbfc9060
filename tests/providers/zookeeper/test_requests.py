"""What is sent to ZooKeeper, what it keeps, and what a lost answer changes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from django_shedlock.exceptions import InvalidLockConfiguration, LockProviderError
from django_shedlock.locks.configuration import LockConfiguration
from django_shedlock.locks.lock import Lock
from django_shedlock.providers.zookeeper import ZooKeeperLockProvider
from tests.support.locks import MINUTE, configure, take, try_from
from tests.support.ports import free_port
from tests.support.threads import meeting_of, running_threads
from tests.support.waiting import STARTUP_PATIENCE
from tests.support.zookeeper_servers import PATIENT, ReachableZooKeeper, paths


def client_of(locks: ZooKeeperLockProvider) -> Any:
    """Return the client of this process, once it is connected."""
    connection = locks.clients.get()
    assert connection.is_connected.wait(STARTUP_PATIENCE)
    return connection.client


@contextmanager
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[None]]:
    """Collect the round trips."""
    trips: list[None] = []
    ask: Callable[..., Any] = ZooKeeperLockProvider._ask

    def spy(self: ZooKeeperLockProvider, send: Any) -> Any:
        trips.append(None)
        return ask(self, send)

    with monkeypatch.context() as patch:
        patch.setattr(ZooKeeperLockProvider, "_ask", spy)
        yield trips


def test_round_trips(
    locks: ZooKeeperLockProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two for a change, one for a lock that is held, and few for all locks."""
    take(configure("other"), locks)  # makes the nodes of all
    taken: list[Lock] = []
    for trips, call in (
        (2, lambda: taken.append(take(configure(), locks))),
        (1, lambda: try_from(locks, configure())),
        (2, lambda: locks.extend(taken[0], MINUTE)),
        (2, lambda: locks.release(taken[0])),
        (3, lambda: [*locks.statuses()]),
        (1, lambda: [*locks.read_all(["job", "other"])]),
        (1, locks.clock),
    ):
        with asked(monkeypatch) as sent:
            call()
        assert len(sent) == trips


@pytest.mark.parametrize("node", ["a%2fb", "gr%FC", "a b"])
def test_node_that_is_no_locks(locks: ZooKeeperLockProvider, node: str) -> None:
    """No lock has such a node, so it is left out, and hides no lock."""
    take(configure("a/b"), locks)
    client_of(locks).create(f"{locks.root}/locks/{node}", b"{}")
    [status] = locks.statuses()
    assert status.name == "a/b"
    assert status.remaining


def put_out_of_order(client: Any) -> None:
    """Let kazoo expect the answer to an earlier request, as after a lost connection."""
    from kazoo.protocol.serialization import Exists

    client._pending.append((Exists("/", None), client.handler.async_result(), -100))


def shift_numbers(client: Any) -> None:
    """Let the answer to each request have another number than kazoo expects."""
    submit = client._connection._submit
    client._connection._submit = lambda request, timeout, number: submit(
        request, timeout, number + 1
    )


@pytest.mark.parametrize("is_ours", [True, False])
def test_answer_out_of_order(locks: ZooKeeperLockProvider, *, is_ours: bool) -> None:
    """A release succeeds on a new client after an answer arrived out of order."""
    held = take(configure(), locks)
    old = client_of(locks)
    if is_ours:
        shift_numbers(old)
    else:
        put_out_of_order(old)
    assert locks.release(held)
    assert client_of(locks) is not old
    assert take(configure(), locks)


def test_answer_out_of_order_to_one_of_many_threads(
    locks: ZooKeeperLockProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Threads that share a client all continue with one new client.

    An answer out of order has ended the old client.
    """
    old, made = client_of(locks), []
    connect = locks.clients._make
    monkeypatch.setattr(locks.clients, "_make", lambda: made.append(None) or connect())
    meeting, numbers = meeting_of(9), iter(range(8))

    def acquire_often() -> None:
        name = f"job {next(numbers)}"
        meeting.wait()
        for _ in range(20):
            locks.release(take(configure(name), locks))

    with running_threads(8, acquire_often, meeting):
        meeting.wait()
        put_out_of_order(old)
    assert len(made) == 1


def test_client_that_has_ended(locks: ZooKeeperLockProvider) -> None:
    """Nobody waits for its connection: a new client sends the request."""
    old = client_of(locks)
    old.stop()
    assert take(configure(), locks)
    assert client_of(locks) is not old


def test_request_that_is_forgotten(
    locks: ZooKeeperLockProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kazoo forgets one that it takes while its thread ends; a new client sends it."""
    held = take(configure(), locks)
    old = client_of(locks)
    monkeypatch.setattr(old, "_call", lambda request, answer: old.stop())
    assert locks.release(held)
    assert client_of(locks) is not old


@pytest.mark.parametrize("is_ours", [True, False])
def test_each_answer_out_of_order(
    locks: ZooKeeperLockProvider, monkeypatch: pytest.MonkeyPatch, *, is_ours: bool
) -> None:
    """The second one is reported; nobody connects again and again."""
    made, connect = [], locks.clients._make

    def make_bad_client() -> Any:
        connection = connect()
        assert connection.is_connected.wait(STARTUP_PATIENCE)
        (shift_numbers if is_ours else put_out_of_order)(connection.client)
        made.append(connection)
        return connection

    locks.clients.close()
    monkeypatch.setattr(locks.clients, "_make", make_bad_client)
    with pytest.raises(LockProviderError, match="ConnectionLoss") as failure:
        try_from(locks, configure())
    assert failure.value.is_uncertain
    assert ("xids do not match" in str(failure.value)) is is_ours
    assert len(made) == 2


def test_mistake_of_ours_is_no_lost_connection(locks: ZooKeeperLockProvider) -> None:
    """What kazoo refuses to send is raised as it is."""
    client = client_of(locks)
    with pytest.raises(TypeError, match="path"):
        locks._ask(lambda kazoo: [kazoo.get_async(5)])
    assert client_of(locks) is client


def test_client_that_gave_up(locks: ZooKeeperLockProvider) -> None:
    """A client that gave up is replaced by a new one."""
    client_of(locks).stop()
    locks._timeout = 0.1
    with pytest.raises(LockProviderError, match="'job' in ZooKeeper"):
        try_from(locks, configure())
    locks._timeout = 240
    assert isinstance(try_from(locks, configure()), Lock)


def test_reason_why_nobody_answers() -> None:
    """The error has what kazoo's log says, whatever the level of that log is."""
    where = {"hosts": f"no.such.host.invalid,127.0.0.1:{free_port()}"}
    locks = ZooKeeperLockProvider("default", **where, timeout="2s")
    logging.getLogger("kazoo.client").setLevel(logging.CRITICAL)
    try:
        with pytest.raises(LockProviderError, match="answered in time .*refused"):
            try_from(locks, configure())
    finally:
        logging.getLogger("kazoo.client").setLevel(logging.NOTSET)
    locks.clients.close()


def test_reason_of_a_former_connection(locks: ZooKeeperLockProvider) -> None:
    """An error doesn't repeat the reason why a former connection failed."""
    client_of(locks)
    shared = locks.clients.get()
    shared.log.reason = "refused yesterday"
    for listener in shared.client.state_listeners:
        listener("CONNECTED")
    assert "yesterday" not in str(shared.no_answer())


def test_new_lock_holds_up_no_other_one(locks: ZooKeeperLockProvider) -> None:
    """A lock that is made between a look and a change is none of that change's."""
    held = take(configure(), locks)
    entry, version, _ = locks.read("job")
    assert entry is not None
    assert locks._bucket("other") != locks._bucket("job")
    take(configure("other"), locks)
    assert locks.write("job", entry, version)
    assert locks.release(held)


def test_locks_are_beside_those_of_java(locks: ZooKeeperLockProvider) -> None:
    """ShedLock for Java has its locks right below /shedlock."""
    ours = ZooKeeperLockProvider("default", hosts="localhost")
    assert not ours.root.startswith("/shedlock")


def test_token_grows_over_an_election(locks: ZooKeeperLockProvider) -> None:
    """Members may have lost the last acquisition, and the new clock may be behind."""
    _, seen, now = locks.read("job")
    behind = locks.wall_clock(now - locks._apart + 0.001)
    before = locks.least_token(seen, locks.wall_clock(now))
    after = locks.least_token(seen._replace(epoch=seen.epoch + 1), behind)
    assert after > before


def test_lease_by_another_leaders_clock_lasts_longer(
    locks: ZooKeeperLockProvider,
) -> None:
    """The clock of the present leader may be ahead of the one that was read."""
    take(configure(), locks)
    entry, seen, _ = locks.read("job")
    assert entry is not None
    assert locks.write("job", entry, seen._replace(epoch=seen.epoch - 1))
    found, _, _ = locks.read("job")
    assert found is not None
    assert found.lock_until == entry.lock_until + locks._apart
    assert found.lock_at_least_until == entry.lock_at_least_until + locks._apart


def test_nodes_that_were_deleted(locks: ZooKeeperLockProvider) -> None:
    """Deleted nodes are created again by the next acquisition."""
    take(configure(), locks)
    client_of(locks).delete(locks.root, recursive=True)
    assert [*locks.statuses()] == []
    assert take(configure(), locks).release()


def test_chroot(running_zookeeper: ReachableZooKeeper) -> None:
    """A missing chroot is created, and all nodes are below it."""
    chroot = next(paths)
    hosts = f"{running_zookeeper.address}/{chroot}/deep"
    locks = ZooKeeperLockProvider("default", hosts=hosts, **PATIENT)
    take(configure("a/b"), locks)
    node = f"/{chroot}/deep/django-shedlock/locks/a%2Fb"
    assert client_of(locks).exists(node)
    assert locks.record_of("a/b") == f"its node '{node}' in ZooKeeper"
    locks.clients.close()


def test_login(running_zookeeper: ReachableZooKeeper) -> None:
    """What a user makes is that user's alone; a refusal is no lock that is held."""
    where = {"hosts": running_zookeeper.address, "path": next(paths), **PATIENT}
    login = {"auth_data": [("digest", "shop:s3cret")]}
    ours = ZooKeeperLockProvider("default", **where, **login)
    theirs = ZooKeeperLockProvider("default", **where)
    lock = take(configure(), ours)
    with pytest.raises(LockProviderError, match="'job' in ZooKeeper.*NoAuth") as no:
        try_from(theirs, configure())
    assert not no.value.is_uncertain
    assert ours.release(lock)
    ours.clients.close()
    theirs.clients.close()


def test_record_that_may_not_be_changed(locks: ZooKeeperLockProvider) -> None:
    """A record that the client may not change causes an error, not endless retries."""
    from kazoo.security import READ_ACL_UNSAFE

    lock = take(configure(), locks)
    client_of(locks).set_acls(f"{locks.root}/locks/job", READ_ACL_UNSAFE)
    with pytest.raises(LockProviderError, match="'job' in ZooKeeper.*NoAuth"):
        locks.release(lock)


def test_missing_certificate() -> None:
    """A lock's error names it, as the check does; nothing was sent."""
    tls = {"use_ssl": True, "ca": "/no/such.pem"}
    locks = ZooKeeperLockProvider("default", hosts="127.0.0.1:1", **tls)
    with pytest.raises(LockProviderError, match="'job' in Zoo.*/no/such.pem") as no:
        try_from(locks, configure())
    assert not no.value.is_uncertain


def test_lease_below_a_millisecond() -> None:
    """ZooKeeper tells whole ones."""
    locks = ZooKeeperLockProvider("default", hosts="127.0.0.1:1")
    with pytest.raises(InvalidLockConfiguration, match="too short"):
        try_from(locks, LockConfiguration("job", timedelta(microseconds=999)))
