"""What an etcd does that is full, refuses a user, or is not where it should be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockState, RunOutcome
from django_shedlock.providers.etcd import EtcdLockProvider
from tests.support.etcd_servers import EtcdServer, etcd_servers
from tests.support.locks import MINUTE, configure, status_of, take
from tests.support.ports import free_port
from tests.support.store_states import StoreStates

HOUR = timedelta(hours=1)
TINY = ("--quota-backend-bytes", str(2**20))


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """Run a server that is soon full."""
    with etcd_servers(tmp_path_factory.mktemp("etcd"), 1, options=TINY) as [running]:
        yield running


@contextmanager
def full(server: EtcdServer) -> Iterator[None]:
    server.fill()
    yield
    server.make_room()


class TestStates(StoreStates):
    """A server of its own for each test."""

    store = "etcd"
    full_fix = "space exceeded. Compact its history, defragment each member"
    forbidden_fix = "permission denied.*grant-permission ROLE readwrite --prefix=true"
    releases_when_full = False

    @pytest.fixture(autouse=True)
    def of_server(self, server: EtcdServer) -> None:
        self.server = server

    @pytest.fixture
    def locks(self, server: EtcdServer) -> Iterator[EtcdLockProvider]:
        provider = EtcdLockProvider("default", endpoints=server.url)
        yield provider
        provider.members.clients.close()

    @contextmanager
    def full(self, locks: EtcdLockProvider) -> Iterator[None]:
        with full(self.server):
            yield

    @contextmanager
    def forbidden(self, locks: EtcdLockProvider) -> Iterator[EtcdLockProvider]:
        self.server.require_login("reader", "secret", locks.prefix, "READ")
        login = {"user": "reader", "password": "secret"}
        reader = EtcdLockProvider("default", endpoints=self.server.url, **login)
        yield reader
        reader.members.clients.close()
        self.server.require_no_login()

    def at(self, port: int, *, tls: bool) -> EtcdLockProvider:
        scheme = "https" if tls else "http"
        return EtcdLockProvider("default", endpoints=f"{scheme}://127.0.0.1:{port}")

    @contextmanager
    def plain_port(self, locks: EtcdLockProvider) -> Iterator[int]:
        yield self.server.port

    def test_full_store_frees_the_lock(self, locks: EtcdLockProvider) -> None:
        """A release deletes the holder's key, though it can't write the record."""
        held = take(configure(), locks)
        with full(self.server):
            with pytest.raises(LockProviderError):
                locks.release(held)
            assert status_of(locks).state is LockState.EXPIRED
        again = take(configure(), locks)
        assert again.abandoned is not None
        assert again.abandoned.locked_by == held.locked_by
        assert not locks.release(held)
        assert status_of(locks).job.outcome == RunOutcome.ABANDONED

    def test_full_store_beside_a_member_that_is_away(self) -> None:
        """What etcd says counts more than that the last member was not reached."""
        endpoints = [self.server.url, f"http://127.0.0.1:{free_port()}"]
        locks = EtcdLockProvider("default", endpoints=endpoints)
        held = take(configure(), locks)
        with full(self.server):
            with pytest.raises(LockProviderError, match=self.full_fix):
                locks.release(held)
            assert status_of(locks).state is LockState.EXPIRED
        locks.members.clients.close()

    @pytest.mark.parametrize("at_most", [HOUR, 2 * HOUR])
    def test_full_store_keeps_a_lock_for_its_least_time(
        self, locks: EtcdLockProvider, at_most: timedelta
    ) -> None:
        """
        A full store keeps a lock held when its release fails.

        A later release, with room, keeps the lock until its least time is over.
        """
        held = take(configure("job", at_most, HOUR), locks)
        with full(self.server):
            with pytest.raises(LockProviderError, match=self.full_fix):
                locks.release(held)
            assert status_of(locks).state is LockState.RUNNING
        held.was_release_tried = True
        assert locks.release(held)
        assert MINUTE < status_of(locks).remaining <= HOUR

    def test_store_that_gets_full_amid_an_extension(
        self, locks: EtcdLockProvider, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The holder keeps the lease that it has."""
        held = take(configure(), locks)
        grant = locks._grant

        def then_full(name: str, seconds: float) -> int:
            lease = grant(name, seconds)
            self.server.alarm("NOSPACE", "ACTIVATE")
            return lease

        monkeypatch.setattr(locks, "_grant", then_full)
        with pytest.raises(LockProviderError, match=self.full_fix):
            locks.extend(held, HOUR)
        assert status_of(locks).state is LockState.RUNNING

    def test_full_store_ends_no_other_lease(self, locks: EtcdLockProvider) -> None:
        """A release that has read an older state frees nothing."""
        entry, version, now = locks.read(take(configure(), locks).name)
        assert entry is not None
        successor = Lock(locks, configure())
        status = status_of(locks)
        assert locks.replace(status, MINUTE, locked_by=successor.locked_by)
        with full(self.server), pytest.raises(LockProviderError):
            locks.write("job", entry.released(now, now), version)
        status = status_of(locks)
        assert status.locked_by == successor.locked_by
        assert status.state.is_held
