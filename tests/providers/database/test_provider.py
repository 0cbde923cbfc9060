"""The database provider: the contract, and what is special about a database."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from django.db import (
    IntegrityError,
    OperationalError,
    connection,
    connections,
    transaction,
)
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from django_shedlock import LockProviderError, hold
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import CONTENDED, LockHolder, LockState
from django_shedlock.models import LockRecord
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.database import (
    DatabaseLockProvider,
)
from django_shedlock.schedules.cron import Schedule
from django_shedlock.sql import connections as connecting
from django_shedlock.sql.errors import is_conflict
from django_shedlock.sql.fields import DatabaseNow
from django_shedlock.testing import LockProviderContract
from django_shedlock.testing.contract.harness import Options, force_extend
from tests.support.clocks import store_clock
from tests.support.leases import is_kept_alive
from tests.support.locks import (
    MINUTE,
    configure,
    expire,
    force_release,
    status_of,
    take,
    try_from,
)
from tests.support.paths import ROOT
from tests.support.servers import use
from tests.support.sessions import kill_session, session_number
from tests.support.statements import Failing, Only
from tests.support.waiting import NEVER_SECONDS, STARTUP_PATIENCE

sqlite_only = pytest.mark.sqlite_only
servers_only = pytest.mark.servers_only
committed = pytest.mark.django_db(transaction=True)


@pytest.fixture
def provider() -> DatabaseLockProvider:
    return DatabaseLockProvider("default")


@committed
class TestDatabaseLockProvider(LockProviderContract):
    """The contract, on the database under test."""

    backend = DatabaseLockProvider

    @pytest.fixture
    def unreachable_options(self) -> Iterator[Options]:
        here = connection.settings_dict.copy()
        use({"NAME": "/nowhere/else", "HOST": "127.0.0.1", "PORT": "1"})
        yield {}
        use(here)

    def end_lease(self, provider: LockProvider, lock: Lock) -> None:
        expire(lock.name)

    def pass_time(self, provider: LockProvider, name: str, by: timedelta) -> None:
        columns = ("locked_at", "lock_until", "lock_at_least_until", "released_at")
        older = {column: F(column) - by for column in columns}
        LockRecord.objects.filter(name=name).update(**older)

    def forget_record(self, provider: LockProvider, name: str) -> None:
        LockRecord.objects.filter(name=name).delete()


@pytest.mark.django_db
class TestTokens:
    """Fencing tokens follow the database's clock, and only grow."""

    def token(self, provider: DatabaseLockProvider) -> int:
        lock = take(configure(), provider)
        assert lock.release()
        return lock.fencing_token

    def test_token_is_the_clock_in_milliseconds(
        self, provider: DatabaseLockProvider
    ) -> None:
        """The fencing token is the store's clock in milliseconds."""
        for _ in range(2):  # the first one creates the record, the second updates it
            with store_clock(NOON):
                lock = take(configure(), provider)
            with store_clock(NOON + MINUTE):
                token = lock.fencing_token
                assert lock.release()
            past = token - NOON.timestamp() * 1000
            assert -5 <= past <= NEVER_SECONDS * 1000

    def test_token_of_a_faster_acquisition_is_one_more(
        self, provider: DatabaseLockProvider
    ) -> None:
        """If the clock stands still or is set back, the next token is one more."""
        with store_clock(NOON):
            before = self.token(provider)
        with store_clock(SET_BACK):
            assert [self.token(provider) for _ in range(3)] == [
                before + 1,
                before + 2,
                before + 3,
            ]

    def test_token_grows_when_the_record_is_made_again(
        self, provider: DatabaseLockProvider
    ) -> None:
        """A deleted, pruned or restored record repeats no number."""
        with store_clock(NOON):
            before = [self.token(provider) for _ in range(20)]
        assert before == sorted(set(before))
        LockRecord.objects.all().delete()
        with store_clock(NOON + MINUTE):
            deleted = self.token(provider)
        LockRecord.objects.update(fencing_token=before[0])  # from a backup
        with store_clock(NOON + 2 * MINUTE):
            restored = self.token(provider)
        assert before[-1] < deleted < restored


