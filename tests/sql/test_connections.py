"""The caller's connection: transactions, requests, tests, pools."""

from __future__ import annotations

import asyncio
import operator
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import Group
from django.core.exceptions import SynchronousOnlyOperation
from django.db import (
    DatabaseError,
    InterfaceError,
    OperationalError,
    connection,
    connections,
    transaction,
)
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import path

from django_shedlock import LockProviderError, aexecute, execute, hold
from django_shedlock.execution.keep_alive import late_releases
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import CONTENDED, LockState
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.signals import lock_acquired
from django_shedlock.sql import connections as connecting
from django_shedlock.sql import errors
from django_shedlock.sql.connections import private_connections
from django_shedlock.sql.fields import DatabaseNow
from django_shedlock.testing import is_held
from tests.support.leases import beat_now, end_own_count, kept_alive, lease_end
from tests.support.locks import (
    MINUTE,
    configure,
    force_release,
    name_holder,
    status_of,
    take,
    try_from,
)
from tests.support.private_connections import noted_opens
from tests.support.processes import worker
from tests.support.sessions import (
    kill_session,
    session_number,
    session_number_of,
)
from tests.support.statements import says
from tests.support.threads import (
    NewThreads,
    meeting_of,
    run_threads,
    running_threads,
    threads_named,
)
from tests.support.waiting import NEVER_SECONDS, PATIENCE, wait_for

committed = pytest.mark.django_db(transaction=True)

seen: list[str] = []


def locking_view(request: HttpRequest) -> HttpResponse:
    """Take a lock in a request, and ask another process who holds it."""
    with hold("job") as lock, worker(name_holder) as other:
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
    assert str(try_from(provider, configure("fixture"))) == "the test"
    lock = take(configure(), provider)
    assert LockRecord.objects.get(name="job").locked_by == lock.locked_by
    assert lock.release()


@pytest.mark.django_db
def test_atomic_inside_testcase_stays_on_the_connection() -> None:
    """The user's own atomic() in a TestCase sees the lock, too."""
    provider = DatabaseLockProvider("default")
    with transaction.atomic():
        take(configure(), provider)
        assert LockRecord.objects.get().name == "job"
        assert status_of(provider, "job").state is LockState.RUNNING


@pytest.mark.servers_only
@committed
def test_callers_connection_is_never_replaced() -> None:
    """What a receiver writes is part of the caller's transaction, and rolls back."""
    mine = connections["default"]

    def write(**kwargs: Any) -> None:
        assert connections["default"] is mine
        Group.objects.create(name="of the receiver")

    lock_acquired.connect(write)
    try:
        with transaction.atomic():
            with hold("job") as lock, worker(name_holder) as other:
                assert connections["default"] is mine
                assert other.result() == lock.locked_by
            transaction.set_rollback(True)
    finally:
        lock_acquired.disconnect(write)
    assert Group.objects.count() == 0
    assert LockRun.objects.get().outcome == "succeeded"


@pytest.fixture
def opened(
    monkeypatch: pytest.MonkeyPatch, outside_tests: None
) -> Iterator[list[BaseDatabaseWrapper]]:
    """Each private connection that is opened, and kept as in production."""
    opened = noted_opens(monkeypatch)
    monkeypatch.setattr(connecting.PrivateConnections, "watch_interval_seconds", 0.01)
    monkeypatch.setattr(
        connecting.PrivateConnections, "idle_timeout_seconds", NEVER_SECONDS
    )
    yield opened
    private_connections.close_idle()
    wait_for(lambda: not watchers())


def watchers() -> set[threading.Thread]:
    return threads_named("connections")


def is_open(connection: BaseDatabaseWrapper) -> bool:
    return connection.connection is not None


@pytest.mark.servers_only
@committed
def test_locks_in_transactions_share_one_connection(
    opened: list[BaseDatabaseWrapper],
) -> None:
    """Opening one costs more than ten locks, so it is kept for the next lock."""
    for _ in range(3):
        with transaction.atomic(), hold("job"):
            pass
    assert len(opened) == 1
    assert opened[0].get_autocommit()
    assert is_open(opened[0])


