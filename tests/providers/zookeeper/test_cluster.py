"""What three members promise when some of them are gone, and a new leader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockHolder, LockState
from django_shedlock.providers.entries import Entry
from django_shedlock.providers.zookeeper import SeenNode, ZooKeeperLockProvider
from tests.support.locks import (
    MINUTE,
    configure,
    status_of,
    take,
    take_when_store_answers,
    try_from,
    try_if_store_answers,
    try_to_acquire,
    try_to_release,
)
from tests.support.proxies import proxy
from tests.support.standstills import gone
from tests.support.waiting import STARTUP_PATIENCE, wait_for
from tests.support.zookeeper_servers import (
    ZooKeeperServer,
    paths,
    zookeeper_servers,
)

BY = timedelta(minutes=5)


@pytest.fixture(scope="session")
def ensemble(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[list[ZooKeeperServer]]:
    """Run three members for all of these tests: a start is what costs."""
    with zookeeper_servers(tmp_path_factory.mktemp("ensemble"), 3) as running:
        yield running


@pytest.fixture
def servers(ensemble: list[ZooKeeperServer]) -> Iterator[list[ZooKeeperServer]]:
    """Return them, with the leader first; let all be there again afterwards."""
    leader = wait_for(lambda: leader_of(ensemble), STARTUP_PATIENCE)
    yield sorted(ensemble, key=lambda each: each is not leader)
    restart(ensemble)


def restart(servers: list[ZooKeeperServer]) -> None:
    for server in servers:
        if server.process.poll() is not None:
            server.start()
    for server in servers:
        wait_for(server.mode, pause=0.05, timeout=STARTUP_PATIENCE)


def leader_of(servers: list[ZooKeeperServer]) -> ZooKeeperServer | None:
    return next((each for each in servers if each.mode() == "leader"), None)


@contextmanager
def locks_of(
    hosts: list[str], path: str | None = None, **options: Any
) -> Iterator[ZooKeeperLockProvider]:
    options = {"timeout": "9s", "path": path or next(paths), **options}
    provider = ZooKeeperLockProvider("default", hosts=",".join(hosts), **options)
    yield provider
    provider.clients.close()


def addresses(servers: list[ZooKeeperServer]) -> list[str]:
    return [server.address for server in servers]


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "stopped"])
def test_leader_gone(servers: list[ZooKeeperServer], *, killed: bool) -> None:
    """The others elect another one; locks are held as before, and can be acquired."""
    with locks_of(addresses(servers)) as locks:
        held = take_when_store_answers(locks)
        token = held.fencing_token or 0
        with gone(servers[:1], killed=killed):
            holder = wait_for(lambda: try_if_store_answers(locks), STARTUP_PATIENCE)
            assert isinstance(holder, LockHolder)
            assert holder.locked_by == held.locked_by
            other, again = Lock(locks, configure("other")), Lock(locks, configure())
            assert wait_for(lambda: try_to_acquire(other), STARTUP_PATIENCE)
            assert wait_for(lambda: try_to_release(held), STARTUP_PATIENCE)
            assert wait_for(lambda: try_to_acquire(again), STARTUP_PATIENCE)
            assert (again.fencing_token or 0) > token


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "stopped"])
def test_two_members_gone(servers: list[ZooKeeperServer], *, killed: bool) -> None:
    """The third gives no lock; when they come back the lock is held as before."""
    with locks_of(addresses(servers), timeout="1500ms") as locks:
        held = take_when_store_answers(locks)
        with gone(servers[1:], killed=killed):
            for name in ("job", "new"):
                with pytest.raises(LockProviderError, match=f"{name!r} in ZooKeeper"):
                    try_from(locks, configure(name))
            with pytest.raises(LockProviderError, match="'job' in ZooKeeper"):
                locks.extend(held, MINUTE)
            if killed:
                restart(servers)
        assert isinstance(
            wait_for(lambda: try_if_store_answers(locks), STARTUP_PATIENCE), LockHolder
        )
        new = Lock(locks, configure("new"))
        assert wait_for(lambda: try_to_acquire(new), STARTUP_PATIENCE)
        assert wait_for(lambda: try_to_release(held), STARTUP_PATIENCE)


def test_member_that_is_cut_off(servers: list[ZooKeeperServer]) -> None:
    """A client that reaches only one of the members uses that."""
    with ExitStack() as stack:
        networks = [stack.enter_context(proxy(server.port)) for server in servers]
        ways = [f"127.0.0.1:{network.port}" for network in networks]
        with locks_of(ways, timeout="3s") as locks:
            held, again = take_when_store_answers(locks), Lock(locks, configure())
            with networks[0].cut(), networks[1].cut():
                assert isinstance(
                    wait_for(lambda: try_if_store_answers(locks), STARTUP_PATIENCE),
                    LockHolder,
                )
                assert wait_for(lambda: try_to_release(held), STARTUP_PATIENCE)
                assert wait_for(lambda: try_to_acquire(again), STARTUP_PATIENCE)
            with ExitStack() as cuts:
                for network in networks:
                    cuts.enter_context(network.cut())
                with pytest.raises(LockProviderError, match="'job' in ZooKeeper"):
                    try_from(locks, configure())


def write_earlier(locks: ZooKeeperLockProvider, name: str, **values: Any) -> None:
    """Write the record as the present leader's clock had it some minutes ago."""
    entry, version, now = locks.read(name)
    assert entry is not None
    early = version._replace(clock=now - 2 * BY.total_seconds())
    values = {field: now + seconds for field, seconds in values.items()}
    assert locks.write(name, replace(entry, **values), early)


