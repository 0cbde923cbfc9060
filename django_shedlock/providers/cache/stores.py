"""The few things that a lock asks of a cache: of any, and of Django's in a table."""

from __future__ import annotations

import base64
import math
import pickle
import secrets
from collections.abc import Iterator
from datetime import timedelta
from functools import cached_property, lru_cache
from typing import Any, Protocol, TypeVar

from django.apps.registry import Apps
from django.core.cache.backends.base import BaseCache
from django.core.cache.backends.db import DatabaseCache
from django.db import Error, IntegrityError, models, router
from django.db.backends.base.base import BaseDatabaseWrapper

from django_shedlock.exceptions import described
from django_shedlock.fields import DatabaseNow, UTCDateTimeField
from django_shedlock.providers.database.connections import Work, run
from django_shedlock.providers.database.errors import (
    NoAnswer,
    is_conflict,
    is_lock_timeout,
    is_missing_table,
)
from django_shedlock.providers.database.statements import (
    Insert,
    Select,
    Update,
    duration,
    text,
)

T = TypeVar("T")

EARLY = 2
"""
Seconds by which a key may end early.

Memcached counts whole ones of a clock that it sets once a second, or later if busy.
"""
MARGIN = 1.0
"""
Seconds for which a key outlives its lease.

Between the question who has the lock and the deletion of its key there is time. It is
harmless while the key is surely ours.
"""
DAY = 24 * 3600
LONGEST_RELATIVE = 28 * DAY
"""Memcached takes what is longer than 30 days for an instant of its own clock."""
LONGEST = 365 * DAY
"""Seconds: what is longer never ends by itself. Memcached's instants end in 2038."""

NOBODY_LISTENS = (ConnectionRefusedError, FileNotFoundError)
"""On a port, and on a Unix socket."""


def timeout_of(seconds: float) -> int | None:
    """Return the timeout with which no cache ends a key before so many seconds."""
    if seconds > LONGEST:
        return None
    # The clocks of two hosts, which then count, differ by less than a day.
    drift = DAY if seconds > LONGEST_RELATIVE else 0
    return math.ceil(seconds) + EARLY + drift


class Store(Protocol):
    """What a lock asks of a cache."""

    margin: float
    """Seconds for which a key has to outlive its lease."""

    def add(self, key: str, value: str, seconds: float) -> bool:
        """Set the value if there is none; return whether there was none."""

    def get(self, key: str) -> Any:
        """Return the value; ``None`` if there is none."""

    def replace(self, key: str, old: str, new: str, seconds: float) -> bool:
        """Exchange the value that was read; return whether the new one is there."""

    def delete(self, key: str, old: str) -> bool:
        """Delete the value that was read; return whether there was one."""

    def answers(self, key: str) -> bool:
        """Return whether the cache keeps what it is told, under a key of no use."""

    def is_contention(self, error: Exception) -> bool:
        """Whether the error only tells that another caller was in the way."""

    def is_uncertain(self, error: Exception) -> bool:
        """Whether the cache may have done nevertheless what failed."""

    def advice(self, error: Exception) -> str:
        """Return what happened, and what to look at."""


def store_of(cache: BaseCache) -> Store:
    """Return what fits this cache."""
    return Table(cache) if isinstance(cache, DatabaseCache) else AnyCache(cache)


class AnyCache:
    """
    A cache by Django's API, of which only ``add`` is one step.

    ``replace`` and ``delete`` can't compare the value: the caller has read it just
    before.
    """

    margin = MARGIN

    def __init__(self, cache: BaseCache):
        self._cache = cache

    def add(self, key: str, value: str, seconds: float) -> bool:
        """See Store.add()."""
        return bool(self._cache.add(key, value, timeout_of(seconds)))

    def get(self, key: str) -> Any:
        """See Store.get()."""
        return self._cache.get(key)

    def replace(self, key: str, old: str, new: str, seconds: float) -> bool:
        """See Store.replace(). What was set is read again: set() tells nothing."""
        self._cache.set(key, new, timeout_of(seconds))
        return bool(self._cache.get(key) == new)

    def delete(self, key: str, old: str) -> bool:
        """See Store.delete()."""
        return bool(self._cache.delete(key))

    def answers(self, key: str) -> bool:
        """See Store.answers()."""
        return self.replace(key, "", secrets.token_hex(8), seconds=EARLY)

    def is_contention(self, error: Exception) -> bool:
        """See Store.is_contention()."""
        return False

    def is_uncertain(self, error: Exception) -> bool:
        """See Store.is_uncertain(). Where nobody listens, nothing was done."""
        return not any(isinstance(cause, NOBODY_LISTENS) for cause in _causes(error))

    def advice(self, error: Exception) -> str:
        """See Store.advice()."""
        told = f"{described(error).rstrip('.')}."
        is_of_client = isinstance(error, ValueError)  # a key, or what is behind it
        return told if is_of_client else f"{told} Is the cache reachable?"


