"""SQLite has one writer, and transactions that may not become it any more."""

from __future__ import annotations

import os
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier

import pytest
from django.db import connection, transaction

from django_shedlock import LockProviderError
from django_shedlock.locks.configuration import LockConfiguration, make_request
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import CONTENDED
from django_shedlock.providers.database import DatabaseLockProvider
from tests.models import Counter
from tests.support.locks import take, try_from
from tests.support.processes import Parent, race, worker

pytestmark = [pytest.mark.sqlite_only, pytest.mark.django_db(transaction=True)]

STARTERS = 6
ROUNDS = 10
SCHEDULES = (None, "@hourly")


@pytest.fixture(params=["delete", "wal"])
def journal(request: pytest.FixtureRequest) -> Iterator[str]:
    """Let the database's file be written in this way."""
    set_journal(request.param)
    yield request.param
    set_journal("delete")


def set_journal(mode: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA journal_mode = {mode}")
        assert cursor.fetchone() == (mode,)


def configure(name: str, schedule: str | None) -> LockConfiguration:
    options = {"schedule": schedule} if schedule else {}
    return make_request(name, {"lock_at_most_for": "5m", **options}).configuration()


def write(parent: Parent, commits: bool) -> None:
    """Write when told; keep the transaction open for as long as the test wants."""
    parent.wait()
    with transaction.atomic():
        Counter.objects.create(name="of another process")
        if not commits:
            parent.say("is the writer")
            parent.wait()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("journal", "commits"),
    [("delete", False), ("wal", False), ("wal", True)],
    indirect=["journal"],
)
@pytest.mark.usefixtures("journal")
def test_transaction_that_has_read_is_told(commits: bool, schedule: str | None) -> None:
    """No wait lets it write: no other worker came first, and the error says so."""
    provider = DatabaseLockProvider("default")
    take(configure("job", None), provider).release()
    with worker(write, commits) as writer:
        with transaction.atomic():
            Counter.objects.count()
            writer.send()
            writer.result() if commits else writer.heard()
            with pytest.raises(LockProviderError, match="has read.*IMMEDIATE"):
                try_from(provider, configure("job", schedule))
        if not commits:
            writer.send()
            writer.result()
    assert take(configure("job", schedule), provider).release()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.usefixtures("journal")
def test_transaction_that_has_not_read_waits(
    schedule: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A transaction that has not read waits for SQLite's writer.

    If the wait is too long, the lock counts as held.
    """
    connection.close()
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "timeout", 0.05)
    provider = DatabaseLockProvider("default")
    take(configure("job", None), provider).release()
    with worker(write, False) as writer:
        writer.send()
        writer.heard()
        with transaction.atomic():
            assert try_from(provider, configure("job", schedule)) is CONTENDED
        writer.send()
        writer.result()
    connection.close()


def lock_in_transactions(parent: Parent, barrier: Barrier) -> list[str]:
    """Return the names that nobody else wants, and that this process did not get."""
    provider = DatabaseLockProvider("default")
    missed = []
    for turn in range(ROUNDS):
        barrier.wait()
        for schedule in SCHEDULES:
            configuration = configure(f"{os.getpid()} {turn} {schedule}", schedule)
            with transaction.atomic():
                lock = try_from(provider, configuration)
            if not isinstance(lock, Lock):
                missed.append(configuration.name)
    return missed


@pytest.mark.usefixtures("journal")
def test_transactions_that_begin_with_a_tick_take_turns() -> None:
    """Each gets its own lock: none reads first, and so can't write any more."""
    assert race(STARTERS, lock_in_transactions) == [[]] * STARTERS
