"""Which table and which database a lock is in, and who is never asked for that."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import CheckMessage
from django.core.management import call_command
from django.db import connection, connections, transaction

from django_shedlock import hold
from django_shedlock.checks import check_stores
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockHolder
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider
from django_shedlock.providers.database import DatabaseLockProvider, checks
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.testing.contract.harness import force_extend
from tests.support.locks import MINUTE, configure, take, try_from

BOTH = ["default", "other"]
SCRIPT = """
import django; django.setup()
from django.db import connection
from django_shedlock import execute
from django_shedlock.providers import get_provider
assert execute(lambda: [s.name for s in get_provider().statuses()], "job").value
tables = connection.introspection.table_names()
print("locks of ours" in tables, "shedlock" in tables, "shedlock_run" in tables)
"""


class NobodyAsksThis:
    """A router that fails for whoever asks where to read or write."""

    def db_for_read(self, model: Any, **hints: Any) -> str:
        raise AssertionError(f"asked where to read {model}")

    def db_for_write(self, model: Any, **hints: Any) -> str:
        raise AssertionError(f"asked where to write {model}")


@pytest.mark.django_db(transaction=True, databases=BOTH)
def test_routers_are_not_asked(settings: Any) -> None:
    """A lock never goes to a replica, whatever a router says of its model."""
    settings.DATABASE_ROUTERS = [NobodyAsksThis()]
    provider = DatabaseLockProvider("default", using="other")
    for _ in range(2):
        lock = take(configure(), provider)
        try_from(provider, configure())
        assert provider.extend(lock, MINUTE)
        assert lock.fencing_token
        assert [status.name for status in provider.statuses()] == ["job"]
        assert force_extend(provider, "job", MINUTE)
        assert provider.release(lock)


def test_provider_says_where_its_records_are() -> None:
    """Only the database provider has records that are rows of the table."""
    provider = DatabaseLockProvider("second", using="other")
    assert provider.record_database == "other"
    assert MemoryLockProvider("memory").record_database is None


@pytest.mark.django_db(transaction=True, databases=BOTH)
def test_provider_for_each_call(settings: Any) -> None:
    """One name in the databases of two tenants is two locks."""
    backend = "django_shedlock.providers.database.DatabaseLockProvider"
    settings.SHEDLOCK_PROVIDERS = {
        alias: {"BACKEND": backend, "OPTIONS": {"using": alias}} for alias in BOTH
    }
    with hold("job", provider="default"):
        with hold("job", provider="other") as lock:
            assert lock.provider.alias == "other"
            [status] = lock.provider.statuses()
            assert status.locked_by == lock.locked_by
        assert isinstance(try_from(get_provider("default"), configure()), LockHolder)
        assert isinstance(try_from(get_provider("other"), configure()), Lock)


def start(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        env={
            "SHEDLOCK_TEST_TABLE": "locks of ours",
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.support.lean_settings",
            "SHEDLOCK_TEST_STORE": "sqlite",
            "SHEDLOCK_TEST_SQLITE_FOLDER": str(folder),
        },
        capture_output=True,
        text=True,
        check=False,
    )


def run(folder: Path, *arguments: str) -> str:
    done = start(folder, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.sqlite_only
def test_other_table(tmp_path: Path) -> None:
    """The migration makes it, no further one is needed, and locks are in it."""
    run(tmp_path, "-m", "django", "migrate", "--verbosity=0")
    run(tmp_path, "-m", "django", "makemigrations", "--check")
    assert run(tmp_path, "-c", SCRIPT).split() == ["True", "False", "True"]


@pytest.mark.servers_only
@pytest.mark.django_db(transaction=True, databases=BOTH)
def test_wrapper_of_the_project_does_not_see_another_alias(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An alias of its own keeps locks from what a project wraps its connection in."""

    def refuse(execute: Any, sql: str, *arguments: Any) -> Any:
        raise AssertionError(f"the wrapper saw {sql}")

    name = connection.settings_dict["NAME"]
    connections["other"].close()
    monkeypatch.setitem(connections["other"].settings_dict, "NAME", name)
    backend = "django_shedlock.providers.database.DatabaseLockProvider"
    entry = {"BACKEND": backend, "OPTIONS": {"using": "other"}}
    settings.SHEDLOCK_PROVIDERS = {"default": entry}
    with connection.execute_wrapper(refuse), hold("nightly") as lock:
        lock.extend(MINUTE)
    with transaction.atomic(), hold("in a transaction"):
        pass
    connections["other"].close()
    # The same table, so the admin and the history have all of it.
    assert LockRecord.objects.filter(outcome="succeeded").count() == 2
    assert LockRun.objects.filter(name="nightly").exists()


@pytest.mark.sqlite_only
@pytest.mark.parametrize("table", ["my_schema.shedlock", ""])
def test_table_that_is_no_name_is_never_made(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process with such a setting does not even start, with or without checks."""
    monkeypatch.setenv("SHEDLOCK_TEST_TABLE", table)
    done = start(tmp_path, "-m", "django", "migrate", "--skip-checks")
    assert done.returncode != 0
    assert f"SHEDLOCK_TABLE = {table!r}: it must be the name of a table" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.postgres_only
@pytest.mark.django_db(transaction=True, databases=BOTH)
def test_table_in_a_schema(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An alias with a search_path keeps it there, also for private connections."""
    locks = connections["other"]
    with locks.cursor() as cursor:
        cursor.execute("CREATE SCHEMA my_schema")
    locks.close()
    options = {"options": "-c search_path=my_schema"}
    try:
        with monkeypatch.context() as elsewhere:
            elsewhere.setitem(locks.settings_dict, "OPTIONS", options)
            call_command("migrate", "django_shedlock", database="other", verbosity=0)
            provider = DatabaseLockProvider("default", using="other")
            assert checks.check_database("other") == []
            with transaction.atomic(using="other"):
                take(configure(), provider)
            locks.close()
        with locks.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM my_schema.shedlock")
            assert cursor.fetchone() == (1,)
            cursor.execute("SELECT count(*) FROM public.shedlock")
            assert cursor.fetchone() == (0,)
    finally:
        locks.close()
        with locks.cursor() as cursor:
            cursor.execute("DROP SCHEMA my_schema CASCADE")


@pytest.fixture
def warned() -> Callable[[], list[CheckMessage]]:
    def check() -> list[CheckMessage]:
        messages = check_stores(databases=["default"])
        return [message for message in messages if message.id == "shedlock.W017"]

    return check


@pytest.mark.postgres_only
@pytest.mark.django_db(transaction=True)
def test_w017_read_only_database(warned: Callable[[], list[CheckMessage]]) -> None:
    """W017 tells of a replica, on which nothing can be written."""
    assert warned() == []
    database = f'ALTER DATABASE "{connection.settings_dict["NAME"]}"'
    with connection.cursor() as cursor:
        # For the sessions that begin from now on.
        cursor.execute(f"{database} SET default_transaction_read_only = on")
        try:
            [message] = warned()
        finally:
            cursor.execute(f"{database} RESET default_transaction_read_only")
    assert "'default' is read-only" in message.msg


@pytest.mark.django_db
def test_w017_replica_of_mysql(
    warned: Callable[[], list[CheckMessage]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There it is a variable of the server; other stores are not asked."""
    assert warned() == []
    monkeypatch.setitem(checks.IS_READ_ONLY_QUERIES, connection.vendor, "SELECT 1")
    [message] = warned()
    assert message.hint == "Let the provider's `using` name the primary."
