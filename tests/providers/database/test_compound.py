"""A lock's statement and that of its run are one, whatever happens."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, NoReturn

import pytest
from django.db import OperationalError, connection, transaction
from django.db.models import Exists, OuterRef
from django.dispatch import receiver
from django.test.utils import CaptureQueriesContext

from django_shedlock import Lock, LockProviderError, execute, executor, hold
from django_shedlock.locks.states import LockState
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider
from django_shedlock.providers.database import acquisition
from django_shedlock.providers.database import connections as connecting
from django_shedlock.providers.database import provider as providing
from django_shedlock.signals import lock_acquired
from tests.support.locks import Broken, configure, state, take_from
from tests.support.processes import Parent, workers
from tests.support.statements import Failing, says
from tests.support.waiting import wait_for

committed = pytest.mark.django_db(transaction=True)

WORKERS = 3
ROUNDS = 60


def outcomes() -> list[str]:
    return list(LockRun.objects.order_by("pk").values_list("outcome", flat=True))


def run_again_and_again(parent: Parent) -> int:
    turns = range(ROUNDS)
    return sum(execute(lambda: None, "job", wait="5m").was_executed for _ in turns)


def run_by_itself(parent: Parent) -> int:
    for module in (acquisition, providing):
        vars(module)["can_ride"] = lambda connection: False
    return run_again_and_again(parent)


def looks_without_a_run(job: Callable[[Parent], int]) -> int:
    """Return how often the lock was seen held without a run, while workers ran it."""
    runs = LockRun.objects.filter(outcome="running", locked_by=OuterRef("locked_by"))
    alone = LockRecord.objects.held().filter(~Exists(runs), released_at=None)
    found = 0
    with workers(WORKERS, job) as running:
        while any(each.process.is_alive() for each in running):
            found += alone.count()
        assert sum(each.result() for each in running) == WORKERS * ROUNDS
    return found


@committed
def test_no_lock_is_held_without_its_run() -> None:
    """Whoever looks, whenever, sees both or none; every run has an end."""
    assert looks_without_a_run(run_again_and_again) == 0
    assert outcomes() == ["succeeded"] * WORKERS * ROUNDS


@pytest.mark.servers_only
@committed
def test_look_would_find_a_lock_without_its_run() -> None:
    """The test above can fail: without the compound statements it does."""
    assert looks_without_a_run(run_by_itself) > 0


@committed
def test_provider_alone_writes_no_run() -> None:
    """Without an attempt there is no body, and so no run."""
    lock = take_from(get_provider(), configure())
    assert outcomes() == []
    assert lock.release()
    assert outcomes() == []


@committed
def test_receiver_may_release_the_lock() -> None:
    """The run has an end, although its body never had the lock."""

    def veto(*, lock: Lock, **kwargs: Any) -> None:
        lock.release(Broken("not today"))

    with listening(veto):
        execute(lambda: None, "job")
    assert outcomes() == ["failed"]
    assert not state("job").is_held


@contextmanager
def listening(function: Callable[..., None]) -> Iterator[None]:
    receiver(lock_acquired)(function)
    try:
        yield
    finally:
        lock_acquired.disconnect(function)


@committed
@pytest.mark.servers_only
@pytest.mark.parametrize("verb", ["INSERT", "UPDATE"])
def test_lost_reply_makes_one_run(verb: str) -> None:
    """The second try finds what the first one wrote, of the lock and of its run."""
    execute(lambda: None, "job")
    LockRun.objects.all().delete()
    lost: list[str] = []

    def lose(execute: Any, sql: str, *arguments: Any) -> Any:
        reply = execute(sql, *arguments)
        if says(sql, verb, "shedlock_run") and not lost:
            lost.append(sql)
            raise OperationalError("server closed the connection unexpectedly")
        return reply

    with connection.execute_wrapper(lose):
        assert execute(lambda: "done", "job").value == "done"
    assert len(lost) == 1
    assert outcomes() == ["succeeded"]
    assert LockRecord.objects.get().fencing_token == 2
    assert not state("job").is_held


@committed
@pytest.mark.mariadb_only
@pytest.mark.parametrize("verb", ["INSERT", "UPDATE"])
def test_end_of_a_reply_is_lost(verb: str) -> None:
    """The row has come, the packet after it has not: no later statement meets that."""
    execute(lambda: None, "job")
    LockRun.objects.all().delete()
    lost: list[str] = []

    def lose_the_end(execute: Any, sql: str, *arguments: Any) -> Any:
        reply = execute(sql, *arguments)
        if says(sql, verb, "shedlock_run") and not lost:
            lost.append(sql)
            driver = connection.connection
            vars(driver)["next_result"] = partial(break_off, driver)
        return reply

    with connection.execute_wrapper(lose_the_end):
        with hold("job"):
            assert outcomes() == ["running"]
        assert outcomes() == ["succeeded"]
    assert len(lost) == 1
    assert not state("job").is_held


def break_off(driver: Any) -> NoReturn:
    """Fail as MySQL's driver does whenever it waits for the end of that reply."""
    with socket.socket(fileno=os.dup(driver.fileno())) as waiting:
        with suppress(OSError):  # it is shut down
            waiting.shutdown(socket.SHUT_RDWR)
    raise driver.OperationalError(2013, "Lost connection to server during query")


