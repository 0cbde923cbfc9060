"""The history: what is recorded of each run, and that it never breaks one."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NoReturn

import psycopg
import pytest
from asgiref.sync import async_to_sync
from django.db import DatabaseError, OperationalError, connection, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_shedlock import (
    InvalidLockConfiguration,
    Lock,
    aexecute,
    execute,
    hold,
    release_all,
    scheduler_lock,
)
from django_shedlock.fields import DatabaseNow
from django_shedlock.history import recording
from django_shedlock.history.recording import Skips, exception_columns, skips
from django_shedlock.jobs.registry import invoked_by
from django_shedlock.locks.states import RunOutcome
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers.database import DatabaseLockProvider, acquisition
from django_shedlock.providers.database import provider as providing
from django_shedlock.providers.database.connections import private_connections
from django_shedlock.schedules.state import Start, Trigger
from django_shedlock.test import force_release, held_elsewhere, locked_in_memory
from tests.support.locks import Broken, Silent, add_run, configure, take
from tests.support.processes import Parent, workers
from tests.support.statements import says

pytestmark = pytest.mark.django_db

committed = pytest.mark.django_db(transaction=True)


def run_job(**options: Any) -> None:
    execute(lambda: None, "job", **options)


def outcomes() -> list[str]:
    runs = LockRun.objects.with_outcome().order_by("pk")
    return list(runs.values_list("current_outcome", flat=True))


def die(name: str = "job") -> LockRun:
    """Leave a run of a worker that died with its lock."""
    lock = take(name)
    run = add_run(name, RunOutcome.RUNNING, locked_by=lock.locked_by)
    LockRecord.objects.filter(name=name).update(lock_until=DatabaseNow())
    return run


def test_run_is_recorded() -> None:
    """A run's row tells the lock, who ran it, its token, when, how long and how."""
    with hold("billing") as lock:
        token = lock.fencing_token
    run = LockRun.objects.get()
    assert (run.name, run.provider, run.outcome) == ("billing", "default", "succeeded")
    assert (run.locked_by, run.fencing_token) == (lock.locked_by, token)
    assert (run.host, run.pid) == (socket.gethostname(), os.getpid())
    assert run.finished is not None
    assert run.started <= run.finished
    assert run.duration is not None
    assert timedelta(0) < run.duration < timedelta(minutes=5)
    assert (run.exception_type, run.exception_message, run.skips) == ("", "", 0)


def test_run_tells_what_started_it() -> None:
    """And who and why, if a person did."""

    @scheduler_lock("job")
    def job() -> None:
        pass

    job()
    with invoked_by(Start(Trigger.RETRY)):
        job()
    start = Start(Trigger.OPERATOR, operator="alice", reason="half\0of it failed")
    with invoked_by(start):
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
    with invoked_by(start):
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
    """With the exceptions that led to it; of a long one the end is kept."""

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


def test_run_has_a_row_while_it_runs() -> None:
    """A job that runs is in the history already, without an end."""
    with hold("job"):
        run = LockRun.objects.with_outcome().get()
        assert (run.outcome, run.current_outcome) == ("running", "running")
        assert (run.finished, run.duration) == (None, None)


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


def test_dead_holder_is_abandoned_beside_the_next_one() -> None:
    """A run that told of no end stays so, however the next one ends."""
    dead = die()
    run_job()
    assert outcomes() == ["abandoned", "succeeded"]
    dead.refresh_from_db()
    assert (dead.finished, dead.duration) == (None, None)


def test_dead_holder_is_abandoned_though_nobody_followed() -> None:
    """A run whose lease is over counts as abandoned; nothing has to be written."""
    die()
    assert outcomes() == ["abandoned"]


def test_failure_of_the_next_one_is_not_the_dead_ones() -> None:
    """The exception stands with the run that raised it."""
    die()
    with pytest.raises(Broken), hold("job"):
        raise Broken("mine")
    assert outcomes() == ["abandoned", "failed"]
    texts = LockRun.objects.order_by("pk").values_list("exception_message", flat=True)
    assert list(texts) == ["", "mine"]


