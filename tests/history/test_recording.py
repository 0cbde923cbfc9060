"""The history: what is recorded of each run, and that it never breaks one."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from asgiref.sync import async_to_sync
from django.db import DatabaseError, OperationalError, connection, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_shedlock import (
    InvalidLockConfiguration,
    Lock,
    LockLost,
    aexecute,
    execute,
    hold,
    release_all,
    scheduler_lock,
)
from django_shedlock.history.recording import exception_columns, write_abandoned
from django_shedlock.locks.status import AbandonedRun, LockState
from django_shedlock.locks.time_limits import TimeLimitExceeded
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.registry.jobs import starting
from django_shedlock.schedules.state import Start, Trigger
from django_shedlock.signals import lock_acquired
from django_shedlock.testing import force_release, held_elsewhere, locked_in_memory
from tests.support.locks import (
    Broken,
    Silent,
    expire,
    let_its_clock_move,
    pause,
    take,
)
from tests.support.processes import Parent, workers
from tests.support.statements import says
from tests.support.waiting import wait_for

pytestmark = pytest.mark.django_db

committed = pytest.mark.django_db(transaction=True)


def run_job(**options: Any) -> None:
    execute(lambda: None, "job", **options)


def outcomes() -> list[str]:
    return list(LockRun.objects.order_by("pk").values_list("outcome", flat=True))


def start_elsewhere() -> Lock:
    """Begin a run as another worker does, which re-enters no lock of the caller's."""
    lock = take()
    lock_acquired.send_robust(type(lock.provider), lock=lock)
    return lock


def die() -> Lock:
    """Leave the lock of a worker that died with it."""
    lock = start_elsewhere()
    expire("job")
    return lock


def test_run_is_recorded() -> None:
    """A run's row tells the lock, who ran it, its token, when, how long and how."""
    with hold("billing") as lock:
        token = lock.fencing_token
    run = LockRun.objects.get()
    assert (run.name, run.provider, run.outcome) == ("billing", "default", "succeeded")
    assert (run.locked_by, run.fencing_token) == (lock.locked_by, token)
    assert (run.host, run.pid) == (socket.gethostname(), os.getpid())
    assert run.started is not None
    assert run.duration is not None
    # The database may stand still between the two columns of one statement.
    assert abs(run.ended - run.started - run.duration) < timedelta(seconds=5)
    assert timedelta(0) < run.duration < timedelta(minutes=5)
    assert (run.exception_type, run.exception_message, run.lost_at) == ("", "", None)


def test_every_run_has_its_token() -> None:
    """The first acquisition, which creates the record, tells its token, too."""
    for _ in range(3):
        run_job()
    tokens = list(
        LockRun.objects.order_by("pk").values_list("fencing_token", flat=True)
    )
    assert None not in tokens
    assert tokens == sorted(set(tokens))
    assert LockRecord.objects.get().fencing_token == tokens[-1]


def test_run_tells_what_started_it() -> None:
    """A run records what started it, and for a person also who and why."""

    @scheduler_lock("job")
    def job() -> None:
        pass

    job()
    with starting(Start(Trigger.RETRY)):
        job()
    start = Start(Trigger.OPERATOR, operator="alice", reason="half\0of it failed")
    with starting(start):
        job()
    causes = LockRun.objects.order_by("pk").values_list("trigger", "operator", "reason")
    assert list(causes) == [
        ("scheduler", "", ""),
        ("retry", "", ""),
        ("operator", "alice", "half\\0of it failed"),
    ]


def test_long_cause_is_cut_off() -> None:
    """No name or reason is too long for its column."""
    job = scheduler_lock("job")(lambda: None)
    start = Start(Trigger.OPERATOR, operator="a" * 300, reason="b" * 3000)
    with starting(start):
        job()
    run = LockRun.objects.get()
    assert (run.operator, run.reason) == ("a" * 255, "b" * 2000)


DSN = "host=127.0.0.1 port=1 dbname=shop user=app password='s3 cr3t'"


def ask_the_shop() -> None:
    try:
        psycopg.connect("postgresql://app:s3cr3t@127.0.0.1:1/shop")
    except psycopg.OperationalError as error:
        raise Broken(f"Nor does {DSN}") from error


def test_history_keeps_no_password() -> None:
    """Not that of a driver's error, nor of its cause, nor of the lines of source."""
    with pytest.raises(Broken):
        execute(ask_the_shop, "job")
    run = LockRun.objects.get()
    assert "user=app password=*****" in run.exception_message
    assert "postgresql://app:******" in run.exception_traceback
    assert "psycopg.OperationalError: " in run.exception_traceback
    kept = run.exception_message + run.exception_traceback
    assert not any(secret in kept for secret in ("s3cr3t", "s3 cr3t"))


