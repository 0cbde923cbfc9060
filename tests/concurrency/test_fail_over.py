"""Workers that live on while their database fails over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, connections, transaction

from django_shedlock import LockProviderError, hold
from django_shedlock.locks.lock import Lock
from django_shedlock.models import LockRecord
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.sql.connections import private_connections
from tests.support.guardian import guarded_folder, remove
from tests.support.locks import LEASE, configure, take, try_from
from tests.support.processes import Parent, worker
from tests.support.proxies import Proxy, proxy
from tests.support.replicas import PostgresPair, own_pair
from tests.support.servers import MariaDB, answers, own_server, use
from tests.support.waiting import STARTUP_PATIENCE, wait_for

pytestmark = [pytest.mark.servers_only, pytest.mark.django_db(transaction=True)]


class FailOver:
    """What a test sees of a fail-over, on either database."""

    def begin(self) -> None:
        """Let another server be the primary; the address leads to a read-only one."""
        raise NotImplementedError

    def end(self) -> None:
        """Let new connections lead to the primary."""
        raise NotImplementedError

    def go_back(self) -> None:
        """Let new connections lead to the former primary, as an old name does."""
        raise NotImplementedError


class PostgresFailOver(FailOver):
    """The replica is promoted, and the former primary follows it."""

    def __init__(self, pair: PostgresPair):
        self._pair = pair

    def begin(self) -> None:
        self._pair.promote()
        self._pair.follow()

    def end(self) -> None:
        self._pair.lead_clients()

    def go_back(self) -> None:
        self._pair.proxy.lead_to(self._pair.replica.port)


class MariaDBFailOver(FailOver):
    """The primary becomes read-only, and another server has the same tables."""

    def __init__(self, former: MariaDB, later: MariaDB, network: Proxy):
        self._former, self._later, self._network = former, later, network

    def begin(self) -> None:
        execute(self._former, "SET GLOBAL read_only = 1")

    def end(self) -> None:
        self._network.lead_to(self._later.address())

    def go_back(self) -> None:
        self._network.lead_to(self._former.address())


def execute(server: MariaDB, statement: str) -> None:
    """Let an administrator send a statement, who may write to a read-only server."""
    administrator = connections["default"].copy()
    administrator.settings_dict.update(server.settings())
    with administrator.cursor() as cursor:
        cursor.execute(statement)
    administrator.close()


@contextmanager
def two_mariadbs() -> Iterator[FailOver]:
    """Let a user without privileges reach one of two servers by one address."""
    folder = guarded_folder("shedlock_server_")
    with own_server() as former:
        assert isinstance(former, MariaDB)
        later = MariaDB(folder)
        try:
            use(later.settings())
            wait_for(answers, timeout=STARTUP_PATIENCE, pause=0.05)
            call_command("migrate", run_syncdb=True, verbosity=0)
            for server in (former, later):
                execute(server, "CREATE USER worker@localhost")
                execute(server, "GRANT ALL ON test.* TO worker@localhost")
            with proxy(former.address()) as network:
                address = {"HOST": "127.0.0.1", "PORT": str(network.port)}
                use({"USER": "worker", **address})
                yield MariaDBFailOver(former, later, network)
                execute(former, "SET GLOBAL read_only = 0")
        finally:
            later.stop()
            remove(folder)


@pytest.fixture
def fail_over() -> Iterator[FailOver]:
    if connection.vendor == "mysql":
        with two_mariadbs() as fail_over:
            yield fail_over
    else:
        with own_pair() as pair:
            yield PostgresFailOver(pair)


@pytest.fixture
def provider() -> DatabaseLockProvider:
    return DatabaseLockProvider("default")


def connect() -> object:
    """Open the caller's connection, and return what the driver has for it."""
    LockRecord.objects.count()
    return connection.connection


def is_writable() -> bool:
    LockRecord.objects.filter(name="nobody's").delete()
    return True


def work_on(parent: Parent) -> list[str]:
    """Try to hold a lock whenever the parent asks, as a worker that never ends."""
    connection.settings_dict["CONN_MAX_AGE"] = None
    answers = []
    for _ in range(4):
        parent.say("ready")
        parent.wait()
        try:
            with hold("job", lock_at_most_for=LEASE):
                answers.append("held")
        except LockProviderError as error:
            answers.append(f"{error} {error.is_uncertain}")
    return answers