class Table:
    """
    Django's cache in a database table, by statements of our own and its clock.

    Django's ``add`` is not one step: where a key has expired, several callers may get
    it. Its ``get`` deletes what has expired, though another caller may have it by now.
    These statements compare what they change. A deleted key is one that has expired.
    In the caller's transaction they run on a connection of their own.
    """

    margin = 0.0

    def __init__(self, cache: Any):
        self._cache = cache
        self._statements = _statements_of(cache._table)

    @property
    def using(self) -> str:
        """The alias of the database."""
        return router.db_for_write(self._cache.cache_model_class)

    def add(self, key: str, value: str, seconds: float) -> bool:
        """See Store.add()."""
        key = self._cache.make_key(key)
        row = {"key": key, "value": _encoded(value), "lease": _lease(seconds)}

        def work(connection: BaseDatabaseWrapper, is_again: bool) -> bool:
            if self._statements.revive(connection, **row):
                return True
            if self._statements.find(connection, key=key):
                return False
            # If another caller comes first, this is tried again, and finds its row.
            self._statements.insert(connection, **row)
            return True

        return self._run(work)

    def get(self, key: str) -> Any:
        """See Store.get()."""
        key = self._cache.make_key(key)
        rows = self._run(lambda c, _: self._statements.read(c, key=key))
        return _decoded(rows[0][0]) if rows else None

    def replace(self, key: str, old: str, new: str, seconds: float) -> bool:
        """See Store.replace()."""
        key = self._cache.make_key(key)
        row = {"key": key, "old": _encoded(old), "lease": _lease(seconds)}
        change = self._statements.change
        return bool(self._run(lambda c, _: change(c, **row, value=_encoded(new))))

    def delete(self, key: str, old: str) -> bool:
        """See Store.delete()."""
        end, key = self._statements.end, self._cache.make_key(key)
        return bool(self._run(lambda c, _: end(c, key=key, old=_encoded(old))))

    def answers(self, key: str) -> bool:
        """See Store.answers(). A database that fails raises an error."""
        return True

    def is_contention(self, error: Exception) -> bool:
        """See Store.is_contention()."""
        return (
            isinstance(error, Error)
            and not isinstance(error, IntegrityError | NoAnswer)
            and (is_conflict(error) or is_lock_timeout(error))
        )

    def is_uncertain(self, error: Exception) -> bool:
        """See Store.is_uncertain()."""
        return isinstance(error, NoAnswer)

    def advice(self, error: Exception) -> str:
        """See Store.advice()."""
        if is_missing_table(error):
            return (
                f"its table {self._cache._table!r} is missing. Run `manage.py "
                f"createcachetable --database {self.using}`."
            )
        return f"{described(error).rstrip('.')}. Is the database reachable?"

    def _run(self, work: Work[T]) -> T:
        return run(work, self.using)


class _Statements:
    def __init__(self, table: str):
        self._row = _model(table)

    @cached_property
    def revive(self) -> Update:
        return Update(lambda: (self._of_key.exclude(self._live), self._new))

    @cached_property
    def insert(self) -> Insert:
        return Insert(lambda: (self._row, {"cache_key": text("key"), **self._new}))

    @cached_property
    def find(self) -> Select:
        return Select(lambda: self._of_key.values_list("pk"))

    @cached_property
    def read(self) -> Select:
        return Select(lambda: self._of_key.filter(self._live).values_list("value"))

    @cached_property
    def change(self) -> Update:
        return Update(lambda: (self._as_it_was, self._new))

    @cached_property
    def end(self) -> Update:
        return Update(lambda: (self._as_it_was, {"expires": DatabaseNow()}))

    @property
    def _of_key(self) -> models.QuerySet[Any]:
        return self._row._default_manager.filter(cache_key=text("key"))

    @property
    def _as_it_was(self) -> models.QuerySet[Any]:
        return self._of_key.filter(self._live, value=text("old"))

    @property
    def _live(self) -> models.Q:
        return models.Q(expires__gt=DatabaseNow())

    @property
    def _new(self) -> dict[str, Any]:
        return {"value": text("value"), "expires": DatabaseNow() + duration("lease")}


_statements_of = lru_cache(_Statements)


def _model(table: str) -> type[models.Model]:
    # The table is Django's, and no model of the project's.
    meta = {"apps": Apps(), "app_label": "django_shedlock", "db_table": table}
    fields = {
        "cache_key": models.CharField(max_length=255, primary_key=True),
        "value": models.TextField(),
        "expires": UTCDateTimeField(),
    }
    names = {"__module__": __name__, "Meta": type("Meta", (), meta), **fields}
    return type("CacheRow", (models.Model,), names)


def _lease(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def _encoded(value: str) -> str:
    # As DatabaseCache does, so that its get() reads the row.
    return base64.b64encode(pickle.dumps(value, pickle.HIGHEST_PROTOCOL)).decode()


def _decoded(value: str) -> Any:
    return pickle.loads(base64.b64decode(value))  # noqa: S301


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
