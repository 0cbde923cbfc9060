"""Real processes that want one lock at the same moment."""

from __future__ import annotations

import multiprocessing.synchronize
import random
import time
from contextlib import closing, nullcontext
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F

from django_shedlock.locks.lock import Lock
from django_shedlock.locks.states import CONTENDED
from django_shedlock.models import LockRecord
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.test.contract.locking import ROUNDS, WORKERS
from tests.models import Counter
from tests.support.locks import configure, take_at_last, take_from, try_from, try_once
from tests.support.processes import Parent, context, worker, workers
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.django_db(transaction=True)

RACERS = 16
RACES = 10
Barrier = multiprocessing.synchronize.Barrier

SERIALIZABLE = {
    "postgresql": "SET default_transaction_isolation = 'serializable'",
    "mysql": "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
}


def race(parent: Parent, barrier: Any, isolation: str) -> list[str]:
    """Return the names that this process won, of those all processes wanted."""
    provider = DatabaseLockProvider("default")
    with connection.cursor() as cursor:
        cursor.execute(isolation)
    won = []
    for turn in range(RACES):
        for name in (f"fresh {turn}", f"expired {turn}"):
            barrier.wait(PATIENCE)
            if isinstance(try_from(provider, configure(name)), Lock):
                won.append(name)
    return won


def names() -> list[str]:
    return [f"{kind} {turn}" for kind in ("expired", "fresh") for turn in range(RACES)]


def run_race(isolation: str) -> list[str]:
    provider = DatabaseLockProvider("default")
    for turn in range(RACES):
        take_from(provider, configure(f"expired {turn}"))
    LockRecord.objects.update(lock_until=F("lock_until") - timedelta(days=1))
    barrier = context.Barrier(RACERS)
    with workers(RACERS, race, barrier, isolation) as racers:
        return sorted(name for racer in racers for name in racer.result())


@pytest.mark.servers_only
def test_one_of_sixteen_serializable_processes_wins() -> None:
    """Of sixteen one wins, also where every statement is serializable."""
    assert run_race(SERIALIZABLE[connection.vendor]) == sorted(names())


def count(parent: Parent, in_transaction: bool) -> None:
    """Add to two counters, each read, waited for and written under its lock."""
    provider = DatabaseLockProvider("default")
    if in_transaction:
        with transaction.atomic():
            add_to_counters(provider)
    else:
        add_to_counters(provider)


def add_to_counters(provider: DatabaseLockProvider) -> None:
    table = Counter._meta.db_table
    # Written outside the worker's outer transaction, as another system would.
    with closing(connection.copy()) as other, other.cursor() as cursor:
        for turn in range(ROUNDS):
            name = ("even", "odd")[turn % 2]
            lock = take_at_last(provider, configure(name))
            cursor.execute(f"SELECT value FROM {table} WHERE name = %s", [name])
            value = cursor.fetchone()[0] + 1
            time.sleep(0.001)
            cursor.execute(
                f"UPDATE {table} SET value = %s WHERE name = %s", [value, name]
            )
            assert provider.release(lock)


@pytest.fixture
def counters() -> None:
    Counter.objects.bulk_create([Counter(name="even"), Counter(name="odd")])


def totals() -> list[int]:
    return list(Counter.objects.order_by("name").values_list("value", flat=True))


@pytest.mark.usefixtures("counters")
@pytest.mark.servers_only
@pytest.mark.parametrize("in_transaction", [False, True])
def test_processes_never_overlap(in_transaction: bool) -> None:
    """Eight processes lose no step of two counters, in a transaction or not."""
    with workers(WORKERS, count, in_transaction) as counting:
        for each in counting:
            each.result()
    assert totals() == [WORKERS * ROUNDS // 2] * 2


def count_on_sqlite(parent: Parent, in_transaction: bool) -> None:
    with transaction.atomic() if in_transaction else nullcontext():
        provider = DatabaseLockProvider("default")
        for turn in range(ROUNDS):
            name = ("even", "odd")[turn % 2]
            lock = take_at_last(provider, configure(name))
            value = Counter.objects.get(name=name).value
            time.sleep(0.001)
            Counter.objects.filter(name=name).update(value=value + 1)
            assert provider.release(lock)


@pytest.mark.usefixtures("counters")
@pytest.mark.sqlite_only
@pytest.mark.parametrize("in_transaction", [False, True])
def test_processes_never_overlap_on_sqlite(in_transaction: bool) -> None:
    """Eight processes lose no step of two counters in one file."""
    with workers(WORKERS, count_on_sqlite, in_transaction) as counting:
        for each in counting:
            each.result()
    assert totals() == [WORKERS * ROUNDS // 2] * 2


@pytest.mark.servers_only
def test_lock_taken_in_a_transaction_is_seen_at_once() -> None:
    """Others skip while the caller's transaction is open, and do not wait for it."""
    with transaction.atomic():
        lock = take_from(DatabaseLockProvider("default"), configure())
        with worker(try_once) as other:
            assert other.result() == lock.locked_by


@pytest.mark.servers_only
def test_rollback_keeps_the_lock() -> None:
    """A rollback of the caller's transaction does not free the lock."""
    lock = None
    with transaction.atomic():
        lock = take_from(DatabaseLockProvider("default"), configure())
        transaction.set_rollback(True)
    with worker(try_once) as other:
        assert other.result() == lock.locked_by


@pytest.mark.servers_only
def test_release_after_a_swallowed_error() -> None:
    """A transaction that is broken already does not keep the lock from its release."""
    provider = DatabaseLockProvider("default")
    with transaction.atomic():
        lock = take_from(provider, configure())
        transaction.set_rollback(True)
        assert provider.release(lock)
    with worker(try_once) as other:
        assert other.result() == "nobody"


@pytest.mark.sqlite_only
def test_rollback_on_sqlite_frees_the_lock() -> None:
    """SQLite has one writer, so there a rollback also takes back the lock."""
    with transaction.atomic():
        take_from(DatabaseLockProvider("default"), configure())
        transaction.set_rollback(True)
    with worker(try_once) as other:
        assert other.result() == "nobody"


def try_impatiently(parent: Parent) -> str:
    """Return who holds the lock, without a long wait for SQLite's one writer."""
    connection.settings_dict["OPTIONS"]["timeout"] = 0.05
    return try_once(parent)


@pytest.mark.sqlite_only
def test_open_transaction_on_sqlite_counts_as_held() -> None:
    """Others can't see into it: they skip after SQLite's timeout, without an error."""
    with transaction.atomic():
        take_from(DatabaseLockProvider("default"), configure())
        with worker(try_impatiently) as other:
            assert other.result() == str(CONTENDED)


@pytest.mark.sqlite_only
def test_commit_on_sqlite_shows_the_lock() -> None:
    """After the commit others see who took the lock in the transaction."""
    with transaction.atomic():
        lock = take_from(DatabaseLockProvider("default"), configure())
    with worker(try_once) as other:
        assert other.result() == lock.locked_by


def test_jitter_never_starves_a_waiter() -> None:
    """Somebody who tries again and again gets the lock once it is released."""
    random.seed(1)
    provider = DatabaseLockProvider("default")
    lock = take_from(provider, configure())
    with worker(take_in_the_end) as waiting:
        assert waiting.heard() == "waiting"
        provider.release(lock)
        assert waiting.result()


def take_in_the_end(parent: Parent) -> bool:
    parent.say("waiting")
    return bool(take_at_last(DatabaseLockProvider("default"), configure()))
