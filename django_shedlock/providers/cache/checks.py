"""The system checks of the cache provider."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from django.core.cache import caches
from django.core.cache.backends.base import BaseCache, memcache_key_warnings
from django.core.cache.backends.db import DatabaseCache
from django.core.cache.backends.dummy import DummyCache
from django.core.cache.backends.filebased import FileBasedCache
from django.core.cache.backends.locmem import LocMemCache
from django.core.cache.backends.memcached import BaseMemcachedCache, PyMemcacheCache
from django.core.cache.backends.redis import RedisCache
from django.core.checks import CheckMessage, Error, Warning
from django.db import Error as DatabaseError
from django.db import connections

from django_shedlock.exceptions import described
from django_shedlock.providers.base import Place
from django_shedlock.providers.cache.clients import Clients
from django_shedlock.providers.cache.stores import Table, store_of
from django_shedlock.providers.cache.values import key_of, longest_key

GENEROUS = 10_000
"""So many entries leave room for all locks of a project."""


def check_cache(alias: str, name: str, prefix: Any) -> list[CheckMessage]:
    """Return what keeps the cache from keeping locks, or makes it forget some."""
    if name not in caches.settings:
        return [_unknown(alias, name)]
    try:
        cache = Clients(name).get()
        if isinstance(cache, RedisCache):
            _ = cache._cache  # which imports its client; it opens no connection
    except Exception as error:  # whatever a backend raises
        return [_broken(alias, name, error)]
    where = f"SHEDLOCK_PROVIDERS[{alias!r}] uses the cache {name!r}"
    return [
        *(
            Error(f"{where}, {reason}", hint=hint, id="shedlock.E020")
            for reason, hint in _refusals(cache, prefix)
        ),
        *(
            Warning(f"{where}, {reason}", hint=hint, id="shedlock.W020")
            for reason, hint in _losses(cache)
        ),
        *_check_time_limit(where, cache),
    ]


def place_of(name: str, prefix: Any) -> Place | None:
    """Return where the keys are, as far as ``CACHES`` tells."""
    if name not in caches.settings:
        return None
    entry = {**caches.settings[name], "TIMEOUT": None}
    key = (*(f"{key}={entry[key]!r}" for key in sorted(entry)), repr(prefix))
    return Place(key, f"the cache {name!r}, with the prefix {prefix!r}")


def check_store(
    name: str, clients: Clients, databases: Sequence[str]
) -> list[CheckMessage]:
    """Return a warning if the cache can't be read; ``databases`` may be asked."""
    with suppress(Exception):  # check_cache() tells why it can't be made
        cache = clients.get()
        store = store_of(cache)
        if not isinstance(store, Table):
            return _check_answer(name, cache)
        if store.using in databases:
            return _check_table(name, store, cache)
    return []


def _unknown(alias: str, name: str) -> CheckMessage:
    return Error(
        f"SHEDLOCK_PROVIDERS[{alias!r}] uses the cache {name!r}, which is not in "
        "CACHES.",
        hint=f"CACHES has {', '.join(map(repr, caches.settings))}.",
        id="shedlock.E002",
    )


def _broken(alias: str, name: str, error: Exception) -> CheckMessage:
    return Error(
        f"SHEDLOCK_PROVIDERS[{alias!r}] uses the cache {name!r}, which can't be made: "
        f"{described(error)}",
        hint="Correct CACHES, or install the client that its backend needs.",
        id="shedlock.E002",
    )


def _refusals(cache: BaseCache, prefix: Any) -> Iterator[tuple[str, str]]:
    elsewhere = "Use a cache on Redis or Memcached, or DatabaseLockProvider."
    if isinstance(cache, DummyCache):
        yield "which keeps nothing: every caller would get every lock.", elsewhere
    if isinstance(cache, FileBasedCache):
        yield "whose add() is two steps: two callers may get one lock.", elsewhere
    if _hides_errors(cache):
        yield (
            "which hides errors: a failing server would look like a held lock, and no "
            "job would run.",
            "Keep locks in a cache without ignore_exc or IGNORE_EXCEPTIONS.",
        )
    if isinstance(cache, RedisCache) and len(_servers(cache)) > 1:
        yield (
            "which reads from replicas: they may not know a lock yet, whose release "
            "then does nothing.",
            "Keep locks in a cache whose LOCATION is the primary only.",
        )
    yield from _key_problems(cache, prefix)