def test_project_scrubs_what_the_history_keeps() -> None:
    """By a function of its own, or by its path."""
    for scrub in (scrub_names, f"{__name__}.scrub_names"):
        with override_settings(SHEDLOCK_HISTORY_SCRUB=scrub):
            with pytest.raises(Broken):
                execute(fail_for_alice, "job")
        run = LockRun.objects.latest("pk")
        assert run.exception_message == "no mail to (somebody)"
        assert "Broken: no mail to (somebody)" in run.exception_traceback


def scrub_names(text: str) -> str:
    return text.replace("alice", "(somebody)")


def fail_for_alice() -> None:
    raise Broken("no mail to alice")


def test_function_that_fails_leaves_the_text_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The run is recorded all the same, and the log tells why its text is missing."""
    for scrub in (lambda text: 1 / 0, "no.such.function"):
        with override_settings(SHEDLOCK_HISTORY_SCRUB=scrub):
            with pytest.raises(Broken):
                execute(fail_for_alice, "job")
        run = LockRun.objects.latest("pk")
        assert (run.outcome, run.exception_message, run.exception_traceback) == (
            "failed",
            "",
            "",
        )
        assert run.exception_type.endswith("Broken")
        assert "SHEDLOCK_HISTORY_SCRUB failed: a text is left out." in caplog.text
        caplog.clear()


def test_failed_run_has_its_traceback() -> None:
    """
    A failed run records its traceback, with the exceptions that led to it.

    Only the end of a long traceback is kept.
    """

    def fail(depth: int = 0) -> None:
        try:
            raise KeyError("the first")
        except KeyError as error:
            raise Broken("the last" + "!" * depth) from error

    with pytest.raises(Broken):
        execute(fail, "job")
    told = LockRun.objects.get().exception_traceback
    assert told.startswith("Traceback (most recent call last):")
    assert told.index("KeyError: 'the first'") < told.index("Broken: the last")
    with pytest.raises(Broken):
        execute(lambda: fail(20_000), "job")
    told = LockRun.objects.latest("pk").exception_traceback
    assert len(told) == 16_000
    assert told.endswith("!!!\n")


def test_run_has_no_row_while_it_runs() -> None:
    """A job that runs is on its lock's record, and not in the history."""
    with hold("job") as lock:
        assert outcomes() == []
        assert LockRecord.objects.get().open_run == lock.locked_by
    assert outcomes() == ["succeeded"]
    assert LockRecord.objects.get().open_run is None


def test_failure_is_recorded_with_its_exception() -> None:
    """A job that raises leaves the type and the message, and raises all the same."""
    with pytest.raises(Broken), hold("job"):
        raise Broken("no more paper")
    run = LockRun.objects.get()
    assert run.outcome == "failed"
    assert run.exception_type == f"{Broken.__module__}.Broken"
    assert run.exception_message == "no more paper"


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (None, "succeeded"),
        (0, "succeeded"),
        (1, "failed"),
        ("bad", "failed"),
        (["no", "paper"], "failed"),
    ],
)
def test_exit_status_decides(code: object, outcome: str) -> None:
    """A command that ends with sys.exit() failed unless its status is 0."""
    with pytest.raises(SystemExit), hold("job"):
        sys.exit(code)  # type: ignore[arg-type]
    assert outcomes() == [outcome]
    told = LockRun.objects.get()
    kept = (told.exception_type, told.exception_message, told.exception_traceback)
    assert any(kept) is (outcome == "failed")


def test_run_that_takes_too_long_is_recorded() -> None:
    """A run whose time limit is over has timed out, and counts as a failure."""
    with pytest.raises(SystemExit) as raised, hold("job"):
        raise TimeLimitExceeded(timedelta(minutes=30))
    assert raised.value.code == 124
    assert outcomes() == ["timed out"]
    record = LockRecord.objects.get()
    assert (record.outcome, record.failures) == ("timed out", 1)
    assert LockRun.objects.get().exception_message == "the time limit of 30m is over"


def test_lost_run_is_recorded() -> None:
    """A run whose lock was freed under it is lost, though its body ended well."""
    with hold("job"):
        force_release("job")
    assert outcomes() == ["lost"]


