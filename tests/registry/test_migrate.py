"""Commands that migrate, under a lock of the database itself."""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from django.core import management
from django.core.management import CommandError, call_command
from django.core.management.commands import migrate
from django.db import OperationalError, connections
from django.test import override_settings

from django_shedlock import InvalidLockConfiguration, scheduler_lock
from django_shedlock.checks import check_jobs
from django_shedlock.locks.inherited import inherited_identities
from django_shedlock.models import LockRecord
from django_shedlock.registry import migrate as migrating
from django_shedlock.registry.jobs import registered_jobs
from django_shedlock.registry.migrate import MigrateLock
from django_shedlock.sql.session_locks import SessionLock, session_lock
from tests.support.jobs import only_jobs_of
from tests.support.waiting import STARTUP_PATIENCE, wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("outside_tests", "own_commands"),
]

MIGRATE_MORE = """
from django.core.management.commands import migrate

class Command(migrate.Command):
    requires_system_checks = []

    def handle(self, *args, **options):
        self.stdout.write("migrates more")
"""
MIGRATE_SCHEMAS = """
from django.core.management.base import BaseCommand

class Command(BaseCommand):
    requires_system_checks = []

    def add_arguments(self, parser):
        parser.add_argument("--database", default="default")
        parser.add_argument("--plan", action="store_true")
        parser.add_argument("--list", action="store_true")
        parser.add_argument("--dry-run", action="store_true")

    def handle(self, *args, **options):
        self.stdout.write("migrates schemas")
"""
EXECUTE_SCHEMAS = """
from django.core.management.base import BaseCommand

class Command(BaseCommand):
    requires_system_checks = []

    def execute(self, *args, **options):
        print("executes")
"""


@pytest.fixture
def own_commands(tmp_path: Path) -> Iterator[None]:
    """Let an app have commands that migrate."""
    folder = tmp_path / "migrating" / "management" / "commands"
    folder.mkdir(parents=True)
    (tmp_path / "migrating" / "__init__.py").touch()
    (folder / "migrate_more.py").write_text(MIGRATE_MORE)
    (folder / "migrate_schemas.py").write_text(MIGRATE_SCHEMAS)
    (folder / "execute_schemas.py").write_text(EXECUTE_SCHEMAS)
    importlib.invalidate_caches()
    sys.path.insert(0, str(tmp_path))
    apps = ["django_shedlock", "migrating"]
    with only_jobs_of(), override_settings(INSTALLED_APPS=apps):
        management.get_commands.cache_clear()
        yield
    sys.path.remove(str(tmp_path))
    management.get_commands.cache_clear()
    for name in [name for name in sys.modules if name.startswith("migrating")]:
        del sys.modules[name]


PATIENT_WAIT = timedelta(seconds=STARTUP_PATIENCE)
"""A server may still hold the lock of a connection that an earlier test has closed."""


def lock_of_migrate(using: str = "default") -> SessionLock:
    """Return the lock on a connection of its own, as another process has it."""
    lock = session_lock(using, f"migrate:{using}")
    assert lock is not None
    return lock


@contextmanager
def another_migrates(using: str = "default") -> Iterator[None]:
    """Hold the lock as another process does."""
    lock = lock_of_migrate(using)
    try:
        wait_for(lock.try_acquire, STARTUP_PATIENCE)
        yield
    finally:
        lock.close()


def locked(**commands: dict[str, Any]) -> Any:
    return override_settings(SHEDLOCK_COMMANDS=commands)


@pytest.mark.servers_only
@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("migrate", {}),
        ("migrate_more", {}),
        ("migrate_schemas", {"migrates": True}),
        ("execute_schemas", {"migrates": True}),
    ],
)
def test_command_that_migrates_is_locked(command: str, options: Any) -> None:
    """Django's ``migrate``, its subclasses and commands that migrate are locked."""
    with locked(**{command: {**options, "wait": 0}}), another_migrates():
        with pytest.raises(CommandError, match="so this process did nothing") as error:
            call_command(command)
    assert error.value.returncode == 75
    assert f"The lock of {command!r} on database 'default' was held" in str(error.value)


@pytest.mark.servers_only
def test_each_database_has_a_lock_of_its_own() -> None:
    """A migration of one does not wait for that of another."""
    with locked(migrate_schemas={"migrates": True, "wait": 0}), another_migrates():
        call_command("migrate_schemas", database="other")
        with pytest.raises(CommandError):
            call_command("migrate_schemas", database="default")


@pytest.mark.servers_only
def test_holders_are_those_of_this_database() -> None:
    """The server answers for all its databases, which have locks of the same name."""
    elsewhere = session_lock("other", "migrate:default")
    assert elsewhere is not None
    with another_migrates():
        assert elsewhere.holders() == set()
    elsewhere.close()