def _hides_errors(cache: Any) -> bool:
    # django-redis has an option and a setting for it, pymemcache an option.
    return getattr(cache, "_ignore_exceptions", False) or bool(
        _options(cache).get("ignore_exc")
    )


def _key_problems(cache: BaseCache, prefix: Any) -> Iterator[tuple[str, str]]:
    hint = "Shorten `prefix` or KEY_PREFIX, and use no spaces in them."
    if not isinstance(prefix, str):
        yield f"with a `prefix` that is no text: {prefix!r}.", hint
    else:
        for problem in memcache_key_warnings(cache.make_key(longest_key(prefix))):
            yield f"whose keys can't be used. {problem}.", hint


def _losses(cache: BaseCache) -> Iterator[tuple[str, str]]:
    if isinstance(cache, LocMemCache):
        yield (
            "which is in the memory of one process: each process has locks of its own.",
            "Use it only for tests, or in a project of one process.",
        )
    if isinstance(cache, DatabaseCache) and cache._max_entries < GENEROUS:
        yield (
            f"which deletes entries when it has more than {cache._max_entries}, and "
            "live locks with them.",
            f"Keep locks in a table of their own, or set MAX_ENTRIES to {GENEROUS} or "
            "more. Better use DatabaseLockProvider, which is made for that database.",
        )
    if isinstance(cache, BaseMemcachedCache) and len(_servers(cache)) > 1:
        yield (
            "which has several servers: when one is away, each host may look for its "
            "locks on another one, so that two of them get one lock.",
            "Keep locks in a cache with one server.",
        )


def _check_time_limit(where: str, cache: BaseCache) -> list[CheckMessage]:
    needed = _needed_limits(cache)
    missing = [option for option in needed if _options(cache).get(option) is None]
    if not missing:
        return []
    return [
        Warning(
            f"{where}, whose client waits without a limit: a server that does not "
            "answer would keep jobs from starting, and from ending.",
            hint=f"Set {' and '.join(missing)} in its OPTIONS, for example to 5.",
            id="shedlock.W021",
        )
    ]


def _needed_limits(cache: BaseCache) -> tuple[str, ...]:
    if isinstance(cache, PyMemcacheCache):
        return ("connect_timeout", "timeout")
    if isinstance(cache, RedisCache) and not _redis_has_limits():
        return ("socket_connect_timeout", "socket_timeout")
    return ()


def _redis_has_limits() -> bool:
    import inspect

    from redis.connection import AbstractConnection

    parameters = inspect.signature(AbstractConnection.__init__).parameters
    return parameters["socket_timeout"].default is not None


def _options(cache: Any) -> dict[str, Any]:
    return getattr(cache, "_options", None) or {}


def _servers(cache: Any) -> Sequence[str]:
    servers: Sequence[str] = cache._servers
    return servers


def _check_answer(name: str, cache: BaseCache) -> list[CheckMessage]:
    try:
        cache.get(key_of("probe", "", cache))
    except Exception as error:  # whatever a backend raises
        return [_unreachable(name, error)]
    return []


def _check_table(name: str, store: Table, cache: Any) -> list[CheckMessage]:
    try:
        tables = connections[store.using].introspection.table_names()
    except DatabaseError as error:
        return [_unreachable(name, error)]
    if cache._table in tables:
        return []
    return [
        Warning(
            f"The table {cache._table!r} of the cache {name!r} is missing in database "
            f"{store.using!r}, so no job with a lock will run.",
            hint=f"Run `manage.py createcachetable --database {store.using}`.",
            id="shedlock.W003",
        )
    ]


def _unreachable(name: str, error: Exception) -> CheckMessage:
    return Warning(
        f"The locks in cache {name!r} can't be read: {described(error)}",
        hint="No job with a lock runs while its store is unreachable.",
        id="shedlock.W005",
    )
