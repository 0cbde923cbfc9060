"""Beats of locks whose rows open transactions keep: they wait for none of them."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from django.db import OperationalError, transaction

from django_shedlock import Lock, hold
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.providers.database.errors import is_lock_timeout
from tests.support.leases import beat_now, is_kept_alive, lease_end
from tests.support.threads import running_threads
from tests.support.waiting import PATIENCE, wait_for

FENCED = 8
LEASE = timedelta(minutes=10)
"""What really passes in a test is nothing to it."""


@contextmanager
def fenced_locks() -> Iterator[tuple[list[Lock], threading.Event]]:
    """Hold so many locks, kept alive, each in a fenced transaction until the event."""
    locks: list[Lock] = []
    commit, numbers = threading.Event(), count()

    def work() -> None:
        name = f"fenced {next(numbers)}"
        with hold(name, lock_at_most_for=LEASE, keep_alive=True) as lock:
            with transaction.atomic():
                lock.fence()
                locks.append(lock)
                assert commit.wait(PATIENCE)
            beat_now(lock)
            wait_for(lambda: lock.remaining() > 0.9 * LEASE)

    with running_threads(FENCED, work):
        try:
            wait_for(lambda: len(locks) == FENCED)
            yield locks, commit
        finally:
            commit.set()


@pytest.mark.servers_only
@pytest.mark.django_db(transaction=True)
def test_fenced_transactions_hold_up_no_beat(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Their own beats fail at once, are tried again, and are no alarm."""
    extend, times = DatabaseLockProvider.extend, defaultdict(list)

    def timed(self: DatabaseLockProvider, lock: Lock, *args: Any, **how: Any) -> bool:
        began = time.monotonic()
        try:
            return extend(self, lock, *args, **how)
        finally:
            times[lock.name].append(time.monotonic() - began)

    monkeypatch.setattr(DatabaseLockProvider, "extend", timed)
    caplog.set_level(logging.INFO)
    with hold("other", lock_at_most_for=LEASE, keep_alive=True) as other:
        with fenced_locks() as (locks, commit):
            for lock in locks:
                beat_now(lock)
            for _ in range(3):
                before = lease_end(other)
                beat_now(other)
                wait_for(lambda: lease_end(other) > before)  # noqa: B023
            wait_for(lambda: all(len(times[lock.name]) > 2 for lock in locks))
            blocked = {lock.name: list(times[lock.name]) for lock in locks}
            assert all(is_kept_alive(lock) for lock in locks)
            assert not any(lock.is_lost for lock in [*locks, other])
            for lock in locks:  # their last beats must come after the commit
                lock.lease_end -= LEASE.total_seconds() / 2
            commit.set()
    # One that waits for its row takes a second each time, however quick the machine is.
    assert max(min(each) for each in blocked.values()) < 0.5
    levels = {r.levelno for r in caplog.records if "not be extended" in r.getMessage()}
    assert levels == {logging.INFO}


def test_each_database_says_in_its_way_that_a_row_is_taken() -> None:
    """MySQL and Oracle do it by numbers of their own."""
    mysql = OperationalError(3572, "lock(s) could not be acquired and NOWAIT is set")
    oracle = OperationalError("ORA-00054: resource busy and acquire with NOWAIT")
    assert is_lock_timeout(mysql)
    assert is_lock_timeout(oracle)
    assert not is_lock_timeout(OperationalError("ORA-03113: end-of-file"))