@committed
@pytest.mark.servers_only
def test_lock_that_is_given_back_leaves_no_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody knew that it was acquired, so its job did not run."""
    execute(lambda: None, "job", history=False)
    monkeypatch.setattr(connecting, "ATTEMPTS", 1)
    gone = OperationalError("server closed the connection unexpectedly")
    with connection.execute_wrapper(Failing(gone, times=1, after=True)):
        with pytest.raises(LockProviderError, match="before the answer"):
            execute(lambda: None, "job", lock_at_most_for="1h")
    wait_for(lambda: not state("job").is_held)
    assert outcomes() == []


@committed
@pytest.mark.parametrize("schedule", [None, "@yearly"])
def test_refused_run_is_no_refused_lock(
    caplog: pytest.LogCaptureFixture, schedule: str | None
) -> None:
    """What the database has against the history, it has not against the lock."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE shedlock_run RENAME TO elsewhere")
    try:
        assert execute(lambda: "done", "job", schedule=schedule).value == "done"
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE elsewhere RENAME TO shedlock_run")
    assert caplog.text.count("The history lacks a run") == 2
    assert not state("job").is_held


@committed
@pytest.mark.parametrize("inside", [False, True])
def test_run_of_a_lock_that_is_kept_ends(*, inside: bool) -> None:
    """With the same release, in the caller's transaction, too."""
    with transaction.atomic() if inside else nullcontext():
        execute(lambda: None, "job", lock_at_least_for="1h")
    assert outcomes() == ["succeeded"]
    assert state("job") is LockState.HELD_AT_LEAST


@committed
def test_run_of_a_lost_lock_is_lost() -> None:
    """A release that comes too late tells the truth, by a statement of its own."""
    with hold("job"):
        LockRecord.objects.update(locked_by="somebody:1:else")
    assert outcomes() == ["lost"]


@committed
@pytest.mark.postgres_only
def test_success_of_a_tick_is_durable() -> None:
    """With the end of its run it commits as durably as without: catch-up needs it."""
    execute(lambda: None, "job", schedule="@yearly")
    LockRecord.objects.update(tick=None)
    with CaptureQueriesContext(connection) as sent:
        execute(lambda: None, "job", schedule="@yearly")
    written = [each["sql"] for each in sent if says(each["sql"], "UPDATE")]
    assert len(written) == 2
    assert not any("synchronous_commit" in sql for sql in written)
    with CaptureQueriesContext(connection) as sent:
        execute(lambda: None, "other")
    assert "synchronous_commit" in sent[-1]["sql"]


@committed
def test_failed_try_with_history_is_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first one, which may be the last, plans the INSERT of a run."""
    monkeypatch.setattr(acquisition, "is_of_a_test", lambda connection: False)
    monkeypatch.setattr(acquisition, "SHARES_ONE_WRITER", set())
    take_from(get_provider(), configure())
    execute(lambda: None, "job")
    with CaptureQueriesContext(connection) as sent:
        assert not execute(lambda: None, "job").was_executed
    assert [each["sql"].partition(" ")[0] for each in sent] == ["SELECT"]


@committed
@pytest.mark.mariadb_only
def test_statement_that_is_killed_leaves_no_transaction() -> None:
    """A limit of the server ends a compound statement where no handler sees it."""
    execute(lambda: None, "job")
    other = connection.copy()
    other.set_autocommit(False)
    try:
        with other.cursor() as cursor:
            cursor.execute("SELECT * FROM shedlock FOR UPDATE")
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION max_statement_time = 0.05")
            assert not execute(lambda: None, "job").was_executed
            cursor.execute("SELECT @@in_transaction")
            assert cursor.fetchone() == (0,)
    finally:
        other.close()
        connection.close()


class Interrupted(BaseException):
    """What the handler of a signal raises."""


@committed
@pytest.mark.sqlite_only
@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("is_after", [False, True])
def test_interrupt_leaves_no_transaction(
    number: int, monkeypatch: pytest.MonkeyPatch, *, is_after: bool
) -> None:
    """Whatever ends the two statements of SQLite, its writer is free again."""
    monkeypatch.setattr(executor, "INTERRUPTION_TIMEOUT", 0.05)
    execute(lambda: None, "job")
    calls = iter(range(100))

    def interrupt(execute: Any, *arguments: Any) -> Any:
        is_now = next(calls) == number
        if is_now and not is_after:
            raise Interrupted
        result = execute(*arguments)
        if is_now:
            raise Interrupted
        return result

    with pytest.raises(Interrupted), connection.execute_wrapper(interrupt):
        execute(lambda: None, "job")
    assert not connection.connection.in_transaction
    wait_for(lambda: not state("job").is_held)