@pytest.mark.servers_only
@committed
def test_threads_have_a_connection_each_at_most(
    opened: list[BaseDatabaseWrapper],
) -> None:
    """A statement that waits holds up nobody; what is idle is lent to anybody."""
    names = iter("abcd")

    def lock_in_transaction() -> None:
        with transaction.atomic(), hold(next(names)):
            pass

    run_threads(4, lock_in_transaction)
    assert 1 <= len(opened) <= 4


LIMITS = """
import django
django.setup()
from django_shedlock.sql import connections
watched = connections.PrivateConnections
print(watched.idle_timeout_seconds, watched.answer_timeout_seconds)
for options in connections.CONNECTION_OPTIONS.values():
    print(*options.values())
"""


def test_limits_are_about_five_seconds() -> None:
    """The tests have others, since their machine may be slow."""
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    told = subprocess.check_output(
        [sys.executable, "-c", LIMITS], env=environment, text=True
    )
    assert told.split() == ["5.0", "5.0", "5", "5", "6", "6"]


@pytest.mark.servers_only
@committed
def test_idle_connection_is_closed(
    opened: list[BaseDatabaseWrapper], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle connection is closed, and its thread ends."""
    monkeypatch.setattr(connecting.PrivateConnections, "idle_timeout_seconds", 0.01)
    with transaction.atomic(), hold("job"):
        pass
    wait_for(lambda: not is_open(opened[0]))
    wait_for(lambda: not watchers())
    with transaction.atomic(), hold("job"):
        pass
    assert len(opened) > 1


@pytest.mark.servers_only
@committed
def test_watcher_that_could_not_be_started_is_tried_again(
    opened: list[BaseDatabaseWrapper], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process without room for a thread has its locks; the next one is watched."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    wait_for(lambda: not watchers())
    with transaction.atomic():
        with monkeypatch.context() as full:
            full.setattr(threading.Thread, "start", refuse)
            with hold("job"):
                pass
        assert not watchers()
        with hold("job"):
            pass
        assert watchers()
    assert len(opened) == 1


@pytest.mark.servers_only
@committed
def test_connection_to_another_database_is_not_lent(
    opened: list[BaseDatabaseWrapper], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A project may change an alias for each tenant: the locks go where it points."""
    tenant = connections["default"].copy()
    tenant.settings_dict["NAME"] = "of_a_tenant"
    with transaction.atomic(), hold("job"):
        pass
    monkeypatch.setattr(connecting, "_open", lambda connection: None)
    with private_connections.borrowed(tenant) as lent:
        assert lent not in opened
    assert lent.settings_dict["NAME"] == "of_a_tenant"


@pytest.mark.servers_only
@committed
def test_tests_database_can_be_dropped() -> None:
    """No connection to the database of a test is kept."""
    with transaction.atomic(), hold("job"):
        pass
    assert private_connections._idle == {}


@pytest.mark.servers_only
@committed
def test_private_connection_that_died_is_replaced(
    opened: list[BaseDatabaseWrapper],
) -> None:
    """The server ended it while it was idle: the lock is acquired on a new one."""
    with transaction.atomic():
        with hold("job"):
            pass
        kill_session(session_number_of(opened[0]))
        with hold("job") as lock:
            assert LockRecord.objects.filter(locked_by=lock.locked_by).exists()
    assert len(opened) == 2
    assert not is_open(opened[0])


@pytest.mark.servers_only
@committed
def test_look_leaves_the_callers_connection_alone(
    monkeypatch: pytest.MonkeyPatch, outside_tests: None
) -> None:
    """
    Reading the clock doesn't check whether the caller's connection is alive.

    That check could take minutes.
    """

    def hang(connection: BaseDatabaseWrapper) -> bool:
        raise AssertionError("the caller's connection was asked")

    connection.ensure_connection()
    mine = connection.connection
    provider = DatabaseLockProvider("default")
    provider.now()
    monkeypatch.setattr(type(connections["default"]), "is_usable", hang)
    [idle] = private_connections._idle
    kill_session(session_number_of(idle))
    provider.now()
    assert connection.connection is mine
    private_connections.close_idle()


@pytest.mark.servers_only
@committed
def test_session_that_its_caller_made_read_only_is_kept(outside_tests: None) -> None:
    """The lock gets another connection; the caller's keeps all that it has set."""
    statements = {
        "postgresql": "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
        "mysql": "SET SESSION TRANSACTION READ ONLY",
    }
    with connection.cursor() as cursor:
        cursor.execute(statements[connection.vendor])
    mine = connection.connection
    try:
        assert execute(lambda: None, "job", lock_at_most_for="1m").was_executed
        assert connection.connection is mine
        with pytest.raises(DatabaseError, match=r"(?i)read.only transaction"):
            LockRecord.objects.all().delete()
    finally:
        connection.close()
        private_connections.close_idle()


class Silent:
    """Stands for a server, or a pooler without room, that accepts and never answers."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._accepted: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                self._accepted.append(self._socket.accept()[0])

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        for each in [self._socket, *self._accepted]:
            each.close()


@pytest.mark.servers_only
@committed
def test_pooler_without_room_is_an_error_within_seconds(
    opened: list[BaseDatabaseWrapper], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is accepted and never answered does not hold up the caller for minutes."""
    monkeypatch.setitem(
        connecting.CONNECTION_OPTIONS, connection.vendor, {"connect_timeout": 1}
    )
    with closing(Silent()) as pooler, transaction.atomic():
        with pytest.MonkeyPatch.context() as elsewhere:
            settings = connections["default"].settings_dict
            elsewhere.setitem(settings, "HOST", "127.0.0.1")
            elsewhere.setitem(settings, "PORT", str(pooler.port))
            with pytest.raises(LockProviderError, match="'job'"):
                take(configure(), DatabaseLockProvider("default"))
    assert len(opened) == 2


@pytest.mark.servers_only
@committed
def test_statement_without_an_answer_is_interrupted(
    opened: list[BaseDatabaseWrapper], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that hangs after the connection is there is given up, too."""
    sleep = {"postgresql": "SELECT pg_sleep(600)", "mysql": "SELECT SLEEP(600)"}

    sessions: list[int] = []

    def hang(connection: BaseDatabaseWrapper, is_again: bool) -> None:
        sessions.append(session_number_of(connection))
        with connection.cursor() as cursor, monkeypatch.context() as impatient:
            impatient.setattr(
                connecting.PrivateConnections, "answer_timeout_seconds", 0.05
            )
            cursor.execute(sleep[connection.vendor])

    with transaction.atomic(), pytest.raises(OperationalError):
        connecting.run(hang, "default")
    assert len(opened) == len(sessions) == 2
    for number in sessions:  # the server may not have noticed
        with suppress(OperationalError):
            kill_session(number)
    assert not any(map(is_open, opened))


def test_statement_is_interrupted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later its socket may be closed, and another one may have its number."""
    interrupted: list[int] = []
    monkeypatch.setattr(connecting.PrivateConnections, "answer_timeout_seconds", 0)
    monkeypatch.setattr(connecting, "_interrupt", interrupted.append)
    process = connecting.PrivateConnections()
    process._stamp(connections["default"], answer := 7)
    time.sleep(0.001)
    process._watch()
    process._watch()
    assert interrupted == [answer]
    assert not process._lent  # so that its thread ends, too


class SlowCommit:
    """The first UPDATE, whose commit takes longer than its connection lives."""

    def __init__(self) -> None:
        self._server = connections["default"].copy()
        self._server.set_autocommit(False)
        self._is_sent = False

    def __call__(self, execute: Any, sql: str, params: Any, *rest: Any) -> Any:
        if self._is_sent or not says(sql, "UPDATE"):
            return execute(sql, params, *rest)
        self._is_sent = True
        with self._server.cursor() as cursor:
            # A compound statement of MariaDB commits by itself.
            cursor.execute(sql.replace(" COMMIT;", ""), params)
        raise OperationalError("server closed the connection unexpectedly")

    def end(self) -> None:
        """Commit what was sent, as the server does at last."""
        if self._server.connection is not None:
            self._server.commit()
            self._server.close()


@pytest.fixture
def slow_commit(
    opened: list[BaseDatabaseWrapper], monkeypatch: pytest.MonkeyPatch
) -> Iterator[SlowCommit]:
    """A commit that is done when somebody has waited for the row in vain."""
    commit = SlowCommit()
    note = connecting._open

    def end_before_the_second(connection: BaseDatabaseWrapper) -> None:
        if opened:
            commit.end()
        note(connection)

    monkeypatch.setattr(connecting, "_open", end_before_the_second)
    yield commit
    commit.end()


@pytest.mark.servers_only
@committed
def test_commit_that_outlasts_its_connection_is_waited_for(
    slow_commit: SlowCommit,
) -> None:
    """A lock that our own lost statement has is ours, and so is its release."""
    provider = DatabaseLockProvider("default")
    before = take(configure(), provider)
    before.release()
    with connection.execute_wrapper(slow_commit):
        lock = take(configure(), provider)
    assert lock.fencing_token > before.fencing_token
    assert lock.release()


@pytest.mark.servers_only
@committed
def test_release_that_outlasts_its_connection_is_our_own(
    slow_commit: SlowCommit,
) -> None:
    """The lock is free, and nobody is told that it was lost."""
    lock = take(configure(), DatabaseLockProvider("default"))
    with connection.execute_wrapper(slow_commit):
        assert lock.release()
    assert not lock.is_lost
    assert not is_held("job")


@pytest.mark.servers_only
@committed
def test_commit_without_an_end_is_an_error(
    slow_commit: SlowCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can tell who has the lock: it is no skip, and the error says why."""
    provider = DatabaseLockProvider("default")
    take(configure(), provider).release()
    monkeypatch.setattr(connecting, "ATTEMPT_LIMIT", 2)
    with connection.execute_wrapper(slow_commit):
        with pytest.raises(LockProviderError, match="before the answer"):
            try_from(provider, configure())


@pytest.mark.servers_only
@committed
def test_lock_without_an_answer_is_given_back(
    slow_commit: SlowCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the lost statement's commit is there at last, its lock does not stay."""
    before = take(configure())
    before.release()
    monkeypatch.setattr(connecting, "ATTEMPT_LIMIT", 2)
    with connection.execute_wrapper(slow_commit):
        with pytest.raises(LockProviderError, match="before the answer") as caught:
            execute(list, "job", lock_at_most_for="1h")
    assert caught.value.is_uncertain
    slow_commit.end()
    record = status_of(get_provider(), "job")
    assert record.fencing_token > before.fencing_token
    wait_for(lambda: not is_held("job"))
    # Its body never began, so there was no run.
    job = status_of(get_provider(), "job").job
    assert (job.open_run, job.last_run) == (None, before.locked_by)
    assert (job.outcome, job.failures) == ("succeeded", 0)


@pytest.mark.parametrize(
    ("number", "state", "is_answer"),
    [
        ("canceling statement due to statement timeout", "57014", True),
        ("null value in column", "23502", True),
        ("terminating connection due to administrator command", "57P01", False),
        ("server closed the connection unexpectedly", None, False),
        ("query_wait_timeout", "08P01", False),
        ("cannot execute UPDATE in a read-only transaction", "25006", True),
        ("terminating connection due to transaction timeout", "25P04", True),
        (1969, None, True),
        (1290, None, True),
        (1792, None, True),
        (1836, None, True),
        (4031, None, True),
        (2013, None, False),
        (1927, None, False),
        (0, None, False),
    ],
)
def test_answer_is_told_from_a_broken_connection(
    number: object, state: str | None, is_answer: bool
) -> None:
    """Only what the server itself refused has changed nothing for sure."""
    error = OperationalError(number)
    error.__cause__ = cause = Exception()
    cause.sqlstate = state  # type: ignore[attr-defined]
    assert errors.is_lost_reply(error) is not is_answer


@contextmanager
def row_locked_by_another_transaction() -> Iterator[None]:
    """Keep the row of "job" from all others."""
    other = connections["default"].copy()
    other.set_autocommit(False)
    with other.cursor() as cursor:
        cursor.execute("UPDATE shedlock SET locked_by = 'other' WHERE name = 'job'")
    try:
        yield
    finally:
        other.rollback()
        other.close()


@pytest.mark.postgres_only
@committed
def test_statement_that_the_server_refused_is_not_waited_for(
    opened: list[BaseDatabaseWrapper],
) -> None:
    """After a timeout of the project's own, a row that is locked is a skip, at once."""
    provider = DatabaseLockProvider("default")
    take(configure(), provider).release()
    with row_locked_by_another_transaction():
        with connection.cursor() as cursor:
            cursor.execute("SET statement_timeout = '20ms'")
        assert try_from(provider, configure()) is CONTENDED
    assert len(opened) == 1
    connection.close()


@pytest.mark.servers_only
@committed
def test_statement_that_was_not_sent_is_not_waited_for(
    opened: list[BaseDatabaseWrapper], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement is not waited for if the caller's connection couldn't open."""
    provider = DatabaseLockProvider("default")
    take(configure(), provider).release()
    with row_locked_by_another_transaction():
        connection.close()
        tries = refuse_once(connections["default"], monkeypatch)
        assert try_from(provider, configure()) is CONTENDED
    assert tries
    assert len(opened) == 1


@pytest.mark.servers_only
@committed
def test_heartbeat_does_not_wait_for_its_own_lost_statement(
    opened: list[BaseDatabaseWrapper],
) -> None:
    """A locked row costs the other locks' beats one wait for it."""
    lock = take(configure(), DatabaseLockProvider("default"))
    lock.heartbeat()
    kill_session(session_number_of(opened[0]))
    with row_locked_by_another_transaction():
        with pytest.raises(LockProviderError, match="keeps its row"):
            lock.heartbeat()
    assert len(opened) == 2


@pytest.mark.servers_only
@committed
def test_server_that_restarted_leaves_no_dead_connections(
    opened: list[BaseDatabaseWrapper],
) -> None:
    """Where all that were idle have died, one more try is enough."""
    default = connections["default"]
    with private_connections.borrowed(default), private_connections.borrowed(default):
        pass
    for each in opened:
        kill_session(session_number_of(each))
    with transaction.atomic(), hold("job") as lock:
        assert LockRecord.objects.filter(locked_by=lock.locked_by).exists()
    assert len(opened) == 3


@pytest.mark.servers_only
@committed
def test_release_without_a_connection_has_not_been_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the first try gets no connection, a lock that an operator released is lost."""
    really, tries = connecting._open, []

    def refused_once(connection: BaseDatabaseWrapper) -> None:
        tries.append(connection)
        if len(tries) == 1:
            raise OperationalError("too many clients already")
        really(connection)

    with hold("job") as lock:
        assert force_release(lock.provider, "job")  # type: ignore[attr-defined]
        with transaction.atomic():
            monkeypatch.setattr(connecting, "_open", refused_once)
            assert not lock.release()
    assert len(tries) > 1
    assert lock.is_lost


@committed
def test_release_of_a_caller_that_can_not_connect_has_not_been_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A release counts as not sent if the caller's connection couldn't open."""
    with hold("job", history=False) as lock:
        assert force_release(lock.provider, "job")  # type: ignore[attr-defined]
        connection.close()
        tries = refuse_once(connections["default"], monkeypatch)
        assert not lock.release()
    assert tries
    assert lock.is_lost


def refuse_once(
    mine: BaseDatabaseWrapper, monkeypatch: pytest.MonkeyPatch
) -> list[OperationalError]:
    """Let the connection fail to open once; return the error when it has failed."""
    really, refused = mine.connect, []

    def connect() -> None:
        if not refused:
            refused.append(OperationalError("too many clients already"))
            raise refused[0]
        really()

    monkeypatch.setattr(mine, "connect", connect)
    return refused


@pytest.mark.servers_only
@committed
def test_forked_child_leaves_its_parents_connection_alone(
    opened: list[BaseDatabaseWrapper],
) -> None:
    """Neither a forked child's locks nor its end disturb the parent's connection."""
    with transaction.atomic(), hold("job"):
        pass
    child = os.fork()
    if child == 0:
        os._exit(len(private_connections._idle))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    with transaction.atomic(), hold("job"):
        pass
    assert len(opened) == 1


@pytest.mark.servers_only
@committed
def test_many_locks_are_kept_alive_on_one_connection(
    opened: list[BaseDatabaseWrapper],
) -> None:
    """300 locks have one thread, which has one connection of its own."""
    provider, heartbeats = DatabaseLockProvider("default"), NewThreads("keep alive")
    hour = timedelta(hours=1)
    locks = [take(configure(f"job {n}", hour), provider) for n in range(300)]
    ends = [lease_end(lock) for lock in locks]
    with ExitStack() as stack:
        for lock in locks:
            stack.enter_context(kept_alive(lock))
        for lock in locks:
            beat_now(lock)
        wait_for(
            lambda: all(map(operator.lt, ends, [lease_end(lock) for lock in locks]))
        )
        assert len(heartbeats) == 1
    assert len(opened) == 1
    assert LockRecord.objects.held().count() == 300


@pytest.mark.servers_only
@committed
def test_without_autocommit_the_lock_is_committed() -> None:
    """A caller that commits by hand still takes locks that others see."""
    transaction.set_autocommit(False)
    try:
        lock = take(configure(), DatabaseLockProvider("default"))
        with worker(name_holder) as other:
            assert other.result() == lock.locked_by
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)


@pytest.mark.servers_only
@committed
def test_project_without_autocommit_commits_its_first_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A first lock is committed even if the settings turn autocommit off."""
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "AUTOCOMMIT", False)
    lock = take(configure(), DatabaseLockProvider("default"))
    connection.ensure_connection()
    transaction.rollback()
    assert LockRecord.objects.get().locked_by == lock.locked_by
    connection.close()


@pytest.mark.servers_only
@committed
def test_transaction_by_hand_that_died_does_not_commit(
    opened: list[BaseDatabaseWrapper],
) -> None:
    """A caller whose connection died beside the lock's is told at its commit."""
    transaction.set_autocommit(False)
    try:
        with hold("job"):
            Group.objects.create(name="lost")
            for each in (*opened, connection):
                kill_session(session_number_of(each))
        with pytest.raises((OperationalError, InterfaceError)):
            transaction.commit()
    finally:
        connection.close()
        transaction.set_autocommit(True)
    assert not is_held("job")


@pytest.mark.servers_only
@committed
def test_opening_that_failed_leaves_nothing_to_watch(
    opened: list[BaseDatabaseWrapper], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever opens that connection again has it for itself."""
    note, tries = connecting._open, []

    def fail_once(connection: BaseDatabaseWrapper) -> None:
        note(connection)
        tries.append(connection)
        if len(tries) == 1:
            raise OperationalError("sorry, too many clients already")

    monkeypatch.setattr(connecting, "_open", fail_once)
    with transaction.atomic(), hold("job"):
        pass
    assert list(map(is_open, opened)) == [False, True]
    opened[0].ensure_connection()
    opened[0].close()
    assert not private_connections._lent


@pytest.mark.servers_only
@committed
def test_row_lock_of_the_caller_ends_in_held() -> None:
    """Who has locked the row in its own transaction does not wait for itself."""
    provider = DatabaseLockProvider("default")
    take(configure(), provider).release()
    with transaction.atomic():
        LockRecord.objects.update(locked_by="caller")
        assert not isinstance(try_from(provider, configure()), Lock)


@pytest.fixture
def pooled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let this process take its connections from a pool of two."""
    pool = {"min_size": 2, "max_size": 2, "timeout": PATIENCE}
    connections["default"].close()
    monkeypatch.setitem(connections["default"].settings_dict["OPTIONS"], "pool", pool)
    yield
    connections["default"].close()
    connections["default"].close_pool()  # type: ignore[attr-defined]


@contextmanager
def pool_in_use() -> Iterator[None]:
    """Let two other threads have the whole pool."""
    both_connected = meeting_of(3)

    def occupy() -> None:
        with transaction.atomic():
            Group.objects.count()
            both_connected.wait()
            both_connected.wait()

    with running_threads(2, occupy, both_connected):
        both_connected.wait()
        yield
        both_connected.wait()


@pytest.mark.postgres_only
@pytest.mark.usefixtures("pooled")
@committed
def test_pool_with_every_connection_in_a_transaction() -> None:
    """Where callers' transactions have the whole pool, all get their locks."""
    provider = DatabaseLockProvider("default")
    both_inside = meeting_of(2)
    names = iter("ab")
    results: list[object] = []

    def lock_in_transaction() -> None:
        with transaction.atomic():
            Group.objects.count()
            both_inside.wait()
            results.append(try_from(provider, configure(next(names))))
            both_inside.wait()

    run_threads(2, lock_in_transaction, both_inside)
    assert [type(result) for result in results] == [Lock, Lock]


@pytest.mark.postgres_only
@pytest.mark.usefixtures("pooled")
@committed
def test_locks_of_a_whole_pool_in_transactions_stay_alive() -> None:
    """Threads that occupy every connection of a pool still extend their locks."""
    both_inside = meeting_of(2)
    names = iter("ab")

    def stay_alive() -> None:
        with transaction.atomic():
            Group.objects.count()
            both_inside.wait()
            with hold(next(names), lock_at_most_for="5m", keep_alive=True) as lock:
                end = lease_end(lock)
                beat_now(lock)
                wait_for(lambda: lease_end(lock) > end)
                both_inside.wait()
                assert not lock.is_lost

    run_threads(2, stay_alive, both_inside)
    assert not is_held("a")


@pytest.mark.postgres_only
@pytest.mark.usefixtures("pooled")
@committed
def test_pool_without_a_connection_does_not_keep_a_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A caller without a connection acquires and releases, after one wait for each."""
    asked, really = [], connection.pool.getconn

    def getconn() -> Any:
        asked.append(connection.pool)
        return really(0.01)

    with pool_in_use():
        monkeypatch.setattr(connection.pool, "getconn", getconn)
        with hold("job", history=False) as lock:
            assert connection.connection is None
        assert not lock.is_lost
        assert len(asked) == 2
    assert not is_held("job")


@pytest.mark.postgres_only
@pytest.mark.usefixtures("pooled")
@committed
def test_heartbeat_draws_from_no_pool() -> None:
    """Where callers have the whole pool, a lock is kept alive all the same."""
    provider = DatabaseLockProvider("default")
    lock = take(configure(), provider)
    connections["default"].close()
    with pool_in_use(), kept_alive(lock):
        end = lease_end(lock)
        beat_now(lock)
        assert wait_for(lambda: lease_end(lock) > end)


@pytest.mark.servers_only
@committed
def test_beat_after_the_lease_stays_on_the_private_connection() -> None:
    """A store that hangs can't hold up the heartbeat: no other connection is opened."""
    lock = take(configure(), DatabaseLockProvider("default"))
    end_own_count(lock)

    def beat() -> None:
        lock.heartbeat()
        assert not is_open(connections["default"])

    run_threads(1, beat)
    assert lock.is_active


@pytest.mark.postgres_only
@pytest.mark.usefixtures("pooled")
@committed
def test_pool_of_dead_connections_does_not_keep_a_lock() -> None:
    """If every connection of the pool died, the lock is released all the same."""
    provider = DatabaseLockProvider("default")
    lock = take(configure(), provider)
    both_connected = meeting_of(2)

    def connect_and_die() -> None:
        number = session_number()
        both_connected.wait()
        kill_session(number)

    connections["default"].close()
    run_threads(2, connect_and_die, both_connected)
    assert provider.release(lock)
    assert status_of(provider, "job").state is LockState.FREE


@committed
def test_async_body_holds_a_lock_of_the_database() -> None:
    """The async twins take and release their lock in the database."""

    async def body() -> bool:
        return await sync_to_async(is_held)("job")

    assert async_to_sync(aexecute)(body, "job").value is True
    assert not is_held("job")


@committed
def test_hold_in_an_event_loop_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Django refuses it, so there is no lock to release, now or later."""
    real, sent = CursorWrapper.execute, []

    def execute(self: CursorWrapper, sql: str, params: Any = None) -> Any:
        sent.append(sql)
        return real(self, sql, params)

    async def main() -> None:
        for _ in range(5):
            with pytest.raises(SynchronousOnlyOperation):
                hold("job", lock_at_most_for="1h").__enter__()

    monkeypatch.setattr(CursorWrapper, "execute", execute)
    asyncio.run(main())
    assert sent == []
    assert not late_releases.entries


def test_codes_are_sqlites() -> None:
    """Errors are told apart by the numbers that Python's module has, without it."""
    own = (errors.SQLITE_BUSY, errors.SQLITE_LOCKED, errors.SQLITE_BUSY_SNAPSHOT)
    names = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_BUSY_SNAPSHOT")
    assert own == tuple(getattr(sqlite3, name) for name in names)


def test_number_that_is_a_files_by_now(tmp_path: Path) -> None:
    """
    A stale socket number that now belongs to a file is left alone.

    MySQL's driver still returns its socket's number after a lost connection.
    """
    with (tmp_path / "report").open("w") as file:
        driver = SimpleNamespace(fileno=file.fileno)
        session: Any = SimpleNamespace(connection=driver)
        connecting.leave_to_parent(session)
        file.write("written")
    assert (tmp_path / "report").read_text() == "written"
