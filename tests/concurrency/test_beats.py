"""Beats of locks whose rows others keep, and of a process whose log fails."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from typing import Any, NoReturn

import pytest
from django.db import OperationalError, transaction
from django.db.models import F

from django_shedlock import Lock, hold
from django_shedlock.models import LockRecord
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.sql.errors import is_lock_timeout
from tests.support.leases import (
    age_own_count,
    beat_now,
    is_kept_alive,
    lease_end,
    next_beat,
)
from tests.support.processes import Parent, worker
from tests.support.threads import running_threads
from tests.support.waiting import wait_for

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
                wait_for(commit.is_set)
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
    """
    Fenced transactions delay no other lock's heartbeat.

    Their own heartbeats fail at once, are tried again, and log no warning.
    """
    heartbeat, times = DatabaseLockProvider.heartbeat, defaultdict(list)

    def timed(self: DatabaseLockProvider, lock: Lock) -> bool:
        began = time.monotonic()
        try:
            return heartbeat(self, lock)
        finally:
            times[lock.name].append(time.monotonic() - began)

    monkeypatch.setattr(DatabaseLockProvider, "heartbeat", timed)
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


class Raising(logging.Handler):
    """Raises, as a handler does whose server is gone."""

    def emit(self, record: logging.LogRecord) -> NoReturn:
        raise ConnectionError("no server")


def keep_alive_without_log(parent: Parent) -> bool:
    """Keep two locks alive, one of them blocked, while each log call raises."""
    package = logging.getLogger("django_shedlock")
    package.setLevel(logging.DEBUG)
    package.addHandler(Raising())
    options: Any = {"lock_at_most_for": LEASE, "keep_alive": True}
    with hold("blocked", **options) as blocked, hold("kept", **options) as kept:
        parent.say("held")
        parent.wait()
        for _ in range(4):
            LockRecord.objects.filter(name="kept").update(
                lock_until=F("lock_until") - LEASE * 0.8
            )
            age_own_count(kept, LEASE * 0.8)
            beat_now(blocked)
            wait_for(lambda: next_beat(blocked) > timedelta(0))
            beat_now(kept)
            wait_for(lambda: kept.remaining() > LEASE * 0.8)
        parent.say("kept alive" if is_kept_alive(blocked) else "given up")
    return kept.lost.is_set()


@pytest.mark.servers_only
@pytest.mark.django_db(transaction=True)
def test_handler_that_raises_ends_no_heartbeat() -> None:
    """Locks outlive several leases, in a process that can't log."""
    with worker(keep_alive_without_log) as holder:
        assert holder.heard() == "held"
        with transaction.atomic():
            LockRecord.objects.filter(name="blocked").update(locked_by=F("locked_by"))
            holder.send()
            assert holder.heard() == "kept alive"
        assert not holder.result()