def test_lost_run_keeps_its_exception() -> None:
    """What ended the body of a lost run is recorded, too."""
    with pytest.raises(Broken), hold("job"):
        force_release("job")
        raise Broken
    run = LockRun.objects.get()
    assert (run.outcome, run.exception_type) == ("lost", f"{Broken.__module__}.Broken")


@committed
def test_loss_is_recorded_at_once() -> None:
    """A run that loses its lock has a row while its body goes on, and then its end."""
    with pytest.raises(Broken), hold("job") as lock:
        force_release("job")
        with pytest.raises(LockLost):
            lock.extend()
        wait_for(lambda: outcomes() == ["lost"])
        at_loss = LockRun.objects.get()
        assert at_loss.lost_at is not None
        assert at_loss.exception_type == ""
        let_its_clock_move(get_provider())
        raise Broken
    run = LockRun.objects.get()
    assert (run.outcome, run.exception_type) == ("lost", f"{Broken.__module__}.Broken")
    assert run.ended > at_loss.ended
    assert abs(run.lost_at - at_loss.lost_at) < timedelta(seconds=5)


def test_dead_holder_is_abandoned_by_the_next_one() -> None:
    """The next acquisition writes the row of a run that nobody has ended."""
    dead = die()
    record = LockRecord.objects.get()
    assert outcomes() == []
    run_job()
    assert outcomes() == ["abandoned", "succeeded"]
    run = LockRun.objects.get(locked_by=dead.locked_by)
    assert (run.started, run.ended) == (record.locked_at, record.lock_until)
    assert (run.duration, run.trigger, run.operator) == (None, "", "")
    assert (run.host, run.pid) == (socket.gethostname(), os.getpid())


def test_five_nights_in_a_row() -> None:
    """
    A job that is killed every night has a row for each run but the last.

    The next acquisition adds the row of the last run.
    """
    for _ in range(5):
        die()
    assert outcomes() == ["abandoned"] * 4
    record = LockRecord.objects.with_status().get()
    assert (record.failures, record.status.state) == (4, LockState.EXPIRED)
    with hold("job"):
        assert outcomes() == ["abandoned"] * 5
        assert LockRecord.objects.get().failures == 5
    assert LockRecord.objects.get().failures == 0


def test_failure_of_the_next_one_is_not_the_dead_ones() -> None:
    """The exception stands with the run that raised it."""
    die()
    with pytest.raises(Broken), hold("job"):
        raise Broken("mine")
    assert outcomes() == ["abandoned", "failed"]
    texts = LockRun.objects.order_by("pk").values_list("exception_message", flat=True)
    assert list(texts) == ["", "mine"]


def test_late_run_does_not_touch_the_next_one() -> None:
    """A holder that overran ends as lost, while the next one is still running."""
    with hold("job"):
        force_release("job")
        lock = take()
    assert outcomes() == ["lost"]
    record = LockRecord.objects.get()
    assert (record.locked_by, record.open_run) == (lock.locked_by, lock.locked_by)


def test_own_word_replaces_that_it_was_abandoned() -> None:
    """A run that was called abandoned by the next one, and ends after all, is lost."""
    with pytest.raises(Broken), hold("job", lock_at_most_for="1m") as late:
        expire("job")
        start_elsewhere().release()
        assert outcomes() == ["abandoned", "succeeded"]
        raise Broken("too late")
    assert outcomes() == ["lost", "succeeded"]
    run = LockRun.objects.get(locked_by=late.locked_by)
    assert (run.exception_message, run.trigger) == ("too late", "scheduler")
    assert run.lost_at is not None


def test_abandoned_row_does_not_replace_the_own_word() -> None:
    """In the other order, too, the run's own word is what the history keeps."""
    run_job()
    own = LockRun.objects.get()
    dead = AbandonedRun(own.locked_by, own.started, own.ended)
    write_abandoned(get_provider(), "job", dead)
    assert outcomes() == ["succeeded"]


def test_pause_over_a_dead_run_accounts_for_it() -> None:
    """An operator's acquisition opens no run, and tells which one it has ended."""
    dead = die()
    paused = pause("job")
    assert paused.abandoned is not None
    assert paused.abandoned.locked_by == dead.locked_by
    record = LockRecord.objects.get()
    assert (record.open_run, record.last_run) == (None, dead.locked_by)
    assert (record.outcome, record.failures) == ("abandoned", 1)


def test_lock_released_early_is_a_success() -> None:
    """A body that gives its lock back itself succeeded with that."""
    with hold("job") as lock:
        lock.release()
    assert outcomes() == ["succeeded"]


