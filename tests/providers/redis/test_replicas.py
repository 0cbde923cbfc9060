"""What replicas, Sentinel and a cluster promise when servers are gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.configuration import LockConfiguration
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockHolder
from django_shedlock.providers.redis import RedisLockProvider
from tests.providers.redis.test_contract import lost_answers, shift
from tests.providers.redis.test_requests import LONG_AGO, SCHEDULE, SCHEDULED
from tests.support.locks import (
    LEASE,
    MINUTE,
    configure,
    force_release,
    status_of,
    take,
    take_when_store_answers,
    try_from,
    try_if_store_answers,
)
from tests.support.proxies import Proxy, proxy
from tests.support.redis_servers import (
    RedisServer,
    cluster,
    follow,
    gone,
    locks_on,
    replicated,
    sentinels,
)
from tests.support.waiting import wait_for

SENDS_PIPELINES_AGAIN = int(redis.__version__.partition(".")[0]) >= 6
PIPELINE_ERROR = "0 of 1 replicas" if SENDS_PIPELINES_AGAIN else "lost"
"""What an acquisition raises whose first answer is lost, with no replica in reach."""


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[RedisServer]]:
    """Return a master and its two replicas."""
    with replicated(tmp_path) as running:
        yield running


def promote(replica: RedisServer) -> None:
    """Let it be a master, as after the death of its own."""
    replica.ask("REPLICAOF", "NO", "ONE")


def test_replicas_confirm(servers: list[RedisServer]) -> None:
    """A lock acquired with wait_replicas is on that many replicas."""
    master, *replicas = servers
    with locks_on(master, wait_replicas=2, wait_timeout="4m") as locks:
        lock = take(configure(), locks)
        for replica in replicas:
            assert replica.ask("HGET", "shedlock:{job}", "by") == lock.locked_by
        assert isinstance(try_from(locks, configure()), LockHolder)
        assert locks.release(lock)


def test_replicas_that_hang(servers: list[RedisServer]) -> None:
    """Nobody runs without their confirmation, and the lock is released."""
    master, *replicas = servers
    options: Any = {"wait_replicas": 1, "wait_timeout": "100ms"}
    with locks_on(master, **options) as locks, ExitStack() as pauses:
        for replica in replicas:
            pauses.enter_context(replica.paused())
        with pytest.raises(LockProviderError, match="0 of 1 replicas") as failure:
            try_from(locks, configure(lock_at_least_for=MINUTE))
        assert not failure.value.is_uncertain
        status = status_of(locks, "job")
        assert not status.remaining
        pauses.close()
        assert wait_for(lambda: is_acquired(locks))


def is_acquired(
    locks: RedisLockProvider, configuration: LockConfiguration | None = None
) -> bool:
    try:
        return isinstance(try_from(locks, configuration or configure()), Lock)
    except LockProviderError:  # the replicas are not back yet
        return False


def test_replica_that_is_cut_off(tmp_path: Path, servers: list[RedisServer]) -> None:
    """A replica that is cut off confirms nothing, so the acquisition fails."""
    master, one, other = servers
    with proxy(master.port) as network:
        follow(one, network.port)
        other.end()
        with locks_on(master, wait_replicas=1, wait_timeout="4m") as locks:
            assert take(configure(), locks).release()
        with (
            network.cut(),
            locks_on(master, wait_replicas=1, wait_timeout="100ms") as locks,
        ):
            with pytest.raises(LockProviderError, match="0 of 1 replicas"):
                try_from(locks, configure())


@contextmanager
def cut_off(servers: list[RedisServer]) -> Iterator[tuple[RedisLockProvider, Proxy]]:
    """Let a single replica confirm, until its network is cut."""
    master, replica, other = servers
    other.end()
    options: Any = {"wait_replicas": 1, "wait_timeout": "4m"}
    with proxy(master.port) as network, locks_on(master, **options) as locks:
        follow(replica, network.port)
        yield locks, network


@contextmanager
def cut(locks: RedisLockProvider, network: Proxy) -> Iterator[None]:
    """Cut the replica off, for which nobody waits long then."""
    patient = locks.server._wait
    locks.server._wait = (*patient[:2], 200)
    try:
        with network.cut():
            yield
    finally:
        locks.server._wait = patient


def extend_by_hand(lock: Lock) -> None:
    lock.provider.replace(status_of(lock.provider, lock.name), 2 * LEASE)


@pytest.mark.parametrize(
    "extend",
    [
        lambda lock: lock.extend(2 * LEASE),
        Lock.heartbeat,
        extend_by_hand,
    ],
    ids=["extend", "beat", "operator"],
)
def test_fail_over_after_an_unconfirmed_extension(
    servers: list[RedisServer], extend: Callable[[Lock], None]
) -> None:
    """The holder never believes in more than what the new master has."""
    master, replica, _ = servers
    with cut_off(servers) as (locks, network):
        lock = take(configure(lock_at_most_for=LEASE), locks)
        believed = lock.lease_end
        assert lock.refresh()
        confirmed = lock.lease_end
        with cut(locks, network):
            with pytest.raises(LockProviderError, match=r"'job'.* 0 of 1 replicas"):
                extend(lock)
            assert lock.refresh()  # asks the master, which has the extension
            master.end()
            network.close()
        assert (lock.lease_end, lock.is_lost) == (confirmed, False)
        assert confirmed - believed < LEASE.total_seconds() / 2
    promote(replica)
    with locks_on(replica) as locks:
        assert isinstance(try_from(locks, configure()), LockHolder)
        left = status_of(locks, "job").remaining
        assert lock.remaining() <= left


def test_confirmed_extension_counts(servers: list[RedisServer]) -> None:
    """A lock counts each confirmed extension, including an operator's."""
    replica = servers[1]
    with cut_off(servers) as (locks, _):
        lock = take(configure(), locks)
        lock.extend(LEASE)
        assert lock.remaining() > LEASE / 2
        extend_by_hand(lock)
        assert lock.refresh()
        assert lock.remaining() > LEASE * 1.5
        with locks_on(replica) as others:
            left = status_of(others, "job").remaining
        assert lock.remaining() <= left