@pytest.mark.servers_only
@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ({}, ["--plan"]),
        ({"unless": ["list"]}, ["--list"]),
    ],
)
def test_call_that_only_looks_has_no_lock(options: Any, arguments: Any) -> None:
    """``unless`` names its options in place of those of Django's command."""
    options = {**options, "migrates": True, "wait": 0}
    with locked(migrate_schemas=options), another_migrates():
        call_command("migrate_schemas", *arguments)


@pytest.mark.servers_only
def test_unless_replaces_the_default() -> None:
    """The options of Django's command no longer count."""
    options = {"migrates": True, "wait": 0, "unless": ["list"]}
    with locked(migrate_schemas=options), another_migrates():
        with pytest.raises(CommandError, match="did nothing"):
            call_command("migrate_schemas", "--plan")


@pytest.mark.servers_only
def test_look_of_djangos_migrate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--plan`` and ``--check`` answer while another process migrates."""
    monkeypatch.setattr(migrate.MigrationExecutor, "migration_plan", one_is_missing)
    with locked(migrate={"wait": 0}), another_migrates():
        call_command("migrate", "--plan")
        with pytest.raises(SystemExit):
            call_command("migrate", "--check")
    assert "django_shedlock.0001_initial" in capsys.readouterr().out


def one_is_missing(executor: Any, *args: Any, **options: Any) -> list[Any]:
    return [(executor.loader.get_migration("django_shedlock", "0001_initial"), False)]


@pytest.mark.servers_only
def test_disabled_locks() -> None:
    """``SHEDLOCK_ENABLED = False`` also counts for this lock."""
    with locked(migrate_more={"wait": 0}), another_migrates():
        with override_settings(SHEDLOCK_ENABLED=False):
            call_command("migrate_more")


@pytest.mark.servers_only
def test_database_of_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the run of tests that made it migrates it, so it has no lock."""
    monkeypatch.setattr(migrating, "are_databases_temporary", lambda: True)
    with locked(migrate_more={"wait": 0}), another_migrates():
        call_command("migrate_more")


def test_it_is_no_job_and_has_no_record(capsys: pytest.CaptureFixture[str]) -> None:
    """A command that migrates is no job, and its lock has no record."""
    with locked(migrate_more={}):
        assert check_jobs() == []
        call_command("migrate_more")
        assert "migrates more" in capsys.readouterr().out
    with locked(execute_schemas={"migrates": True}):
        call_command("execute_schemas")
        assert "executes" in capsys.readouterr().out
        assert not [job for job in registered_jobs if "migrating" in job.path]
    assert not LockRecord.objects.exists()


def test_w011_option_without_effect() -> None:
    """W011 names the options that such a lock can't have."""
    options = {"keep_alive": True, "lock_at_most_for": "1m", "wait": "5m"}
    with locked(migrate=options):
        [message] = check_jobs()
    assert message.id == "shedlock.W011"
    assert message.msg.startswith(
        "SHEDLOCK_COMMANDS['migrate']: 'keep_alive', 'lock_at_most_for' has no effect"
    )
    assert message.hint == "Remove it. Only wait, unless, migrates apply."
    with locked(migrate={"wiat": "5m"}):
        [message] = check_jobs()
        call_command("migrate", "--plan")  # a deploy is not stopped for it
    assert message.id == "shedlock.W011"
    assert "Did you mean wait?" in str(message.hint)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"wait": -1}, r"wait \(-1\) must not be negative"),
        ({"wait": "soon"}, "wait: 'soon' is not a duration"),
        ({"unless": "plan"}, r"unless \('plan'\) must be a list"),
        ({"unless": ["--plan"]}, r"unless \(\['--plan'\]\) must be a list"),
        ({"migrates": "yes"}, r"migrates \('yes'\) must be True or False"),
    ],
)
def test_e009_wrong_option(options: Any, text: str) -> None:
    """E009 reports it, and the command does not run without its lock."""
    with locked(migrate_schemas={"migrates": True, **options}):
        [message] = check_jobs()
        with pytest.raises(InvalidLockConfiguration, match=text):
            call_command("migrate_schemas")
    assert message.id == "shedlock.E009"


def test_decorator_of_a_command_that_migrates() -> None:
    """The table of locks may not be there yet, so the setting is the only way."""
    with pytest.raises(InvalidLockConfiguration, match="entry in SHEDLOCK_COMMANDS"):

        @scheduler_lock("migrate more")
        class Command(migrate.Command):
            pass