@committed
def test_locks_are_not_kept_alive_unless_asked_for() -> None:
    """A job whose lease is too short loses its lock, as in ShedLock."""
    with hold("job") as lock:
        assert not is_kept_alive(lock)


NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
SET_BACK = NOON - timedelta(hours=1)


@pytest.mark.django_db
class TestClockSetBack:
    """The store's clock, set back while a job runs."""

    @pytest.mark.parametrize("at_least", [timedelta(0), MINUTE])
    def test_lock_is_kept_no_longer_than_it_may(
        self, provider: DatabaseLockProvider, at_least: timedelta
    ) -> None:
        """Given back, it is free, or kept for lock_at_least_for from then on."""
        with store_clock(NOON):
            lock = take(configure(lock_at_least_for=at_least), provider)
        with store_clock(SET_BACK):
            assert provider.release(lock)
            status = status_of(provider, "job")
            assert status.remaining <= at_least
            expected = LockState.HELD_AT_LEAST if at_least else LockState.FREE
            assert status.state is expected
        with store_clock(SET_BACK + at_least + MINUTE):
            take(configure(), provider)

    @pytest.mark.parametrize("minutes", [1, 500_000])
    def test_released_lock_is_free(
        self, provider: DatabaseLockProvider, minutes: int
    ) -> None:
        """Set back after the release, the clock keeps nobody from the lock."""
        with store_clock(NOON):
            take(configure(lock_at_least_for=MINUTE), provider)
        with store_clock(NOON + 2 * MINUTE):
            lock = take(configure(lock_at_least_for=MINUTE / 2), provider)
        with store_clock(NOON + 3 * MINUTE):
            assert lock.release()
        with store_clock(NOON - minutes * MINUTE):
            status = status_of(provider, "job")
            assert (status.state, status.remaining) == (LockState.FREE, timedelta(0))
            assert not force_extend(provider, "job", MINUTE)
            assert not force_release(provider, "job")
            assert take(configure(), provider).release()

    def test_forced_release_lasts(self, provider: DatabaseLockProvider) -> None:
        """What an operator gave back before the clock was set back is free, too."""
        with store_clock(NOON):
            take(configure(), provider)
            assert force_release(provider, "job")
        with store_clock(SET_BACK):
            status = status_of(provider, "job")
            assert status.state is LockState.FREE
            take(configure(), provider)

    def test_lock_that_nobody_held_is_free(
        self, provider: DatabaseLockProvider
    ) -> None:
        """A schedule that was registered before keeps nobody from the lock."""
        with store_clock(NOON):
            provider.register("job", Schedule("@hourly", "UTC"))
        with store_clock(SET_BACK):
            status = status_of(provider, "job")
            assert status.state is LockState.FREE
            take(configure(), provider)

    def test_running_lock_stays_held(self, provider: DatabaseLockProvider) -> None:
        """A lease that nobody released lasts longer, never shorter."""
        with store_clock(NOON):
            take(configure(), provider)
        with store_clock(SET_BACK):
            status = status_of(provider, "job")
            assert status.state is LockState.RUNNING
            assert not isinstance(try_from(provider, configure()), Lock)

    def test_released_by_force_it_is_no_crash(
        self, provider: DatabaseLockProvider
    ) -> None:
        """What an operator gave back is free, and not expired."""
        with store_clock(NOON):
            take(configure(), provider)
        with store_clock(SET_BACK):
            assert force_release(provider, "job")
            status = status_of(provider, "job")
            assert status.state is LockState.FREE


