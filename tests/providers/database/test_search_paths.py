"""Tenants by schema: a lock is where its caller's search path leads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from django_shedlock import LockProviderError, execute, hold
from django_shedlock.providers.database import DatabaseLockProvider, acquisition
from django_shedlock.test import force_release
from tests.support.leases import beat_now, lease_end
from tests.support.processes import Parent, worker
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.postgres_only, pytest.mark.django_db(transaction=True)]

TENANTS = ("acme", "globex")
MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "transaction": transaction.atomic,
    "autocommit": nullcontext,
}


def choose(tenant: str) -> None:
    """Look into the tenant's schema from now on, as django-tenants does."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET search_path TO {tenant}, public")


@pytest.fixture(autouse=True)
def tenants() -> Iterator[None]:
    """Give each tenant tables, beside those that a new connection finds."""
    with connection.cursor() as cursor:
        for tenant in TENANTS:
            cursor.execute(f"CREATE SCHEMA {tenant}")
            for table in ("shedlock", "shedlock_run"):
                like = f"(LIKE public.{table} INCLUDING ALL)"
                cursor.execute(f"CREATE TABLE {tenant}.{table} {like}")
    yield
    with connection.cursor() as cursor:
        for tenant in TENANTS:
            cursor.execute(f"DROP SCHEMA {tenant} CASCADE")
    connection.close()


def held() -> list[str]:
    """Return the schemas in whose tables a lock is held."""
    found = []
    for schema in ("public", *TENANTS):
        with connection.cursor() as cursor:
            held = "lock_until > clock_timestamp()"
            cursor.execute(f"SELECT count(*) FROM {schema}.shedlock WHERE {held}")
            found += [schema] * cursor.fetchone()[0]
    return found


def outcomes() -> dict[str, list[str]]:
    """Return the outcomes of each schema's runs."""
    found = {}
    for schema in ("public", *TENANTS):
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT outcome FROM {schema}.shedlock_run")
            found[schema] = [outcome for (outcome,) in cursor.fetchall()]
    return found


def hold_on(parent: Parent, tenant: str, mode: str) -> bool:
    """Hold the tenant's lock, and let it beat; return whether it was ours."""
    choose(tenant)
    with MODES[mode](), hold("job", keep_alive=True) as lock:
        parent.say("inside")
        parent.wait()
        before = lease_end(lock)
        beat_now(lock)
        wait_for(lambda: lease_end(lock) > before or lock.lost.is_set())
        parent.say(held())
        parent.wait()
        return lock.release()


@pytest.mark.parametrize("theirs", MODES)
@pytest.mark.parametrize("ours", MODES)
def test_one_process_has_the_lock_of_a_tenant(ours: str, theirs: str) -> None:
    """Its beats reach it, and its release; another tenant's lock is another one."""
    with worker(hold_on, "acme", theirs) as holder:
        assert holder.heard() == "inside"
        for tenant, is_free in [("acme", False), ("globex", True)]:
            choose(tenant)
            with MODES[ours]():
                assert execute(list, "job").was_executed is is_free
        holder.send()
        assert holder.heard() == ["acme"]
        holder.send()
        assert holder.result() is True
    choose("acme")
    with MODES[ours]():
        assert execute(list, "job").was_executed


@pytest.mark.parametrize("mode", MODES)
def test_skip_for_one_tenant_is_none_for_another(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record is remembered, but another tenant may have none yet."""
    monkeypatch.setattr(acquisition, "is_of_a_test", lambda connection: False)
    with worker(hold_on, "acme", mode) as holder:
        assert holder.heard() == "inside"
        choose("acme")
        with MODES[mode]():
            assert not execute(list, "job").was_executed
        choose("globex")
        with MODES[mode]():
            assert execute(list, "job").was_executed
        for _ in range(2):
            holder.send()


@pytest.mark.parametrize("mode", MODES)
def test_late_release_reaches_the_tenant(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes from another thread, whose connection looks elsewhere."""
    choose("acme")
    with MODES[mode](), monkeypatch.context() as broken:
        holding = hold("job", lock_at_most_for="10m")
        holding.__enter__()
        assert held() == ["acme"]
        real = DatabaseLockProvider.release

        def fail_here(self: Any, lock: Any, **options: Any) -> bool:
            broken.setattr(DatabaseLockProvider, "release", real)
            raise LockProviderError("the store is away")

        broken.setattr(DatabaseLockProvider, "release", fail_here)
        holding.__exit__(None, None, None)
        wait_for(lambda: held() == [])


@pytest.mark.parametrize("mode", MODES)
def test_release_on_a_new_connection_reaches_the_tenant(mode: str) -> None:
    """A body may close the connection whose search path was set."""
    choose("acme")
    with hold("job", lock_at_most_for="10m"):
        connection.close()
    assert held() == []


def test_body_may_look_elsewhere() -> None:
    """A job may go through the tenants, and is not lost because of that."""
    choose("acme")
    with hold("job", lock_at_most_for="10m") as lock:
        choose("globex")
        lock.extend()
        assert lock.fencing_token == 1
    assert not lock.is_lost
    assert held() == []
    assert outcomes() == {"public": [], "acme": ["succeeded"], "globex": []}


def test_loss_is_told_to_a_body_that_looks_elsewhere() -> None:
    """The release that asks both schemas is no release that is sent again."""
    choose("acme")
    with hold("job", lock_at_most_for="10m") as lock:
        assert force_release("job")
        choose("globex")
    assert lock.lost.is_set()


def test_broken_transaction_keeps_no_lock() -> None:
    """It answers no question, so the lock knows where it is."""
    choose("acme")
    with transaction.atomic():
        with pytest.raises(DatabaseError), hold("job", lock_at_most_for="10m"):
            connection.cursor().execute("no SQL")
        transaction.set_rollback(True)
    assert held() == []


def test_private_connection_goes_back_to_its_own_path() -> None:
    """Who chose no tenant finds the same table before and after others."""
    with transaction.atomic(), hold("first"):
        pass
    choose("acme")
    with transaction.atomic(), hold("second", lock_at_most_for="10m"):
        assert held() == ["acme"]
    connection.close()
    with transaction.atomic(), hold("third", lock_at_most_for="10m"):
        assert held() == ["public"]


@pytest.mark.parametrize("mode", MODES)
def test_lock_in_a_transaction_knows_its_record(mode: str) -> None:
    """Another table's record is not its own, and no sign of a loss."""
    choose("acme")
    with MODES[mode](), hold("job", lock_at_most_for="10m") as lock:
        assert lock.fencing_token == 1
        assert lock.refresh()
        assert not lock.is_lost


@pytest.mark.parametrize("mode", MODES)
def test_run_is_where_its_lock_is(mode: str) -> None:
    """Its end and its loss are told by it, and by no run of another tenant's."""
    with hold("another job", lock_at_most_for="10m"):
        choose("acme")
        with MODES[mode](), hold("job", lock_at_most_for="10m") as lock:
            assert outcomes()["acme"] == ["running"]
            lock.declare_lost()
            wait_for(lambda: outcomes()["acme"] == ["lost"])
        assert outcomes() == {"public": ["running"], "acme": ["lost"], "globex": []}
        choose("public")