def test_lost_answer_confirms_nothing(servers: list[RedisServer]) -> None:
    """A request that is sent again, and has nothing to write, waits all the same."""
    with cut_off(servers) as (locks, network):
        locks.register("tick", SCHEDULE, LONG_AGO)
        shift(locks, "tick", timedelta(days=2))
        assert take(configure("warm"), locks).release()
        with cut(locks, network):
            for wanted, error in (
                (configure(), PIPELINE_ERROR),
                (replace(SCHEDULED, name="tick"), "0 of 1 replicas"),
            ):
                with lost_answers(1):
                    with pytest.raises(LockProviderError, match=error):
                        try_from(locks, wanted)


def test_unconfirmed_tick_is_run_later(servers: list[RedisServer]) -> None:
    """Nobody ran it, so the next start does; lock_at_least_for keeps nothing."""
    wanted = replace(SCHEDULED, lock_at_least_for=MINUTE)
    with cut_off(servers) as (locks, network):
        locks.register("job", SCHEDULE, LONG_AGO)
        shift(locks, "job", timedelta(days=2))
        before = status_of(locks, "job").schedule_state
        with cut(locks, network):
            with pytest.raises(LockProviderError, match="0 of 1 replicas"):
                try_from(locks, wanted)
            assert status_of(locks, "job").ticks.tick == before.tick
            assert not status_of(locks, "job").remaining
        assert wait_for(lambda: is_acquired(locks, wanted))
        assert isinstance(try_from(locks, wanted), LockHolder)


def test_release_waits_for_no_replica(servers: list[RedisServer]) -> None:
    """A release succeeds although the replica that should confirm it is cut off."""
    with cut_off(servers) as (locks, network):
        locks.register("job", SCHEDULE, LONG_AGO)
        shift(locks, "job", timedelta(days=2))
        lock = take(SCHEDULED, locks)
        with cut(locks, network):
            assert lock.release()


def test_fail_over_can_lose_a_lock(servers: list[RedisServer]) -> None:
    """The documented limit: without wait_replicas, a second worker may run."""
    master, replica, other = servers
    other.end()
    with proxy(master.port) as network, locks_on(master) as locks:
        follow(replica, network.port)
        with network.cut():
            take(configure(), locks)
            master.end()
            network.close()
    promote(replica)
    with locks_on(replica) as locks:
        assert isinstance(try_from(locks, configure()), Lock)


def test_fail_over_keeps_a_confirmed_lock(servers: list[RedisServer]) -> None:
    """What all replicas have confirmed is there, whichever becomes the master."""
    master, replica, other = servers
    with locks_on(master, wait_replicas=2, wait_timeout="4m") as locks:
        held = take(configure(), locks)
        token = held.fencing_token
    for server in (master, other):
        server.end()
    promote(replica)
    with locks_on(replica) as locks:
        assert isinstance(try_from(locks, configure()), LockHolder)
        force_release(locks, "job")
        assert token is not None
        assert (take(configure(), locks).fencing_token or 0) > token


@contextmanager
def locks_by(ports: list[int], **options: Any) -> Iterator[RedisLockProvider]:
    """Ask Sentinel for the master; the first address of it answers nobody."""
    hosts = ",".join(f"127.0.0.1:{port}" for port in (1, *ports))
    url = f"redis+sentinel://{hosts}/jobs"
    locks = RedisLockProvider("default", url=url, **options)
    yield locks
    locks.server.clients.close()


def test_sentinel_names_the_new_master(
    tmp_path: Path, servers: list[RedisServer]
) -> None:
    """With two of three servers gone, the confirmed lock is still held on the third."""
    master, _, other = servers
    with sentinels(tmp_path, master) as ports:
        options = {"wait_replicas": 2, "wait_timeout": "4m"}
        with locks_by(ports, **options) as locks:
            held = take_when_store_answers(locks)
            holder = wait_for(lambda: try_if_store_answers(locks))
            assert isinstance(holder, LockHolder)
            assert holder.locked_by == held.locked_by
        with locks_by(ports) as locks:
            other.end()
            wait_for(lambda: all(gone(port, other) for port in ports))
            master.end()
            assert isinstance(
                wait_for(lambda: try_if_store_answers(locks, "job")), LockHolder
            )
            assert isinstance(
                wait_for(lambda: try_if_store_answers(locks, "other")), Lock
            )


def test_two_of_three_masters_gone(tmp_path: Path) -> None:
    """A cluster that is not whole gives no lock; what was held is held afterwards."""
    with cluster(tmp_path) as servers:
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
        url = f"redis+cluster://{hosts}"
        locks = RedisLockProvider("default", url=url, socket_timeout=0.5)
        names = [f"job {number}" for number in range(4)]
        for name in names:
            take_when_store_answers(locks, name)
        with servers[1].paused(), servers[2].paused():
            wait_for(lambda: servers[0].ask("CLUSTER INFO")["cluster_state"] == "fail")
            for name in [*names, "new"]:
                with pytest.raises(LockProviderError, match=name):
                    try_from(locks, configure(name))
        for server in servers:
            wait_for(lambda s=server: s.ask("CLUSTER INFO")["cluster_state"] == "ok")
        for name in names:
            assert isinstance(
                wait_for(lambda n=name: try_if_store_answers(locks, n)), LockHolder
            )
        locks.server.clients.close()