def test_shutdown_is_no_success() -> None:
    """A run whose lock release_all() gave away did not end well."""
    with hold("job"):
        release_all()
    run = LockRun.objects.get()
    assert (run.outcome, run.exception_type) == (
        "failed",
        "django_shedlock.exceptions.LockLost",
    )
    assert "release_all()" in run.exception_message


@committed
def test_async_run_is_recorded() -> None:
    """Coroutines have their history, also when they are cancelled."""

    async def cancelled() -> None:
        raise asyncio.CancelledError

    async def job() -> str:
        return "done"

    assert async_to_sync(aexecute)(job, "job").value == "done"
    with pytest.raises(asyncio.CancelledError):
        async_to_sync(aexecute)(cancelled, "job")
    assert outcomes() == ["succeeded", "failed"]


class TestSwitches:
    """Where no history is wanted, none is written."""

    def test_setting_off(self) -> None:
        """SHEDLOCK_HISTORY = False records nothing."""
        with override_settings(SHEDLOCK_HISTORY=False):
            run_job()
        assert outcomes() == []

    def test_lock_decides_for_itself(self) -> None:
        """A lock's own option counts more than the setting, in both directions."""
        run_job(history=False)
        assert outcomes() == []
        with override_settings(SHEDLOCK_HISTORY=False):
            run_job(history=True)
        assert outcomes() == ["succeeded"]

    def test_decorator_has_the_option(self) -> None:
        """A decorated job can have no history."""
        scheduler_lock("job", history=False)(lambda: None)()
        assert outcomes() == []

    def test_abandoned_run_follows_the_switch(self) -> None:
        """Without history a dead run has no row, but the record counts it."""
        die()
        run_job(history=False)
        assert outcomes() == []
        die()
        assert LockRecord.objects.get().failures == 0
        with hold("job", history=False):
            assert LockRecord.objects.get().failures == 1

    def test_record_is_kept_without_history(self) -> None:
        """What the record says of the last run does not depend on the history."""
        with pytest.raises(Broken), hold("job", history=False):
            raise Broken
        record = LockRecord.objects.get()
        assert (record.outcome, record.failures) == ("failed", 1)
        assert outcomes() == []

    @pytest.mark.parametrize("value", ["no", 0, "False"])
    def test_option_must_be_a_switch(self, value: Any) -> None:
        """Anything but True, False and None is refused at decoration."""
        with pytest.raises(InvalidLockConfiguration, match=r"'job': history"):
            scheduler_lock("job", history=value)(lambda: None)

    def test_memory_has_no_history(self) -> None:
        """Locks in memory need no database, so their runs are not recorded."""
        with locked_in_memory():
            run_job()
        assert outcomes() == []

    def test_nothing_is_recorded_without_locks(self) -> None:
        """With SHEDLOCK_ENABLED = False no run is recorded."""
        with override_settings(SHEDLOCK_ENABLED=False):
            run_job()
        assert outcomes() == []

    def test_history_is_in_the_providers_database(self) -> None:
        """A provider's runs stand beside its locks."""
        assert DatabaseLockProvider("second", using="other").history_database == "other"


@committed
class TestStatements:
    """What the history costs."""

    def count(self, job: Callable[[], None]) -> int:
        with CaptureQueriesContext(connection) as statements:
            job()
        return len(statements)

    def test_run_costs_one_statement(self) -> None:
        """The history costs a run one statement, and three more after a dead worker."""
        run_job(history=False)
        assert self.count(lambda: run_job(history=False)) == 2
        assert self.count(run_job) == 3
        die()
        assert self.count(run_job) == 6
        assert outcomes() == ["succeeded", "abandoned", "succeeded"]

    def test_skip_costs_nothing_more(self) -> None:
        """A skipped job has the same statements with and without history."""
        with held_elsewhere("job"):
            assert self.count(lambda: run_job(history=False)) == 2
            assert self.count(run_job) == 2
        assert outcomes() == []


@contextmanager
def failing(verb: str, table: str = "shedlock_run") -> Iterator[None]:
    """Let the database refuse such statements about the table."""

    def refuse(execute: Any, sql: str, *arguments: Any) -> Any:
        if says(sql, verb, table):
            raise DatabaseError(f"no {verb} today")
        return execute(sql, *arguments)

    with connection.execute_wrapper(refuse):
        yield