@pytest.mark.django_db
class TestStatements:
    """How many statements each step takes."""

    def count(self, step: Callable[[], Any]) -> int:
        with CaptureQueriesContext(connection) as queries:
            step()
        lock_statements = [q for q in queries if "SAVEPOINT" not in q["sql"]]
        return len(lock_statements)

    def test_take_and_give_back_are_one_statement_each(
        self, provider: DatabaseLockProvider
    ) -> None:
        """A lock that is known costs one UPDATE to take and one to give back."""
        take(configure(), provider).release()
        assert self.count(lambda: try_from(provider, configure())) == 1
        lock = take_again(provider)
        # The history gets a row by a statement of its own.
        assert self.count(lambda: provider.release(lock)) == 1
        assert self.count(take_again(provider).release) == 2

    def test_failed_try_is_two_statements(self, provider: DatabaseLockProvider) -> None:
        """Without a record one has to be made, so the first try looks for one."""
        take(configure(), provider)
        assert self.count(lambda: try_from(provider, configure())) == 2

    def test_first_take_is_three_statements(
        self, provider: DatabaseLockProvider
    ) -> None:
        """A name that is new is updated, looked for, and inserted."""
        assert self.count(lambda: try_from(provider, configure())) == 3

    def test_clock_is_one_statement(self, provider: DatabaseLockProvider) -> None:
        """The clock costs one statement, also where there is no lock yet."""
        assert self.count(provider.now) == 1

    def test_extend_is_one_statement(self, provider: DatabaseLockProvider) -> None:
        """An extension is one UPDATE."""
        lock = take(configure(), provider)
        assert self.count(lock.extend) == 1


@committed
def test_holder_is_read_once(provider: DatabaseLockProvider) -> None:
    """A refusal tells at once who holds the lock, and for how long."""
    lock = take(configure(), provider)
    holder = try_from(provider, configure())
    assert isinstance(holder, LockHolder)
    assert (holder.locked_by, holder.tick) == (lock.locked_by, None)
    assert timedelta(0) < holder.remaining <= MINUTE


@committed
def test_lost_reply_is_recognised_after_a_skip(provider: DatabaseLockProvider) -> None:
    """The second try looks who holds the lock: it is us."""
    first = take(configure(), provider)
    try_from(provider, configure())
    assert provider.release(first)
    lost = OperationalError("server closed the connection unexpectedly")
    with connection.execute_wrapper(Failing(lost, times=1, after=True)):
        lock = take(configure(), provider)
    assert LockRecord.objects.get().locked_by == lock.locked_by


@servers_only
@committed
def test_lost_reply_is_recognised_after_its_own_short_lease(
    provider: DatabaseLockProvider,
) -> None:
    """An acquisition that is sent again opens one run, and abandons none of its own."""
    take(configure(), provider).release()
    lost = OperationalError("server closed the connection unexpectedly")
    with connection.execute_wrapper(Failing(lost, times=1, after=True)):
        lock = Lock(provider, configure(lock_at_most_for=timedelta(microseconds=1)))
        assert provider.acquire(lock) is None
    record = LockRecord.objects.get()
    assert (record.open_run, record.failures) == (lock.locked_by, 0)
    assert lock.abandoned is None


@committed
def test_record_that_was_deleted_is_made_again(provider: DatabaseLockProvider) -> None:
    """A deleted record is created again, even if the provider has just seen it."""
    take(configure(), provider)
    try_from(provider, configure())
    LockRecord.objects.all().delete()
    assert isinstance(try_from(provider, configure()), Lock)