@pytest.mark.sqlite_only
def test_sqlite_has_no_such_lock(caplog: pytest.LogCaptureFixture) -> None:
    """A warning says so, once."""
    migrating._warn_of_no_lock.cache_clear()
    with locked(migrate_more={}):
        call_command("migrate_more")
        call_command("migrate_more")
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert "'migrate_more' on database 'default' runs without a lock" in caplog.text


@pytest.mark.postgres_only
def test_timeouts_and_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """No timeout ends its idle transaction, which keeps no old snapshot."""
    given = "-c idle_in_transaction_session_timeout=60s"
    given += " -c default_transaction_isolation=serializable"
    options = connections["default"].settings_dict["OPTIONS"]
    monkeypatch.setitem(options, "options", given)
    lock = lock_of_migrate()
    try:
        assert lock.try_acquire()
        with lock.connection.cursor() as cursor:
            cursor.execute("SHOW idle_in_transaction_session_timeout")
            assert cursor.fetchone() == ("0",)
            cursor.execute("SHOW transaction_isolation")
            assert cursor.fetchone() == ("read committed",)
        assert lock.holders() == {lock.number}
        with connections["default"].cursor() as cursor:
            query = "SELECT backend_xmin, state FROM pg_stat_activity WHERE pid = %s"
            cursor.execute(query, [lock.number])
            assert cursor.fetchone() == (None, "idle in transaction")
            # This waits for transactions that may see the table as it was.
            cursor.execute("SET statement_timeout = '20s'")
            cursor.execute("CREATE INDEX CONCURRENTLY waits ON shedlock (released_at)")
            cursor.execute("DROP INDEX waits")
            cursor.execute("RESET statement_timeout")
    finally:
        lock.close()