@contextmanager
def losing_the_reply_to(verb: str, table: str = "shedlock_run") -> Iterator[None]:
    """Run the first such statement, and fail as if the connection broke then."""
    lost = []

    def lose(execute: Any, sql: str, *arguments: Any) -> Any:
        reply = execute(sql, *arguments)
        if says(sql, verb, table) and not lost:
            lost.append(sql)
            raise OperationalError("the connection is gone")
        return reply

    with connection.execute_wrapper(lose):
        yield


class TestFailures:
    """The history can be broken; the job goes on."""

    def test_row_that_cannot_be_written(self, caplog: pytest.LogCaptureFixture) -> None:
        """The lock is released, a warning tells why, and the record says so, too."""
        with failing("INSERT"):
            assert execute(lambda: "done", "job").value == "done"
        assert outcomes() == []
        record = LockRecord.objects.get()
        assert (record.outcome, record.open_run) == ("succeeded", None)
        assert record.unrecorded_at is not None
        assert record.unrecorded_at >= record.ended_at
        assert "The history lacks a run of lock 'job'" in caplog.text
        assert "no INSERT today" in caplog.text
        assert [r.levelno for r in caplog.records] == [logging.WARNING]

    def test_abandoned_row_that_cannot_be_written(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The next job runs under its lock all the same."""
        die()
        with failing("INSERT"), hold("job") as lock:
            assert lock.is_active
        assert LockRecord.objects.get().outcome == "succeeded"
        assert caplog.text.count("The history lacks a run of lock 'job'") == 2

    @committed
    def test_lost_reply_makes_no_second_row(self) -> None:
        """A row that is there, though the connection broke, is the run's own."""
        with losing_the_reply_to("INSERT"):
            run_job()
        assert outcomes() == ["succeeded"]

    @committed
    def test_missing_table(self, caplog: pytest.LogCaptureFixture) -> None:
        """A job runs though the table of runs is not there."""
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE shedlock_run RENAME TO elsewhere")
        try:
            assert execute(lambda: "done", "job").value == "done"
        finally:
            with connection.cursor() as cursor:
                cursor.execute("ALTER TABLE elsewhere RENAME TO shedlock_run")
        assert caplog.text.count("The history lacks a run") == 1

    @committed
    def test_callers_transaction_survives(self) -> None:
        """A failed record does not break the transaction that the caller is in."""
        with transaction.atomic(), failing("INSERT"):
            run_job()
            assert LockRecord.objects.count() == 1

    def test_long_texts_are_cut(self) -> None:
        """A type and a message have room in their columns."""
        endless = type("Endless" * 50, (Exception,), {})
        texts = exception_columns(endless("x" * 5000))
        assert len(texts["exception_type"]) == 255
        assert len(texts["exception_message"]) == 2000

    @pytest.mark.parametrize("raised", [ValueError, SystemExit, KeyboardInterrupt])
    def test_exception_that_cannot_be_printed(
        self, raised: type[BaseException]
    ) -> None:
        """An exception whose str() raises is recorded with its type, and passes on."""
        with pytest.raises(Silent), hold("job"):
            raise Silent(raised)
        assert LockRun.objects.get().exception_message == (
            f"(no message: str() raised {raised.__name__})"
        )

    @pytest.mark.parametrize("text", ["a\0b", "\ud800", "ö🔒", "x" * 5000])
    def test_every_message_can_be_stored(self, text: str) -> None:
        """NUL, half surrogates and long texts end no run without a record."""
        with pytest.raises(Broken), hold("job"):
            raise Broken(text)
        run = LockRun.objects.get()
        assert run.outcome == "failed"
        assert (
            run.exception_message
            == exception_columns(Broken(text))["exception_message"]
        )


@committed
@pytest.mark.servers_only
def test_run_is_recorded_though_the_caller_rolls_back() -> None:
    """The history of a job inside a transaction does not depend on it."""
    with pytest.raises(Broken), transaction.atomic():
        run_job()
        raise Broken
    assert outcomes() == ["succeeded"]


WORKERS = 4
ROUNDS = 25


def run_many(parent: Parent) -> int:
    return sum(
        execute(lambda: None, f"job {turn % 3}", wait="5m").was_executed
        for turn in range(ROUNDS)
    )


@committed
def test_processes_record_every_run() -> None:
    """Runs of several processes are all there, each with its own token."""
    with workers(WORKERS, run_many) as running:
        executed = sum(each.result() for each in running)
    runs = LockRun.objects.filter(outcome="succeeded")
    assert executed == WORKERS * ROUNDS
    assert runs.count() == executed
    assert runs.values("name", "fencing_token").distinct().count() == executed
    assert runs.values("pid").distinct().count() == WORKERS