@servers_only
@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_record_of_one_tenant_is_none_of_another(
    provider: DatabaseLockProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where an alias comes to mean another database, what is free there is acquired."""
    take(configure(), provider)
    try_from(provider, configure())
    settings = connections["default"].settings_dict
    connections["default"].close()
    monkeypatch.setitem(settings, "NAME", connections["other"].settings_dict["NAME"])
    try:
        assert isinstance(try_from(provider, configure()), Lock)
    finally:
        connections["default"].close()


@committed
def test_autocommit_take_sends_nothing_else(provider: DatabaseLockProvider) -> None:
    """Outside a transaction there is no BEGIN, COMMIT or savepoint around it."""
    take(configure(), provider).release()
    with CaptureQueriesContext(connection) as queries:
        take(configure(), provider).release()
    assert [q["sql"].split()[0] for q in queries] == ["UPDATE", "UPDATE", "INSERT"]


def take_again(provider: DatabaseLockProvider) -> Lock:
    force_release(provider, "job")
    return take(configure(), provider)


@pytest.mark.django_db
def test_row_a_day_old_is_taken(provider: DatabaseLockProvider) -> None:
    """A lock whose holder vanished yesterday is free."""
    take(configure(), provider)
    LockRecord.objects.update(
        lock_until=F("lock_until") - timedelta(days=1),
        locked_at=F("locked_at") - timedelta(days=1),
    )
    assert isinstance(try_from(provider, configure()), Lock)


@pytest.mark.django_db
def test_lock_is_acquirable_from_the_instant_its_lease_ends(
    provider: DatabaseLockProvider,
) -> None:
    """lock_until <= now is free: an update to the very now can be taken."""
    for _ in range(50):
        take(configure(), provider)
        LockRecord.objects.update(lock_until=DatabaseNow() + timedelta(0))
        assert isinstance(try_from(provider, configure()), Lock)
        LockRecord.objects.all().delete()


@pytest.mark.django_db
def test_deleted_row_is_made_again(provider: DatabaseLockProvider) -> None:
    """Somebody who deletes the row by hand does not stop the job for ever."""
    take(configure(), provider).release()
    LockRecord.objects.all().delete()
    assert isinstance(try_from(provider, configure()), Lock)


@pytest.mark.django_db
def test_release_of_a_deleted_row_changes_nothing(
    provider: DatabaseLockProvider,
) -> None:
    """A holder whose row was deleted gets False, and no error."""
    lock = take(configure(), provider)
    LockRecord.objects.all().delete()
    assert not provider.release(lock)
    assert not LockRecord.objects.exists()


@committed
def test_missing_table_is_a_clear_error(provider: DatabaseLockProvider) -> None:
    """The error says what to do in one sentence, without the driver's tracebacks."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE shedlock RENAME TO elsewhere")
        try:
            with pytest.raises(LockProviderError, match="(?s)'job'.*migrate") as caught:
                try_from(provider, configure())
        finally:
            cursor.execute("ALTER TABLE elsewhere RENAME TO shedlock")
    told = "".join(traceback.format_exception(caught.value))
    assert told.count("Traceback") == 1
    assert told.endswith("its table is missing. Run `python manage.py migrate`.\n")


@sqlite_only  # whose database a process of its own can have
@pytest.mark.once
def test_command_that_runs_before_migrate(tmp_path: Path) -> None:
    """A management command with a lock ends in one sentence, without a traceback."""
    (tmp_path / "early.py").write_text(EARLY)
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.support.lean_settings",
        "SHEDLOCK_TEST_SQLITE_FOLDER": str(tmp_path),
    }
    ended = subprocess.run(
        [sys.executable, tmp_path / "early.py"],
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=STARTUP_PATIENCE,
    )
    [told] = ended.stderr.splitlines()
    assert "Could not acquire lock 'early'" in told
    assert told.endswith("its table is missing. Run `python manage.py migrate`.")
    assert (ended.returncode, ended.stdout) == (1, "")


EARLY = """
import django
from django.core.management.base import BaseCommand
from django_shedlock import scheduler_lock

django.setup()

@scheduler_lock("early")
class Command(BaseCommand):
    requires_system_checks = []

    def handle(self, *args, **options):
        print("ran")

Command().run_from_argv(["manage.py", "early"])
"""


def conflict() -> OperationalError:
    """Return what Django raises here for a deadlock, or for a busy SQLite."""
    cause: Any = Exception()
    if connection.vendor == "mysql":
        return OperationalError(1213, "deadlock found")
    if connection.vendor == "sqlite":
        cause.sqlite_errorcode = sqlite3.SQLITE_BUSY
    else:
        cause.sqlstate = "40P01"
    error = OperationalError("deadlock found")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "code",
    [
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_BUSY_SNAPSHOT,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_LOCKED_SHAREDCACHE,
    ],
)
def test_kinds_of_conflict_are_conflicts(code: int) -> None:
    """SQLite adds to its code for a conflict what kind of conflict it is."""
    error = OperationalError("database is locked")
    error.__cause__ = sqlite3.OperationalError("database is locked")
    error.__cause__.sqlite_errorcode = code
    assert is_conflict(error)