def test_worker_gets_its_locks_from_the_new_primary(fail_over: FailOver) -> None:
    """A process that lives on needs no restart, and no connection of its own closed."""
    with worker(work_on) as process:
        process.heard()
        process.send()
        process.heard()
        fail_over.begin()
        for _ in range(2):
            process.send()
            process.heard()
        fail_over.end()
        process.send()
        before, *meanwhile, after = process.result()
    assert (before, after) == ("held", "held")
    for answer in meanwhile:
        assert "It is read-only, as a replica is" in answer
    # The first one may have lost an answer together with its connection.
    assert meanwhile[1].endswith("False"), "nothing was written"


def test_open_connection_to_a_former_primary_is_replaced(
    fail_over: FailOver, provider: DatabaseLockProvider
) -> None:
    """The lock is acquired within the same call, and the next statement reconnects."""
    fail_over.begin()
    connection.close()
    former = connect()
    fail_over.end()
    lock = take(configure(), provider)
    assert connect() is not former
    assert is_writable()
    assert lock.release()


def test_transaction_on_a_former_primary_is_not_ended(
    fail_over: FailOver, provider: DatabaseLockProvider
) -> None:
    """A lock is acquired beside it, and its connection is the caller's to close."""
    fail_over.begin()
    for kind in ("atomic", "set_autocommit", "raw BEGIN"):
        fail_over.go_back()
        connection.close()
        former = connect()
        with begun(kind):
            connect()
            fail_over.end()
            lock = take(configure(), provider)
            assert connect() is former, kind
        connection.close()
        assert lock.release()


@contextmanager
def begun(kind: str) -> Iterator[None]:
    """Be inside a transaction of the caller's that was begun in this way."""
    if kind == "atomic":
        with transaction.atomic():
            yield
        return
    if kind == "set_autocommit":
        transaction.set_autocommit(False)
    else:
        send("BEGIN")
    yield
    if kind == "set_autocommit":
        transaction.rollback()
        transaction.set_autocommit(True)
    else:
        send("ROLLBACK")


def send(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


@pytest.mark.usefixtures("outside_tests")
def test_idle_private_connections_to_a_former_primary_are_closed(
    fail_over: FailOver, provider: DatabaseLockProvider
) -> None:
    """The next lock inside a transaction needs one fresh connection, not several."""
    fail_over.begin()
    connection.close()
    with transaction.atomic():
        LockRecord.objects.count()
        borrowed = private_connections.borrowed
        with borrowed(connection), borrowed(connection):
            pass
        assert len(private_connections._idle) == 2
        fail_over.end()
        lock = take(configure(lock_at_most_for=LEASE), provider)
    assert provider.heartbeat(lock)
    connection.close()
    private_connections.close_idle()


@pytest.mark.postgres_only
def test_pool_gives_no_connection_to_a_former_primary_back(
    fail_over: FailOver, provider: DatabaseLockProvider, monkeypatch: Any
) -> None:
    """A pool would lend it again, because it works; so it gets it closed."""
    options = connections["default"].settings_dict["OPTIONS"]
    connections["default"].close()
    monkeypatch.setitem(options, "pool", {"min_size": 1, "max_size": 1})
    fail_over.begin()
    try:
        with pytest.raises(LockProviderError):
            try_from(provider, configure())
        connect()
        fail_over.end()
        assert isinstance(try_from(provider, configure()), Lock)
        assert is_writable()
    finally:
        connection.close()
        connection.close_pool()  # type: ignore[attr-defined]


@pytest.mark.postgres_only
def test_target_session_attrs_finds_the_primary(
    provider: DatabaseLockProvider,
) -> None:
    """With ``target_session_attrs`` each connection leads to the current primary."""
    with own_pair() as pair:
        ports = f"{pair.replica.port},{pair.primary.port}"
        options = {"target_session_attrs": "read-write"}
        use({"HOST": "127.0.0.1,127.0.0.1", "PORT": ports, "OPTIONS": options})
        assert take(configure(), provider).release()
        pair.promote()
        pair.follow()
        assert take(configure(), provider).release()


@pytest.mark.postgres_only
def test_synchronous_replica_has_each_acquisition(
    provider: DatabaseLockProvider,
) -> None:
    """If the primary is lost at once, the new one knows who holds the lock."""
    names = [f"job {number}" for number in range(20)]
    with own_pair(synchronous=True) as pair:
        for name in names:
            take(configure(name), provider).release()
        locks = [take(configure(name, LEASE), provider) for name in names]
        tokens = [lock.fencing_token for lock in locks]
        pair.promote(crash=True)
        pair.lead_clients()
        connection.close()
        found = {status.name: status for status in provider.statuses()}
        assert [found[lock.name].fencing_token for lock in locks] == tokens
        assert all(provider.extend(lock, LEASE) for lock in locks)
