"""The database of a benchmark: created before it, and deleted after it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import django

from benchmarks.redis_locks import KEYS

PREFIX = "shedlock_benchmark_"
"""Not a test database's name: to those the library keeps no connection."""
PREPARED = {"server_side_binding": True, "prepare_threshold": 2}
"""Django's own options for statements that the server prepares."""
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(message)s"}},
    "handlers": {
        "file": {
            "class": "logging.FileHandler",
            "filename": os.devnull,
            "formatter": "line",
        }
    },
    "root": {"level": "INFO", "handlers": ["file"]},
}
"""What most projects configure: refusals are logged, and who holds the lock."""


@contextmanager
def database() -> Iterator[None]:
    """Give the body an empty database of the store that the environment names."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    django.setup()
    from django.conf import settings
    from django.test.utils import get_runner, setup_test_environment

    setup_test_environment()
    runner = get_runner(settings)(verbosity=0, interactive=False)
    databases = runner.setup_databases()
    try:
        yield
    finally:
        runner.teardown_databases(databases)


@contextmanager
def postgres(
    url: str | None, folder: Path, redis: str | None = None
) -> Iterator[dict[str, Any]]:
    """
    Give the body an empty PostgreSQL database, and set up Django for it.

    Without a URL, start a new server in the folder. The provider ``redis`` keeps its
    locks on the Redis server of that URL, if there is one.
    """
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    with ExitStack() as stack:
        if not url:
            from tests.support.stores import start_postgres

            folder.mkdir()
            try:
                server = start_postgres(folder)
            except ImportError:
                raise SystemExit("No server to start: give --url.") from None
            stack.callback(server.stop)
            url = server.get_uri()
            with psycopg.connect(url, autocommit=True) as admin:
                admin.execute("ALTER SYSTEM SET max_connections = 300")
            server.stop()
            server.start()
        parts = conninfo_to_dict(url)
        settings = {
            key.upper(): str(parts.get(key) or "")
            for key in ("host", "port", "user", "password")
        }
        # Each run has its own: a second one must not drop what the first one uses.
        name = PREFIX + uuid4().hex
        settings["NAME"] = name
        admin = stack.enter_context(psycopg.connect(url, autocommit=True))
        admin.execute(f'CREATE DATABASE "{name}"')
        stack.callback(admin.execute, f'DROP DATABASE "{name}" WITH (FORCE)')
        set_up(settings, redis)
        from django.core.management import call_command

        call_command("migrate", run_syncdb=True, verbosity=0)
        yield settings


def set_up(settings: dict[str, Any], redis: str | None = None) -> None:
    """Set up Django with one PostgreSQL under two aliases; the second one prepares."""
    from django.conf import settings as django_settings

    postgresql = {**settings, "ENGINE": "django.db.backends.postgresql"}
    backend = "django_shedlock.providers.database.DatabaseLockProvider"
    providers: dict[str, Any] = {
        alias: {"BACKEND": backend, "OPTIONS": {"using": alias}}
        for alias in ("default", "prepared")
    }
    if redis:
        providers["redis"] = {
            "BACKEND": "django_shedlock.providers.redis.RedisLockProvider",
            "OPTIONS": {"url": redis, "prefix": KEYS, "retention": "1h"},
        }
    django_settings.configure(
        INSTALLED_APPS=["django_shedlock", "benchmarks"],
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        USE_TZ=True,
        LOGGING=LOGGING,
        DATABASES={
            "default": {**postgresql, "OPTIONS": {}},
            "prepared": {**postgresql, "OPTIONS": PREPARED},
        },
        SHEDLOCK_PROVIDERS=providers,
    )
    django.setup()


def add_records(prefix: str, count: int, lease: timedelta = timedelta(0)) -> None:
    """
    Add so many records to the tables of this package and of the hand-written locks.

    Their names are the prefix and a number from 1 on, and their leases begin now.
    """
    from django.db import ProgrammingError, connection

    with connection.cursor() as cursor:
        for table in ("shedlock", "hand_written_lock"):
            cursor.execute(
                f"INSERT INTO {table} (name, lock_until, locked_at, locked_by) "  # noqa: S608
                "SELECT %s || number, now() + %s, now(), 'nobody' "
                "FROM generate_series(1, %s) AS number ON CONFLICT DO NOTHING",
                [prefix, lease, count],
            )
            cursor.execute(f"VACUUM ANALYZE {table}")
        with suppress(ProgrammingError):  # only some users may
            # Else the server still writes the new records while the locks are timed.
            cursor.execute("CHECKPOINT")
