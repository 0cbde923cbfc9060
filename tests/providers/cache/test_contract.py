"""Each kind of cache keeps locks as every provider does, as far as a cache can."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import caches
from django.db import connection

from django_shedlock.fields import DatabaseNow
from django_shedlock.locks.lock import Lock
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.cache.stores import _statements_of
from django_shedlock.providers.cache.values import key_of
from django_shedlock.test import LockProviderContract
from django_shedlock.test.contract.harness import Options
from tests.providers.cache.conftest import TABLE
from tests.support.cached_locks import WithCaches, end_lease
from tests.support.servers import use


class CacheContract(LockProviderContract):
    """The contract, with a cache ``default``, and one ``away`` where nobody listens."""

    backend = WithCaches

    @pytest.fixture
    def options(self, project: Any) -> Options:
        return {"caches": project}

    @pytest.fixture
    def unreachable_options(self, project: Any) -> Options:
        return {"caches": project, "cache": "away"}

    def end_lease(self, provider: LockProvider, lock: Lock) -> None:
        end_lease(lock)


class TestMemcached(CacheContract):
    """By Django's backend for pymemcache."""

    @pytest.fixture
    def project(self, remote: Any) -> Any:
        return remote


class TestRedisCache(CacheContract):
    """By Django's backend for Redis."""

    @pytest.fixture
    def project(self, redis: Any) -> Any:
        return redis


@pytest.mark.django_db(transaction=True)
class TestDatabaseCache(CacheContract):
    """In a table of the database under test."""

    @pytest.fixture
    def project(self, table: Any) -> Any:
        return table

    @pytest.fixture
    def unreachable_options(self, project: Any) -> Iterator[Options]:
        here = connection.settings_dict.copy()
        use({"NAME": "/nowhere/else", "HOST": "127.0.0.1", "PORT": "1"})
        yield {"caches": project}
        use(here)

    def end_lease(self, provider: LockProvider, lock: Lock) -> None:
        """Leave an expired row, for which Django's own cache has several winners."""
        rows = _statements_of(TABLE)._row._default_manager
        cache = caches["default"]
        key = cache.make_key(key_of(lock.name, "shedlock:", cache))
        an_hour_ago = DatabaseNow() - timedelta(hours=1)
        assert rows.filter(pk=key).update(expires=an_hour_ago)


class LocalWithCaches(WithCaches):
    """In the memory of one process."""

    is_shared = False


class TestLocMemCache(CacheContract):
    """Without other processes, which have locks of their own."""

    backend = LocalWithCaches

    @pytest.fixture
    def project(self, local: Any) -> Any:
        return local