@pytest.mark.servers_only
def test_connection_is_kept_awake(monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement every few seconds keeps proxies from ending it."""
    monkeypatch.setattr(MigrateLock, "look_interval_seconds", 0.01)
    looks = []
    loss = MigrateLock._loss

    def count(lock: MigrateLock) -> str | None:
        looks.append(loss(lock))
        return looks[-1]

    monkeypatch.setattr(MigrateLock, "_loss", count)
    lock = lock_of_migrate()
    command = migrate.Command()
    with MigrateLock(command, "migrate", lock).held(PATIENT_WAIT):
        wait_for(lambda: len(looks) > 3)
    assert set(looks) == {None}


@pytest.mark.servers_only
def test_lock_that_the_database_has_released(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A proxy may put another connection in the place of the one with the lock."""
    monkeypatch.setattr(MigrateLock, "look_interval_seconds", 0.01)
    lock = lock_of_migrate()
    holding = MigrateLock(migrate.Command(), "migrate", lock)
    with holding.held(PATIENT_WAIT):
        with holding._mutex, lock.connection.cursor() as cursor:
            if connections["default"].vendor == "mysql":
                cursor.execute("DO RELEASE_ALL_LOCKS()")
            else:
                lock.connection.rollback()
        wait_for(lambda: "It is held again" in caplog.text)
        assert lock.holders() == {lock.number}
        assert lock.identity in inherited_identities()
        assert lock.is_held_by(lock.identity)
    assert inherited_identities() == []
    assert "was lost: the database has released it." in caplog.text


@pytest.mark.servers_only
def test_look_that_hangs_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that hangs past the end acquires nothing, and releases what it has."""
    hangs, goes_on = Event(), Event()

    def hang(lock: MigrateLock) -> str:
        hangs.set()
        wait_for(goes_on.is_set)
        return "the connection has ended"

    monkeypatch.setattr(MigrateLock, "look_interval_seconds", 0.01)
    monkeypatch.setattr(MigrateLock, "end_timeout_seconds", 0.01)
    monkeypatch.setattr(MigrateLock, "_loss", hang)
    lock = lock_of_migrate()
    holding = MigrateLock(migrate.Command(), "migrate", lock)
    with holding.held(PATIENT_WAIT):
        wait_for(hangs.is_set)
    assert inherited_identities() == []
    goes_on.set()
    with holding._mutex:  # the look has ended
        with another_migrates():
            pass


@pytest.mark.servers_only
def test_connection_that_is_acquired_again_during_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end may come while the look has begun to acquire the lock again."""
    acquires, goes_on = Event(), Event()
    acquire = MigrateLock._is_acquired_again

    def acquire_late(lock: MigrateLock) -> bool:
        acquires.set()
        wait_for(goes_on.is_set)
        return acquire(lock)

    monkeypatch.setattr(MigrateLock, "look_interval_seconds", 0.01)
    monkeypatch.setattr(MigrateLock, "end_timeout_seconds", 0.01)
    monkeypatch.setattr(MigrateLock, "_loss", lambda lock: "it was lost")
    monkeypatch.setattr(MigrateLock, "_is_acquired_again", acquire_late)
    lock = lock_of_migrate()
    holding = MigrateLock(migrate.Command(), "migrate", lock)
    with holding.held(PATIENT_WAIT):
        wait_for(acquires.is_set)
    goes_on.set()
    with holding._mutex:
        with another_migrates():
            pass


@pytest.mark.servers_only
def test_database_that_cannot_be_asked_for_the_holder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error and its status are the same without the holder."""

    def fail(lock: SessionLock, name: str) -> set[int]:
        raise OperationalError("the connection has ended")

    lock = lock_of_migrate()
    monkeypatch.setattr(type(lock), "_holders_of", fail)
    with another_migrates():
        with pytest.raises(CommandError, match="it can't be asked now") as error:
            with MigrateLock(migrate.Command(), "migrate", lock).held(timedelta(0)):
                pass
    assert error.value.returncode == 75


@pytest.mark.servers_only
def test_session_of_a_caller_is_kept() -> None:
    """
    A wait for a migration keeps the caller's database session.

    The session may hold a lock of the caller's own.
    """

    def session() -> object:
        query = "SELECT CONNECTION_ID()"
        if connections["default"].vendor == "postgresql":
            query = "SELECT pg_backend_pid()"
        with connections["default"].cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchone()

    before = session()
    with locked(migrate_more={"wait": "1ms"}), another_migrates():
        with pytest.raises(CommandError, match="was held for 1ms"):
            call_command("migrate_more")
    assert session() == before


@pytest.mark.servers_only
def test_several_databases() -> None:
    """A command that migrates several needs the lock of each."""
    options: dict[str, Any] = {"migrates": True, "wait": 0}
    with locked(migrate_schemas=options):
        with another_migrates("other"):
            call_command("migrate_schemas", database=["default"])
            with pytest.raises(CommandError, match="on database 'other' was held"):
                call_command("migrate_schemas", database=["other", "default"])
            with pytest.raises(CommandError, match="on database 'other' was held"):
                call_command("migrate_schemas", database=[["default"], {"other"}])
        call_command("migrate_schemas", database=["other", "default"])
        call_command("migrate_schemas", database=["unknown", 7])
        with another_migrates(), pytest.raises(CommandError):
            call_command("migrate_schemas", database=["unknown", 7])


@pytest.mark.servers_only
@pytest.mark.parametrize("unless", [{}, {"unless": None}])
def test_looks_by_default(unless: dict[str, None]) -> None:
    """A command that migrates needs no lock for ``--plan`` or ``--dry-run``."""
    options: dict[str, Any] = {"migrates": True, "wait": 0, **unless}
    with locked(migrate_schemas=options), another_migrates():
        call_command("migrate_schemas", "--plan")
        call_command("migrate_schemas", "--dry-run")
        with pytest.raises(CommandError):
            call_command("migrate_schemas", "--list")


def test_w022_option_that_migrate_lacks() -> None:
    """The option of ``--check`` has another name."""
    with locked(migrate={"unless": ["plan", "check"]}):
        [message] = check_jobs()
    assert message.id == "shedlock.W022"
    assert message.msg == (
        "SHEDLOCK_COMMANDS['migrate']: unless=['plan', 'check']: 'check' is no option "
        "of the command."
    )
    assert "Did you mean 'check_unapplied'?" in str(message.hint)


@pytest.mark.mariadb_only
def test_database_whose_name_stands_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two databases of one server have two locks, wherever their names stand."""
    settings = connections["default"].settings_dict
    names = [settings["NAME"], "information_schema"]
    monkeypatch.setitem(settings, "NAME", "")
    locks = []
    for name in names:
        file = tmp_path / name
        file.write_text(f"[client]\ndatabase = {name}\n")
        options = {**settings["OPTIONS"], "read_default_file": str(file)}
        monkeypatch.setitem(settings, "OPTIONS", options)
        lock = lock_of_migrate()
        locks.append(lock)
    try:
        assert all(lock.try_acquire() for lock in locks)
        assert locks[0].holders() == {locks[0].number}
    finally:
        for lock in locks:
            lock.close()


@pytest.mark.servers_only
@pytest.mark.parametrize("command", ["migrate_schemas", "execute_schemas"])
def test_who_waits_says_so_on_the_callers_stream(command: str) -> None:
    """A command that waits says so on the stream that the caller gave."""
    stream = io.StringIO()
    with locked(**{command: {"migrates": True, "wait": "1ms"}}), another_migrates():
        with pytest.raises(CommandError):
            call_command(command, stderr=stream)
    assert "is held: this process waits, for up to 1ms." in stream.getvalue()
