"""The database of a benchmark: made before it, and deleted after it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import django


@contextmanager
def database() -> Iterator[None]:
    """Let the body have an empty database of the store that the environment names."""
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