def test_lease_of_another_leader(servers: list[ZooKeeperServer]) -> None:
    """A lease that a former leader wrote lasts longer, by clocks_apart."""
    hosts, path = addresses(servers), next(paths)
    with (
        locks_of(hosts, path, clocks_apart="1h") as careful,
        locks_of(hosts, path, clocks_apart="1ms") as trusting,
    ):
        names = ("held", "released", "trusted", "kept")
        keep = {"lock_at_least_for": MINUTE}
        taken = {name: take(configure(name, **keep), careful) for name in names}
        ago = -BY.total_seconds()
        for name in ("held", "trusted"):
            write_earlier(careful, name, lock_until=ago, lock_at_least_until=ago)
        assert not status_of(careful, "held").remaining
        taken["kept"].release()
        write_earlier(careful, "kept", lock_until=ago)
        assert not status_of(careful, "kept").remaining
        taken["released"].lock_at_least_for = ZERO
        taken["released"].release()
        servers[0].end()
        wait_for(lambda: leader_of(servers), STARTUP_PATIENCE)
        assert isinstance(
            wait_for(lambda: try_if_store_answers(careful, "held"), STARTUP_PATIENCE),
            LockHolder,
        )
        assert isinstance(
            wait_for(lambda: try_if_store_answers(careful, "kept"), STARTUP_PATIENCE),
            LockHolder,
        )
        assert isinstance(
            wait_for(
                lambda: try_if_store_answers(careful, "released"), STARTUP_PATIENCE
            ),
            Lock,
        )
        assert isinstance(
            wait_for(
                lambda: try_if_store_answers(trusting, "trusted"), STARTUP_PATIENCE
            ),
            Lock,
        )
        assert careful.extend(taken["held"], MINUTE)
        assert careful.release(taken["held"])
        assert status_of(careful, "held").state is LockState.HELD_AT_LEAST


def test_election_within_a_change(servers: list[ZooKeeperServer]) -> None:
    """The lease counts by the clock that was read, though another leader writes it."""
    with locks_of(addresses(servers), clocks_apart="1h") as locks:
        held = take_when_store_answers(locks)
        entry, version, _ = locks.read("job")
        assert entry is not None
        servers[0].end()
        wait_for(lambda: leader_of(servers), STARTUP_PATIENCE)
        assert wait_for(lambda: was_written(locks, entry, version), STARTUP_PATIENCE)
        found, seen, _ = locks.read("job")
        assert found is not None
        assert seen.epoch > version.epoch
        assert found.lock_until == entry.lock_until + 3600
        assert found.lock_at_least_until == entry.lock_at_least_until + 3600
        assert locks.extend(held, MINUTE)
        extended, _, _ = locks.read("job")
        assert extended is not None
        assert extended.lock_until == found.lock_until


def was_written(
    locks: ZooKeeperLockProvider, entry: Entry, version: SeenNode
) -> bool | None:
    """Return ``None`` while nobody answers."""
    with suppress(LockProviderError):
        return locks.write("job", entry, version)
    return None


def test_lease_by_another_hand(servers: list[ZooKeeperServer]) -> None:
    """Who copies the field, and writes another end, does not free the lock by that."""
    with locks_of(addresses(servers)) as locks:
        take(configure(), locks).release()
        path = f"{locks.root}/locks/job"
        client = locks.clients.get().client
        record = json.loads(client.get(path)[0])
        record["lock_until"] += BY.total_seconds()
        client.set(path, json.dumps(record).encode())
        assert isinstance(try_if_store_answers(locks), LockHolder)


def test_lock_that_was_free_is_free(servers: list[ZooKeeperServer]) -> None:
    """A leader whose clock is behind does not keep what another one has freed."""
    with locks_of(addresses(servers)) as locks:
        take(configure(), locks).release()
        entry, version, now = locks.read("job")
        assert entry is not None
        later = now + BY.total_seconds()
        ahead = version._replace(clock=later)
        assert locks.write("job", replace(entry, lock_until=later), ahead)
        assert isinstance(try_if_store_answers(locks), Lock)
