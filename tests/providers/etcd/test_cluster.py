"""What three members promise when some of them are gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockHolder
from django_shedlock.providers.etcd import EtcdLockProvider
from tests.providers.etcd.test_contract import end_lease
from tests.support.etcd_servers import EtcdServer, etcd_servers, members_of
from tests.support.locks import (
    configure,
    take_when_store_answers,
    try_from,
    try_if_store_answers,
    try_to_acquire,
    try_to_release,
)
from tests.support.proxies import proxy
from tests.support.standstills import gone
from tests.support.waiting import wait_for


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[EtcdServer]]:
    with etcd_servers(tmp_path, 3) as running:
        yield running


@contextmanager
def locks_of(endpoints: list[str], **options: Any) -> Iterator[EtcdLockProvider]:
    provider = EtcdLockProvider("default", endpoints=endpoints, **options)
    yield provider
    provider.members.clients.close()


def urls(servers: list[EtcdServer]) -> list[str]:
    return [server.url for server in servers]


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "stopped"])
def test_one_member_gone(servers: list[EtcdServer], *, killed: bool) -> None:
    """Whichever it is, locks are held as before, and others can be acquired."""
    with locks_of(urls(servers), timeout="6s") as locks:
        held = take_when_store_answers(locks)
        token = held.fencing_token
        with gone(servers[:1], killed=killed):
            assert isinstance(wait_for(lambda: try_if_store_answers(locks)), LockHolder)
            other, again = Lock(locks, configure("other")), Lock(locks, configure())
            assert wait_for(lambda: try_to_acquire(other))
            assert wait_for(lambda: try_to_release(other))
            assert wait_for(lambda: try_to_release(held))
            assert wait_for(lambda: try_to_acquire(again))
            assert token is not None
            assert (again.fencing_token or 0) > token


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "stopped"])
def test_two_members_gone(servers: list[EtcdServer], *, killed: bool) -> None:
    """The third gives no lock; when they come back the lock is held as before."""
    with locks_of(urls(servers), timeout="1500ms") as locks:
        held = take_when_store_answers(locks)
        with gone(servers[1:], killed=killed):
            for name in ("job", "new"):
                with pytest.raises(LockProviderError, match=f"{name!r} in etcd"):
                    try_from(locks, configure(name))
            with pytest.raises(LockProviderError, match="'job' in etcd"):
                locks.extend(held, configure().lock_at_most_for)
            if killed:
                for server in servers[1:]:
                    server.start(members_of(servers))
        assert isinstance(wait_for(lambda: try_if_store_answers(locks)), LockHolder)
        new = Lock(locks, configure("new"))
        assert wait_for(lambda: try_to_acquire(new))
        assert wait_for(lambda: try_to_release(held))


def test_member_that_is_cut_off(servers: list[EtcdServer]) -> None:
    """A client that reaches only a part of the members uses the others."""
    with ExitStack() as stack:
        networks = [stack.enter_context(proxy(server.port)) for server in servers]
        ways = [f"http://127.0.0.1:{network.port}" for network in networks]
        with locks_of(ways, timeout="3s") as locks:
            held = take_when_store_answers(locks)
            with networks[0].cut(), networks[1].cut():
                assert isinstance(
                    wait_for(lambda: try_if_store_answers(locks)), LockHolder
                )
                assert wait_for(lambda: try_to_release(held))
                again = Lock(locks, configure())
                assert wait_for(lambda: try_to_acquire(again))
        with locks_of(ways, timeout="600ms") as locks, ExitStack() as cuts:
            for network in networks:
                cuts.enter_context(network.cut())
            with pytest.raises(LockProviderError, match="'job' in etcd"):
                try_from(locks, configure())
    with locks_of(urls(servers)) as locks:
        holder = wait_for(lambda: try_if_store_answers(locks))
        assert isinstance(holder, LockHolder)
        assert holder.locked_by == again.locked_by


def test_restart_keeps_locks(tmp_path: Path) -> None:
    """
    A single etcd member keeps its locks when it restarts.

    The member answers only after it has written.
    """
    with etcd_servers(tmp_path, 1) as [server], locks_of([server.url]) as locks:
        held = take_when_store_answers(locks)
        server.end()
        server.start(members_of([server]))
        assert isinstance(wait_for(lambda: try_if_store_answers(locks)), LockHolder)
        end_lease(locks, "job")
        assert isinstance(try_if_store_answers(locks), Lock)
        assert not locks.release(held)
