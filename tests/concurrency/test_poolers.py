"""PgBouncer, with and without room for the private connections."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count

import pytest
from django.contrib.auth.models import Group
from django.db import transaction

from django_shedlock import LockProviderError, hold
from django_shedlock.sql import connections as connecting
from django_shedlock.sql.connections import private_connections
from django_shedlock.sql.session_locks import session_lock
from django_shedlock.testing import is_held
from tests.support.poolers import pgbouncer
from tests.support.threads import meeting_of, run_threads
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.postgres_only, pytest.mark.django_db(transaction=True)]

ROOM = 3
POOLER_PATIENCE = 120
"""Seconds for which PgBouncer itself lets a statement wait for room."""


@pytest.fixture(autouse=True)
def kept(outside_tests: None) -> Iterator[None]:
    """Keep connections as in production."""
    yield
    private_connections.close_idle()
    wait_for(lambda: not private_connections._idle)


def lock_in_transactions() -> list[str]:
    """Return how it ended for each thread, of which none commits before all ended."""
    everybody = meeting_of(ROOM)
    numbers, outcomes = count(), []

    def lock() -> None:
        with transaction.atomic():
            Group.objects.count()
            everybody.wait()
            try:
                with hold(f"job {next(numbers)}", history=False):
                    outcomes.append("held")
            except LockProviderError as error:
                outcomes.append(str(error))
            everybody.wait()

    run_threads(ROOM, lock, everybody)
    return outcomes


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_pooler_without_room_is_an_error_within_seconds(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Callers get an error within seconds if the pooler has no free connection."""
    monkeypatch.setattr(connecting.PrivateConnections, "answer_timeout_seconds", 1.0)
    monkeypatch.setattr(connecting.PrivateConnections, "watch_interval_seconds", 0.05)
    began = time.monotonic()
    with pgbouncer(mode, ROOM):
        outcomes = lock_in_transactions()
    assert time.monotonic() - began < POOLER_PATIENCE / 2
    assert ["pooler" in outcome for outcome in outcomes] == [True] * ROOM


@pytest.mark.parametrize(
    ("mode", "size"), [("transaction", ROOM + 1), ("session", 2 * ROOM)]
)
def test_pooler_with_room_is_enough(mode: str, size: int) -> None:
    """Private statements take turns on one place, or have a session each."""
    with pgbouncer(mode, size):
        assert lock_in_transactions() == ["held"] * ROOM
    assert not any(is_held(f"job {number}") for number in range(ROOM))


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_lock_of_migrate_goes_through_a_pooler(mode: str) -> None:
    """The lock of ``migrate`` keeps its server connection behind a pooler."""
    found: list[bool] = []

    def look() -> bool:
        lock = session_lock("default", "migrate:default")
        assert lock is not None
        try:
            found.append(lock.try_acquire())
            return found[-1]
        finally:
            lock.close()

    with pgbouncer(mode, 2 * ROOM):
        lock = session_lock("default", "migrate:default")
        assert lock is not None
        assert lock.try_acquire()
        run_threads(ROOM, look)
        assert found == [False] * ROOM
        assert lock.holders() == {lock.number}
        lock.close()
        # A pooler ends the transaction a moment after its client has left.
        wait_for(look)
