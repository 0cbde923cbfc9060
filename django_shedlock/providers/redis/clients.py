"""Clients of redis-py: of one server, of Sentinel's master, and of a cluster."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import unquote, urlsplit
from weakref import WeakKeyDictionary

SENTINEL, CLUSTER = "+sentinel", "+cluster"
PORTS = {SENTINEL: 26379, CLUSTER: 6379}
DEFAULTS = {"host": "localhost", "port": 6379, "db": 0}
"""What a URL may leave out."""
TIMEOUT = 5.0
"""Seconds for which a client waits for a connection, and for an answer."""
EXAMPLES = (
    "Write it as redis://HOST:6379/0, unix:///PATH, "
    "redis+sentinel://HOST:26379,HOST/SERVICE/0 or redis+cluster://HOST:6379,HOST"
)


@dataclass(frozen=True)
class Address:
    """The servers of a URL with more than one, and how to log in to them."""

    kind: str
    hosts: list[tuple[str, int]]
    path: list[str]
    login: dict[str, Any]

    @classmethod
    def parse(cls, url: str) -> Address:
        """Return the address; ``ValueError`` if the URL is none."""
        parts = urlsplit(url)
        scheme, _, kind = parts.scheme.partition("+")
        user, _, places = parts.netloc.rpartition("@")
        hosts = [_host(place, PORTS[f"+{kind}"]) for place in places.split(",")]
        path = [unquote(part) for part in parts.path.split("/") if part]
        name, _, password = user.partition(":")
        login = {"username": unquote(name), "password": unquote(password)}
        known: dict[str, Any] = {key: value for key, value in login.items() if value}
        if scheme == "rediss":
            known["ssl"] = True
        if f"+{kind}" == SENTINEL and not path:
            raise ValueError(f"url names no service after {places!r}. {EXAMPLES}")
        return cls(f"+{kind}", hosts, path, known)


def _host(place: str, port: int) -> tuple[str, int]:
    parts = urlsplit(f"//{place}")
    if not parts.hostname:
        raise ValueError(f"{place!r} is no host. {EXAMPLES}")
    return parts.hostname, parts.port or port


class Clients:
    """
    The clients of one provider: one for all threads, and one for each event loop.

    Nothing is connected before it is needed. A forked child connects anew.
    """

    def __init__(self, url: str, options: dict[str, Any]):
        self.url = url
        self._options = {
            "socket_timeout": TIMEOUT,
            "socket_connect_timeout": TIMEOUT,
            **options,
        }
        self._making = threading.Lock()
        self._of_loops: WeakKeyDictionary[Any, tuple[Any, Any]] = WeakKeyDictionary()

    def check(self) -> None:
        """Raise an error, such as ``ValueError``, if there can't be a client."""
        pool = getattr(self.client, "connection_pool", None)
        if pool is not None:  # a cluster's client has connected already
            pool.make_connection()

    def address(self) -> tuple[str, ...]:
        """
        Return where the keys are, without a password.

        Raises what check() does. A cluster is not asked.
        """
        if urlsplit(self.url).scheme.endswith((SENTINEL, CLUSTER)):
            address = Address.parse(self.url)
            hosts = (f"{host}:{port}" for host, port in sorted(address.hosts))
            return (address.kind, *hosts, *address.path)
        options = {**DEFAULTS, **self.client.connection_pool.connection_kwargs}
        server = (options["host"], options["port"])
        place = (options["path"],) if "path" in options else server
        return tuple(map(str, (*place, options["db"])))

    @property
    def is_cluster(self) -> bool:
        """Whether several servers share the keys."""
        return urlsplit(self.url).scheme.endswith(CLUSTER)

    @cached_property
    def client(self) -> Any:
        """The client of all threads."""
        import redis
        from redis import cluster, sentinel

        with self._making:
            return self._make(redis.Redis, sentinel.Sentinel, cluster, is_async=False)

    async def of_loop(self) -> Any:
        """Return the client of this event loop, which closes it at its end."""
        loop = asyncio.get_running_loop()
        if loop not in self._of_loops:
            from redis import asyncio as aio

            client = self._make(aio.Redis, aio.Sentinel, aio.cluster, is_async=True)
            living = _living(client)
            await anext(living)
            self._of_loops[loop] = client, living
        return self._of_loops[loop][0]

    def _make(self, single: Any, sentinel: Any, cluster: Any, *, is_async: bool) -> Any:
        scheme = urlsplit(self.url).scheme
        # Our scripts recognise a request that is sent again.
        options = {"retry": _retry(is_async=is_async), **self._options}
        if not scheme.endswith((SENTINEL, CLUSTER)):
            return single.from_url(self.url, **options)
        address = Address.parse(self.url)
        options = {**options, **address.login}
        if address.kind == CLUSTER:
            nodes = [cluster.ClusterNode(*host) for host in address.hosts]
            return cluster.RedisCluster(startup_nodes=nodes, **options)
        service, *database = address.path
        of_sentinel = {k: v for k, v in self._options.items() if k.startswith("socket")}
        watched = sentinel(address.hosts, sentinel_kwargs=of_sentinel, **options)
        return watched.master_for(service, db=int(database[0]) if database else 0)


def _retry(*, is_async: bool) -> Any:
    from redis.backoff import NoBackoff

    if is_async:
        from redis.asyncio.retry import Retry as AsyncRetry

        return AsyncRetry(NoBackoff(), 1)
    from redis.retry import Retry

    return Retry(NoBackoff(), 1)


async def _living(client: Any) -> AsyncGenerator[Any, None]:
    # An event loop that ends closes the generators that began in it, and so this.
    try:
        yield client
    finally:
        await client.aclose()
        pool = getattr(client, "connection_pool", None)
        for each in getattr(getattr(pool, "sentinel_manager", None), "sentinels", ()):
            await each.aclose()
