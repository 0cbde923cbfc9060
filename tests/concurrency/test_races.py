"""Real processes that want one lock at the same moment."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack, closing, nullcontext
from datetime import timedelta
from multiprocessing.synchronize import Barrier

import pytest
from django.db import connection, transaction
from django.db.models import F

from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import CONTENDED
from django_shedlock.models import LockRecord
from django_shedlock.providers.database import DatabaseLockProvider
from tests.models import Counter
from tests.support.history import Acquisition, recorded, violations
from tests.support.locks import configure, name_holder, take, take_at_last, try_from
from tests.support.processes import Parent, race, worker, workers
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.django_db(transaction=True)

RACERS = 16
RACES = 10
WORKER_COUNT = 8
ROUND_COUNT = 12

SERIALIZABLE = {
    "postgresql": "SET default_transaction_isolation = 'serializable'",
    "mysql": "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
}


def win(parent: Parent, barrier: Barrier, isolation: str) -> list[Acquisition]:
    """Return what this process won, of the locks that all processes wanted."""
    provider = DatabaseLockProvider("default")
    with connection.cursor() as cursor:
        cursor.execute(isolation)
    won: list[Acquisition] = []
    with ExitStack() as held:
        for turn in range(RACES):
            for name in (f"fresh {turn}", f"expired {turn}"):
                barrier.wait()
                asked = time.monotonic()
                lock = try_from(provider, configure(name))
                if isinstance(lock, Lock):
                    held.enter_context(recorded(won, lock, asked))
    return won


def names() -> list[str]:
    return [f"{kind} {turn}" for kind in ("expired", "fresh") for turn in range(RACES)]


def run_race(isolation: str) -> list[Acquisition]:
    provider = DatabaseLockProvider("default")
    for turn in range(RACES):
        take(configure(f"expired {turn}"), provider)
    LockRecord.objects.update(lock_until=F("lock_until") - timedelta(days=1))
    return [each for won in race(RACERS, win, isolation) for each in won]


@pytest.mark.servers_only
def test_one_of_sixteen_serializable_processes_wins() -> None:
    """Of sixteen one wins, also where every statement is serializable."""
    won = run_race(SERIALIZABLE[connection.vendor])
    assert sorted(each.name for each in won) == sorted(names())
    assert [*violations(won)] == []


def count(parent: Parent, in_transaction: bool) -> list[Acquisition]:
    """Add to two counters, each read, waited for and written under its lock."""
    provider = DatabaseLockProvider("default")
    with transaction.atomic() if in_transaction else nullcontext():
        return add_to_counters(provider)


def add_to_counters(provider: DatabaseLockProvider) -> list[Acquisition]:
    table = Counter._meta.db_table
    history: list[Acquisition] = []
    # Written outside the worker's outer transaction, as another system would.
    with closing(connection.copy()) as other, other.cursor() as cursor:
        for turn in range(ROUND_COUNT):
            name = ("even", "odd")[turn % 2]
            asked = time.monotonic()
            lock = take_at_last(provider, configure(name))
            with recorded(history, lock, asked):
                cursor.execute(f"SELECT value FROM {table} WHERE name = %s", [name])
                value = cursor.fetchone()[0] + 1
                time.sleep(0.001)
                cursor.execute(
                    f"UPDATE {table} SET value = %s WHERE name = %s", [value, name]
                )
            assert provider.release(lock)
    return history


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
    with workers(WORKER_COUNT, count, in_transaction) as counting:
        history = [one for each in counting for one in each.result()]
    assert totals() == [WORKER_COUNT * ROUND_COUNT // 2] * 2
    assert [*violations(history)] == []


def count_on_sqlite(parent: Parent, in_transaction: bool) -> list[Acquisition]:
    history: list[Acquisition] = []
    with transaction.atomic() if in_transaction else nullcontext():
        provider = DatabaseLockProvider("default")
        for turn in range(ROUND_COUNT):
            name = ("even", "odd")[turn % 2]
            asked = time.monotonic()
            lock = take_at_last(provider, configure(name))
            with recorded(history, lock, asked):
                value = Counter.objects.get(name=name).value
                time.sleep(0.001)
                Counter.objects.filter(name=name).update(value=value + 1)
            assert provider.release(lock)
    return history


@pytest.mark.usefixtures("counters")
@pytest.mark.sqlite_only
@pytest.mark.parametrize("in_transaction", [False, True])
def test_processes_never_overlap_on_sqlite(in_transaction: bool) -> None:
    """Eight processes lose no step of two counters in one file."""
    with workers(WORKER_COUNT, count_on_sqlite, in_transaction) as counting:
        history = [one for each in counting for one in each.result()]
    assert totals() == [WORKER_COUNT * ROUND_COUNT // 2] * 2
    assert [*violations(history)] == []


@pytest.mark.servers_only
def test_lock_taken_in_a_transaction_is_seen_at_once() -> None:
    """Other processes skip a lock while the transaction that took it is still open."""
    with transaction.atomic():
        lock = take(configure(), DatabaseLockProvider("default"))
        with worker(name_holder) as other:
            assert other.result(PATIENCE) == lock.locked_by


@pytest.mark.servers_only
def test_rollback_keeps_the_lock() -> None:
    """A rollback of the caller's transaction does not free the lock."""
    lock = None
    with transaction.atomic():
        lock = take(configure(), DatabaseLockProvider("default"))
        transaction.set_rollback(True)
    with worker(name_holder) as other:
        assert other.result(PATIENCE) == lock.locked_by