class SteadyClock:
    """Stands for ``time``: a tenth of a second passes between two looks at it."""

    def __init__(self) -> None:
        self.looks = count(10_000)

    def monotonic(self) -> float:
        return next(self.looks) / 10

    def sleep(self, seconds: float) -> None:
        assert seconds > 0


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a machine that stands still for a moment be no reason to give up."""
    monkeypatch.setattr(connecting, "time", SteadyClock())


@committed
@pytest.mark.usefixtures("patient")
def test_conflict_is_tried_again(provider: DatabaseLockProvider) -> None:
    """A deadlock or serialization failure is no reason to skip a job."""
    with connection.execute_wrapper(Failing(conflict(), times=3)):
        lock = try_from(provider, configure())
    assert isinstance(lock, Lock)


@servers_only
@committed
def test_conflict_in_the_callers_transaction_is_named(
    provider: DatabaseLockProvider,
) -> None:
    """Only the caller can do it again: the database is there."""
    lock = take(configure(), provider)
    failing = connection.execute_wrapper(Failing(conflict(), times=1))
    first = "Another transaction came first: run this one again"
    with pytest.raises(LockProviderError, match=first):
        with transaction.atomic(), failing:
            provider.fence(lock)


@committed
@pytest.mark.usefixtures("patient")
def test_endless_conflict_counts_as_held(provider: DatabaseLockProvider) -> None:
    """A conflict that outlasts a few tries counts as a held lock."""
    failing = Failing(conflict(), times=1000)
    with connection.execute_wrapper(failing):
        assert try_from(provider, configure()) is CONTENDED
    assert failing.calls == 6


@committed
def test_long_conflict_is_not_waited_for_again(
    provider: DatabaseLockProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite that was busy for its whole timeout is not asked six times."""
    monkeypatch.setattr(connecting, "BUSY_TIMEOUT_SECONDS", 0)
    failing = Failing(conflict(), times=1000)
    with connection.execute_wrapper(failing):
        assert try_from(provider, configure()) is CONTENDED
    assert failing.calls == (1 if connection.vendor == "sqlite" else 6)


