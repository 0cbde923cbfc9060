"""Django's cache in a database table, by statements of our own."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.cache import caches
from django.db import DatabaseError, connection, transaction
from django.test import override_settings

from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.states import CONTENDED, LockHolder
from django_shedlock.providers.cache import CacheLockProvider, stores
from django_shedlock.providers.database.errors import NoAnswer
from tests.providers.cache.conftest import TABLE
from tests.support.cached_locks import end_lease
from tests.support.locks import configure, take_from
from tests.support.processes import Parent, worker

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("table"),
]


def holder_seen(parent: Parent, caches: Any) -> str:
    """Return who holds the lock, by the eyes of another process."""
    with override_settings(CACHES=caches):
        lock = CacheLockProvider("default").acquire(configure())
    return str(lock) if isinstance(lock, LockHolder) else "nobody"


def test_row_is_one_of_the_cache(table: Any) -> None:
    """Django reads the lock as it reads any value, and finds none after a release."""
    lock = take_from(CacheLockProvider("default"), configure())
    assert lock.locked_by in caches["default"].get("shedlock:job")
    assert lock.release()
    assert caches["default"].get("shedlock:job") is None


def test_row_is_used_again() -> None:
    """A name has one row, whatever became of its locks; a free one is no entry."""
    provider = CacheLockProvider("default")
    for _ in range(3):
        assert take_from(provider, configure()).release()
        end_lease(take_from(provider, configure()))
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) FROM {TABLE}")
        assert cursor.fetchone()[0] == 1


@pytest.mark.parametrize("use_tz", [True, False])
def test_expiry_is_by_the_clock_of_the_database(use_tz: bool) -> None:
    """Whatever zone the project is in."""
    provider = CacheLockProvider("default")
    with override_settings(USE_TZ=use_tz):
        lock = take_from(provider, configure())
    with override_settings(USE_TZ=not use_tz):
        assert isinstance(provider.acquire(configure()), LockHolder)
        end_lease(lock)
        assert take_from(provider, configure()).release()


@pytest.mark.servers_only
def test_lock_in_a_transaction_is_seen_at_once(table: Any) -> None:
    """And a rollback keeps it, which Django's cache would lose."""
    provider = CacheLockProvider("default")
    with transaction.atomic():
        lock = take_from(provider, configure())
        with worker(holder_seen, table) as other:
            assert other.result() == lock.locked_by
        transaction.set_rollback(True)
    with worker(holder_seen, table) as other:
        assert other.result() == lock.locked_by


def test_missing_table(settings: Any, table: Any) -> None:
    """The error names the command that makes it."""
    settings.CACHES = {"default": {**table["default"], "LOCATION": "no_such_table"}}
    with pytest.raises(LockProviderError, match="'no_such_table' is missing.*create"):
        CacheLockProvider("default").acquire(configure())


def test_caller_in_the_way_is_the_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A conflict that goes on is no failure of the store."""
    monkeypatch.setattr(stores, "is_conflict", lambda error: True)
    monkeypatch.setattr(stores, "run", failing(DatabaseError("deadlock")))
    assert CacheLockProvider("default").acquire(configure()) is CONTENDED


def test_lost_answer_is_uncertain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows whether the lock is held now."""
    monkeypatch.setattr(stores, "run", failing(NoAnswer("it broke")))
    with pytest.raises(LockProviderError, match="it broke") as failure:
        CacheLockProvider("default").acquire(configure())
    assert failure.value.is_uncertain


def failing(error: Exception) -> Any:
    def run(*args: Any) -> None:
        raise error

    return run


def test_two_tables_are_two_stores(settings: Any, table: Any) -> None:
    """Each has statements of its own."""
    assert stores._statements_of("one") is stores._statements_of("one")
    assert stores._statements_of("one") is not stores._statements_of("two")
    lock = CacheLockProvider("default").acquire(configure())
    assert isinstance(lock, Lock)
    assert lock.release()