@pytest.mark.servers_only
def test_release_after_a_swallowed_error() -> None:
    """A transaction that is broken already does not keep the lock from its release."""
    provider = DatabaseLockProvider("default")
    with transaction.atomic():
        lock = take(configure(), provider)
        transaction.set_rollback(True)
        assert provider.release(lock)
    with worker(name_holder) as other:
        assert other.result(PATIENCE) == "nobody"


@pytest.mark.sqlite_only
def test_rollback_on_sqlite_frees_the_lock() -> None:
    """SQLite has one writer, so there a rollback also takes back the lock."""
    with transaction.atomic():
        take(configure(), DatabaseLockProvider("default"))
        transaction.set_rollback(True)
    with worker(name_holder) as other:
        assert other.result() == "nobody"


def try_impatiently(parent: Parent) -> str:
    """Return who holds the lock, without a long wait for SQLite's one writer."""
    connection.settings_dict["OPTIONS"]["timeout"] = 0.05
    return name_holder(parent)


@pytest.mark.sqlite_only
def test_open_transaction_on_sqlite_counts_as_held() -> None:
    """
    On SQLite other processes skip a lock that an open transaction has taken.

    They skip after SQLite's timeout, without an error.
    """
    with transaction.atomic():
        take(configure(), DatabaseLockProvider("default"))
        with worker(try_impatiently) as other:
            assert other.result() == str(CONTENDED)


@pytest.mark.sqlite_only
def test_commit_on_sqlite_shows_the_lock() -> None:
    """After a commit on SQLite other processes see who holds the lock."""
    with transaction.atomic():
        lock = take(configure(), DatabaseLockProvider("default"))
    with worker(name_holder) as other:
        assert other.result() == lock.locked_by


def test_jitter_never_starves_a_waiter() -> None:
    """Somebody who tries again and again gets the lock once it is released."""
    random.seed(1)
    provider = DatabaseLockProvider("default")
    lock = take(configure(), provider)
    with worker(take_in_the_end) as waiting:
        assert waiting.heard() == "waiting"
        provider.release(lock)
        assert waiting.result()


def take_in_the_end(parent: Parent) -> bool:
    parent.say("waiting")
    return bool(take_at_last(DatabaseLockProvider("default"), configure()))
