"""The database of a benchmark: created before it, and deleted after it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import django

NAME = "shedlock_benchmark" + os.environ.get("SHEDLOCK_TEST_SUFFIX", "")
"""Not a test database's name: to those the library keeps no connection."""
PREPARED = {"server_side_binding": True, "prepare_threshold": 2}
"""Django's own options for statements that the server prepares."""


@contextmanager
def database() -> Iterator[None]:
    """Give the body an empty database of the store that the environment names."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
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

    from tests.support.stores import parse_url, start_postgres

    with ExitStack() as stack:
        if not url:
            folder.mkdir()
            server = start_postgres(folder)
            stack.callback(server.stop)
            url = server.get_uri()
            with psycopg.connect(url, autocommit=True) as admin:
                admin.execute("ALTER SYSTEM SET max_connections = 300")
            server.stop()
            server.start()
        settings = {**parse_url(url), "NAME": NAME}
        admin = stack.enter_context(psycopg.connect(url, autocommit=True))
        admin.execute(f"DROP DATABASE IF EXISTS {NAME} WITH (FORCE)")
        admin.execute(f"CREATE DATABASE {NAME}")
        stack.callback(admin.execute, f"DROP DATABASE IF EXISTS {NAME} WITH (FORCE)")
        set_up(settings, redis)
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
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
            "OPTIONS": {"url": redis, "prefix": "shedlock-benchmark:"},
        }
    django_settings.configure(
        INSTALLED_APPS=["django_shedlock"],
        USE_TZ=True,
        DATABASES={
            "default": {**postgresql, "OPTIONS": {}},
            "prepared": {**postgresql, "OPTIONS": PREPARED},
        },
        SHEDLOCK_PROVIDERS=providers,
    )
    django.setup()