def test_next_holder_is_not_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who took the lock between its release and the record of that runs on."""
    release = DatabaseLockProvider.release

    def released_and_taken(
        self: DatabaseLockProvider, lock: Lock, **options: Any
    ) -> bool:
        released = release(self, lock, **options)
        add_run("job", RunOutcome.RUNNING, locked_by=take().locked_by)
        return released

    monkeypatch.setattr(DatabaseLockProvider, "release", released_and_taken)
    run_job()
    assert outcomes() == ["succeeded", "running"]


def test_late_run_does_not_touch_the_next_one() -> None:
    """A holder that overran ends as lost, while the next one is still running."""
    with hold("job"):
        force_release("job")
        lock = take()
        add_run("job", RunOutcome.RUNNING, locked_by=lock.locked_by)
    assert outcomes() == ["lost", "running"]


def test_overtaken_run_tells_of_its_end_itself() -> None:
    """Called abandoned by the next one, a run that ends after all is lost."""
    with hold("job", lock_at_most_for="1m") as late:
        force_release("job")
        lock = take()
        row = add_run("job", RunOutcome.RUNNING, locked_by=lock.locked_by)
        LockRun.objects.filter(locked_by=late.locked_by).update(
            outcome=RunOutcome.ABANDONED
        )
        assert row.pk
    assert outcomes() == ["lost", "running"]


def test_skips_are_told_by_the_next_run() -> None:
    """A run tells how often its process skipped the job since it last ran."""
    run_job()
    with held_elsewhere("job"):
        run_job()
        run_job()
    run_job()
    run_job()
    skipped = LockRun.objects.order_by("pk").values_list("skips", flat=True)
    assert list(skipped) == [0, 2, 0]


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

    def test_skips_without_history_are_not_counted(self) -> None:
        """They would never be told, and stay in the memory."""
        with held_elsewhere("job"):
            run_job(history=False)
        assert taken("default", "job") == 0

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
        """With SHEDLOCK_ENABLED = False there are no runs under locks."""
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
        # SQLite's transactions begin and end by statements, which cost little.
        sent = [each["sql"] for each in statements.captured_queries]
        return len([sql for sql in sent if sql not in {"BEGIN", "COMMIT"}])

    def test_history_rides_with_the_lock(self) -> None:
        """Lock and run are written at once, also after a holder that died."""
        run_job(history=False)
        assert self.count(lambda: run_job(history=False)) == 2
        together = 4 if connection.vendor == "sqlite" else 2
        assert self.count(run_job) == together
        die()
        assert self.count(run_job) == together
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


def refuse(*arguments: Any) -> NoReturn:
    raise OperationalError("too many clients already")


@pytest.fixture
def by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no run ride with its lock, as on Oracle."""
    for module in (acquisition, providing):
        monkeypatch.setattr(module, "can_ride", lambda connection: False)


class TestFailures:
    """The history can be broken; the job goes on."""

    def test_start_that_cannot_be_recorded(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The job runs, a warning tells why, and the end makes up the row."""
        with failing("INSERT"):
            lock = hold("job")
            lock.__enter__()
        lock.__exit__(None, None, None)
        assert outcomes() == ["succeeded"]
        assert LockRun.objects.get().skips == 0
        assert "The history lacks a run of lock 'job'" in caplog.text
        assert "no INSERT today" in caplog.text

    def test_late_record_has_the_time_of_the_start(self) -> None:
        """A run whose row is made up at its end began before that."""
        with failing("INSERT"):
            lock = hold("job")
            lock.__enter__()
        time.sleep(0.2)
        lock.__exit__(None, None, None)
        run = LockRun.objects.get()
        assert run.finished is not None
        assert run.finished - run.started >= timedelta(seconds=0.2)

    @committed
    def test_lost_reply_makes_no_second_row(self) -> None:
        """A row that is there, though the connection broke, is the run's own."""
        with losing_the_reply_to("INSERT"):
            run_job()
        assert outcomes() == ["succeeded"]

    @committed
    def test_row_that_was_written_unknown_to_us_is_no_run_of_its_own(
        self, monkeypatch: pytest.MonkeyPatch, by_itself: None
    ) -> None:
        """Where the second try failed, too, the end finds the row of the first."""
        lock = hold("job")
        with monkeypatch.context() as down, losing_the_reply_to("INSERT"):
            down.setattr(private_connections, "borrowed", refuse)
            with failing("SELECT"):
                lock.__enter__()
        assert outcomes() == ["running"]
        lock.__exit__(None, None, None)
        assert outcomes() == ["succeeded"]

    def test_end_that_cannot_be_recorded(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The lock is released, and what the body returned reaches the caller."""
        with failing("UPDATE"):
            assert execute(lambda: "done", "job").value == "done"
        assert LockRecord.objects.get().released_at is not None
        assert [r.levelno for r in caplog.records] == [logging.WARNING]
        assert LockRun.objects.with_outcome().get().current_outcome == "abandoned"

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
        assert caplog.text.count("The history lacks a run") == 2

    @committed
    def test_callers_transaction_survives(self) -> None:
        """A failed record does not break the transaction that the caller is in."""
        with transaction.atomic(), failing("INSERT"), failing("UPDATE"):
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


def skip(skips: Skips, provider: str, name: str) -> None:
    """Count a skip as the signal does."""
    skips.add(configuration=configure(name), provider=DatabaseLockProvider(provider))


def taken(provider: str, name: str) -> int:
    """Count the skips as a run does, which tells of them."""
    count = skips.count(provider, name)
    skips.subtract(count, provider, name)
    return count


def test_skips_are_counted_for_each_lock_until_taken() -> None:
    """A count belongs to one provider's lock, and begins again when it is read."""
    for provider, name in [("a", "job"), ("a", "job"), ("b", "job"), ("a", "other")]:
        skip(skips, provider, name)
    assert [taken("a", "job"), taken("a", "job")] == [2, 0]
    assert [taken("b", "job"), taken("a", "other")] == [1, 1]


def test_names_without_end_do_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beyond the limit new names are not counted, and known ones are."""
    monkeypatch.setattr(recording, "MOST_NAMES", 1)
    few = Skips()
    for name in ["first", "second", "first"]:
        skip(few, "a", name)
    assert [few.count("a", name) for name in ("first", "second")] == [2, 0]


def test_forked_child_has_skipped_nothing() -> None:
    """A child begins at zero, also if its parent was counting at that moment."""
    skip(skips, "a", "job")
    with skips._mutex:
        child = os.fork()
        if child == 0:
            os._exit(taken("a", "job"))
    _, status = os.waitpid(child, 0)
    assert (os.waitstatus_to_exitcode(status), taken("a", "job")) == (0, 1)