@committed
@pytest.mark.usefixtures("patient")
def test_release_has_more_patience(
    provider: DatabaseLockProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that one busy timeout of SQLite keeps from its release would stay held."""
    monkeypatch.setattr(connecting, "BUSY_TIMEOUT_SECONDS", 0)
    lock = take(configure(), provider)
    failing = Failing(conflict(), times=4)
    with connection.execute_wrapper(Only("UPDATE", failing)):
        assert lock.release()
    assert failing.calls == 5


@pytest.mark.django_db
def test_record_made_meanwhile_is_no_error_however_slow_the_disk_is(
    provider: DatabaseLockProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An INSERT that comes second is tried again, also after a long wait before it."""
    monkeypatch.setattr(connecting, "BUSY_TIMEOUT_SECONDS", 0)
    came_first = Failing(IntegrityError("duplicate key"), times=1)
    with connection.execute_wrapper(Only("INSERT", came_first)):
        assert isinstance(try_from(provider, configure()), Lock)


@pytest.mark.django_db
def test_lock_timeout_counts_as_held(provider: DatabaseLockProvider) -> None:
    """Who waits too long for the row takes the lock for held, at once."""
    error = OperationalError(1205, "lock wait timeout")
    error.__cause__ = Exception()
    error.__cause__.sqlstate = "55P03"  # type: ignore[attr-defined]
    failing = Failing(error, times=1000)
    with connection.execute_wrapper(failing):
        assert try_from(provider, configure()) is CONTENDED
    assert failing.calls == 1


@committed
def test_lost_reply_of_a_take_is_recognised(provider: DatabaseLockProvider) -> None:
    """If the connection breaks after the UPDATE, the lock is ours all the same."""
    before = take(configure(), provider)
    before.release()
    lost = OperationalError("server closed the connection unexpectedly")
    with connection.execute_wrapper(Failing(lost, times=1, after=True)):
        lock = try_from(provider, configure())
    assert isinstance(lock, Lock)
    assert LockRecord.objects.get().locked_by == lock.locked_by
    assert LockRecord.objects.get().fencing_token > before.fencing_token


@committed
def test_lost_reply_of_the_first_take_is_recognised(
    provider: DatabaseLockProvider,
) -> None:
    """If the connection breaks after the INSERT, the new row is ours all the same."""
    lost = OperationalError("server closed the connection unexpectedly")
    with connection.execute_wrapper(Only("INSERT", Failing(lost, times=1, after=True))):
        lock = try_from(provider, configure())
    assert isinstance(lock, Lock)
    assert LockRecord.objects.get().locked_by == lock.locked_by
    assert provider.release(lock)


@committed
def test_lost_reply_of_a_release_is_recognised(provider: DatabaseLockProvider) -> None:
    """If the connection breaks after the release, the lock was still ours."""
    lock = take(configure(), provider)
    lost = OperationalError("server closed the connection unexpectedly")
    with connection.execute_wrapper(Failing(lost, times=1, after=True)):
        assert provider.release(lock)
    assert status_of(provider, "job").state is LockState.FREE


@committed
def test_late_second_try_of_a_release_keeps_nothing(
    provider: DatabaseLockProvider,
) -> None:
    """After a force-release, a release that is sent again does not lock again."""
    keep = timedelta(seconds=30)
    lock = take(configure(lock_at_least_for=keep), provider)
    assert force_release(provider, "job")
    lost = OperationalError("server closed the connection unexpectedly")
    with connection.execute_wrapper(Failing(lost, times=1, after=True)):
        provider.release(lock)
    assert status_of(provider, "job").state is LockState.FREE


@pytest.mark.django_db
def test_table_that_takes_no_row_is_no_skip(provider: DatabaseLockProvider) -> None:
    """An IntegrityError that nobody's row explains is an error, not a lost race."""
    broken = Failing(IntegrityError("null value in column"), times=1000)
    with connection.execute_wrapper(Only("INSERT", broken)):
        with pytest.raises(LockProviderError, match="null value in column"):
            try_from(provider, configure())


@pytest.mark.django_db
def test_record_that_was_pruned_at_once_is_made_again(
    provider: DatabaseLockProvider,
) -> None:
    """Somebody was first, released the lock, and its record was deleted: it is free."""
    came_first = Failing(IntegrityError("duplicate key"), times=1)
    with connection.execute_wrapper(Only("INSERT", came_first)):
        assert isinstance(try_from(provider, configure()), Lock)


@committed
def test_unreachable_store_is_a_clear_error(provider: DatabaseLockProvider) -> None:
    """A store that does not answer means no lock, an error and its cause."""
    down = OperationalError("connection refused")

    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise down

    # One of Django's test cases, run before, may have left a method of the instance.
    vars(connections["default"]).pop("cursor", None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(connections["default"]), "cursor", refuse)
        with pytest.raises(LockProviderError, match="(?s)'job'.*reachable") as caught:
            try_from(provider, configure())
    assert caught.value.__cause__ is down


@sqlite_only  # where others get a connection of their own, without the wrapper
@committed
def test_connection_that_breaks_again_is_an_error(
    provider: DatabaseLockProvider,
) -> None:
    """A statement that lost its connection is sent a second time, and no third."""
    lost = Failing(OperationalError("unable to open database file"), times=1000)
    with connection.execute_wrapper(lost), pytest.raises(LockProviderError):
        try_from(provider, configure())
    assert lost.calls == 2


@servers_only
@committed
def test_killed_connection_does_not_stop_a_job(provider: DatabaseLockProvider) -> None:
    """A connection that died while idle is replaced when a lock is taken."""
    take(configure(), provider).release()
    kill_session(session_number())
    assert isinstance(try_from(provider, configure()), Lock)


@servers_only
@committed
def test_killed_connection_does_not_keep_a_lock(provider: DatabaseLockProvider) -> None:
    """A connection that died in the body is replaced when the lock is released."""
    lock = take(configure(), provider)
    kill_session(session_number())
    assert lock.release()
    assert status_of(provider, "job").state is LockState.FREE


@servers_only
@committed
def test_caller_has_a_sound_connection_afterwards(
    provider: DatabaseLockProvider,
) -> None:
    """The body of a job does not inherit the dead connection."""
    kill_session(session_number())
    take(configure(), provider)
    assert LockRecord.objects.count() == 1
