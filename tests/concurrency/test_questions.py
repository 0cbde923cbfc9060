"""What many leases that end at about the same time cost their store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db.backends.signals import connection_created

from django_shedlock import Lock, background, hold
from django_shedlock.execution import keep_alive
from django_shedlock.execution.keep_alive import guard, unguard
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider
from django_shedlock.signals import lock_lost
from django_shedlock.sql.fields import DatabaseNow
from django_shedlock.testing.contract.harness import force_extend
from tests.support.leases import end_own_count
from tests.support.locks import configure, take
from tests.support.sessions import number_of_sessions
from tests.support.threads import NewThreads, counted_starts
from tests.support.waiting import NEVER_SECONDS, wait_for

pytestmark = [pytest.mark.servers_only, pytest.mark.django_db(transaction=True)]

MANY = 300
LEASE = timedelta(minutes=10)
NOTICE = timedelta(minutes=1)
"""Before the end of a lease its store is asked."""


class Noted:
    """The threads that were started, the connections opened, and what was sent."""

    def __init__(self) -> None:
        self.threads: list[str] = []
        self.connections: list[Any] = []
        self.statements: list[str] = []

    def connect(self, *, connection: Any, **kwargs: Any) -> None:
        self.connections.append(connection)
        connection.execute_wrappers.append(self.send)

    def send(self, execute: Any, sql: str, *rest: Any) -> Any:
        self.statements.append(sql)
        return execute(sql, *rest)


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Noted]:
    found, start = Noted(), threading.Thread.start

    def note(thread: threading.Thread) -> None:
        found.threads.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", note)
    connection_created.connect(found.connect)
    yield found
    connection_created.disconnect(found.connect)


@contextmanager
def watched_locks() -> Iterator[list[Lock]]:
    """Hold so many locks, as async jobs do."""
    provider = get_provider()
    with ExitStack() as stack:
        locks = []
        for number in range(MANY):
            configuration = configure(f"job {number}", lock_at_most_for=LEASE)
            lock = take(configuration, provider)
            stack.callback(lock.release)
            guard(lock, is_async=True)
            stack.callback(unguard, lock)
            locks.append(lock)
        yield locks


def test_store_is_asked_about_hundreds_of_leases_at_once(
    noted: Noted, monkeypatch: pytest.MonkeyPatch, outside_tests: None
) -> None:
    """A few queries show which of hundreds of leases were extended."""
    monkeypatch.setattr(keep_alive, "LEASE_END_NOTICE", NOTICE)
    with watched_locks() as locks:
        # In the store they end long before their count: a slow answer extends none.
        LockRecord.objects.update(lock_until=DatabaseNow() + NOTICE / 2)
        extended = locks[0], locks[-1]
        for lock in extended:
            assert force_extend(lock.provider, lock.name, LEASE)
        del noted.threads[:], noted.connections[:], noted.statements[:]
        for lock in locks:
            end_own_count(lock, after=NOTICE)
        for lock in extended:
            wait_for(lambda: lock.remaining() > LEASE / 2)  # noqa: B023
        reads = [sql for sql in noted.statements if sql.startswith("SELECT")]
        # Two leases are longer, and are read for sure. A slow machine asks twice.
        assert 3 <= len(reads) <= 6
        threads = {"django_shedlock questions", "django_shedlock connections"}
        assert set(noted.threads) <= threads
        assert len(noted.connections) <= 3
        assert len(noted.threads) <= 3


def test_loss_of_hundreds_of_locks_takes_few_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Receivers have a few at once, however many there are, and the history has one."""
    monkeypatch.setattr(background.Background, "hanging_after_seconds", NEVER_SECONDS)
    told: list[str] = []
    go_on, at_once = threading.Event(), NewThreads("background")

    def receiver(*, lock: Lock, **kwargs: Any) -> None:
        assert number_of_sessions()
        told.append(lock.name)
        wait_for(go_on.is_set)

    lock_lost.connect(receiver)
    options: Any = {"lock_at_most_for": LEASE, "keep_alive": True}
    with ExitStack() as stack:
        started = stack.enter_context(counted_starts())
        stack.callback(lock_lost.disconnect, receiver)
        locks = [
            stack.enter_context(hold(f"job {number}", **options))
            for number in range(MANY)
        ]
        before = number_of_sessions()
        LockRecord.objects.update(lock_until=DatabaseNow())
        for lock in locks:
            end_own_count(lock)
        wait_for(
            lambda: (
                len(background.losses.entries)
                == MANY - background.Background.thread_limit
            )
        )
        wait_for(
            lambda: len(told) == len(at_once) == background.Background.thread_limit
        )
        # And one for the history, and another that is about to end.
        most = before + background.Background.thread_limit + 2
        wait_for(lambda: before < number_of_sessions() <= most)
        go_on.set()
        wait_for(lambda: len(told) == MANY)
        wait_for(lambda: LockRun.objects.filter(lost_at__isnull=False).count() == MANY)
    assert started.count("django_shedlock background") == MANY  # one after the other
    assert 1 <= started.count("django_shedlock history") < 20
