"""The caller's connection: transactions, requests, tests, pools."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import Group
from django.db import connection, connections, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import path

from django_shedlock import aexecute, hold
from django_shedlock.functions import DatabaseNow
from django_shedlock.locks import Lock
from django_shedlock.models import LockRecord
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.states import LockState
from django_shedlock.test import is_held
from tests.support.locks import MINUTE, configure, take_from, try_once
from tests.support.processes import worker
from tests.support.sessions import kill_session, session_number
from tests.support.threads import run_threads
from tests.support.waiting import PATIENCE

committed = pytest.mark.django_db(transaction=True)

seen: list[str] = []


def locking_view(request: HttpRequest) -> HttpResponse:
    """Take a lock in a request, and ask another process who holds it."""
    with hold("job") as lock, worker(try_once) as other:
        seen[:] = [lock.locked_by, other.result()]
    return HttpResponse()


urlpatterns = [path("lock/", locking_view)]


@pytest.mark.servers_only
@committed
@override_settings(ROOT_URLCONF=__name__)
def test_atomic_requests_do_not_hide_the_lock(monkeypatch: Any) -> None:
    """A lock taken in a request's transaction is seen by others at once."""
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    assert Client().get("/lock/").status_code == 200
    assert seen[0] == seen[1]


@pytest.mark.django_db
def test_testcase_sees_its_own_lock_and_fixtures() -> None:
    """Inside TestCase's transaction, locks and fixtures share one connection."""
    provider = DatabaseLockProvider("default")
    LockRecord.objects.create(
        name="fixture",
        lock_until=DatabaseNow() + MINUTE,
        locked_at=DatabaseNow(),
        locked_by="the test",
    )
    assert str(provider.acquire(configure("fixture"))) == "the test"
    lock = take_from(provider, configure())
    assert LockRecord.objects.get(name="job").locked_by == lock.locked_by
    assert lock.release()


@pytest.mark.django_db
def test_atomic_inside_testcase_stays_on_the_connection() -> None:
    """The user's own atomic() in a TestCase sees the lock, too."""
    provider = DatabaseLockProvider("default")
    with transaction.atomic():
        take_from(provider, configure())
        assert LockRecord.objects.get().name == "job"
        assert provider.statuses("job")[0].state is LockState.RUNNING


@pytest.mark.servers_only
@committed
def test_own_connection_is_closed_and_put_back() -> None:
    """After a lock statement in a transaction the caller's connection is in place."""
    mine = connections["default"]
    with transaction.atomic():
        Group.objects.create(name="of the caller")
        lock = take_from(DatabaseLockProvider("default"), configure())
        assert connections["default"] is mine
        assert lock.release()
        assert connections["default"] is mine
    assert Group.objects.count() == 1


@pytest.mark.servers_only
@committed
def test_without_autocommit_the_lock_is_committed() -> None:
    """A caller that commits by hand still takes locks that others see."""
    transaction.set_autocommit(False)
    try:
        lock = take_from(DatabaseLockProvider("default"), configure())
        with worker(try_once) as other:
            assert other.result() == lock.locked_by
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)


@pytest.mark.servers_only
@committed
def test_row_lock_of_the_caller_ends_in_held() -> None:
    """Who has locked the row in its own transaction does not wait for itself."""
    provider = DatabaseLockProvider("default")
    take_from(provider, configure()).release()
    with transaction.atomic():
        LockRecord.objects.update(locked_by="caller")
        assert not isinstance(provider.acquire(configure()), Lock)


@pytest.fixture
def pooled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let this process take its connections from a pool of two."""
    pool = {"min_size": 2, "max_size": 2, "timeout": 20}
    connections["default"].close()
    monkeypatch.setitem(connections["default"].settings_dict["OPTIONS"], "pool", pool)
    yield
    connections["default"].close()
    connections["default"].close_pool()  # type: ignore[attr-defined]


@pytest.mark.postgres_only
@pytest.mark.usefixtures("pooled")
@committed
def test_pool_with_every_connection_in_a_transaction() -> None:
    """Where callers' transactions have the whole pool, all get their locks."""
    provider = DatabaseLockProvider("default")
    both_inside = threading.Barrier(2)
    names = iter("ab")
    results: list[object] = []

    def lock_in_transaction() -> None:
        with transaction.atomic():
            Group.objects.count()
            both_inside.wait(PATIENCE)
            results.append(provider.acquire(configure(next(names))))
            both_inside.wait(PATIENCE)

    run_threads(2, lock_in_transaction)
    assert [type(result) for result in results] == [Lock, Lock]


@pytest.mark.postgres_only
@pytest.mark.usefixtures("pooled")
@committed
def test_pool_of_dead_connections_does_not_keep_a_lock() -> None:
    """If every connection of the pool died, the lock is released all the same."""
    provider = DatabaseLockProvider("default")
    lock = take_from(provider, configure())
    both_connected = threading.Barrier(2)

    def connect_and_die() -> None:
        number = session_number()
        both_connected.wait(PATIENCE)
        kill_session(number)

    connections["default"].close()
    run_threads(2, connect_and_die)
    assert provider.release(lock)
    assert provider.statuses("job")[0].state is LockState.FREE


@committed
def test_async_body_holds_a_lock_of_the_database() -> None:
    """The async twins take and release their lock in the database."""

    async def body() -> bool:
        return await sync_to_async(is_held)("job")

    assert async_to_sync(aexecute)(body, "job").value is True
    assert not is_held("job")
