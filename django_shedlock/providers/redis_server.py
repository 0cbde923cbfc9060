"""How a Redis is reached: one server, Sentinel's master, or a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any
from urllib.parse import unquote, urlsplit
from weakref import WeakKeyDictionary

from django_shedlock.providers.redis_records import Script
from django_shedlock.providers.servers import Clients

SENTINEL, CLUSTER = "sentinel", "cluster"
PORTS = {SENTINEL: 26379, CLUSTER: 6379}
DEFAULTS = {"host": "localhost", "port": 6379, "db": 0}
"""What a URL may leave out."""
TIMEOUT = 5.0
"""Seconds for which a client waits for a connection, and for an answer."""
UNKNOWN_SCRIPT = "NoScriptError"
"""redis-py's error if the server has not seen the script since it began."""
EXAMPLES = (
    "Write it as redis://HOST:6379/0, unix:///PATH, "
    "redis+sentinel://HOST:26379,HOST/SERVICE/0 or redis+cluster://HOST:6379,HOST"
)


class Address:
    """
    The servers of a URL: one, Sentinel's master, or a cluster.

    ``ValueError`` if the URL names none. ``kind`` is empty for one server, which
    redis-py finds by itself. ``options`` are those of redis-py.
    """

    def __init__(self, url: str, options: dict[str, Any]):
        limits = {"socket_timeout": TIMEOUT, "socket_connect_timeout": TIMEOUT}
        self.url, self.options = url, {**limits, **options}
        parts = urlsplit(url)
        scheme, _, self.kind = parts.scheme.partition("+")
        if self.kind not in PORTS:
            self.kind = ""
            return
        user, _, places = parts.netloc.rpartition("@")
        self.hosts = []
        for place in places.split(","):
            host = urlsplit(f"//{place}")
            if not host.hostname:
                raise ValueError(f"{place!r} is no host. {EXAMPLES}")
            self.hosts.append((host.hostname, host.port or PORTS[self.kind]))
        self.path = [unquote(part) for part in parts.path.split("/") if part]
        if self.kind == SENTINEL and not self.path:
            raise ValueError(f"url names no service after {places!r}. {EXAMPLES}")
        name, _, password = user.partition(":")
        login = {"username": unquote(name), "password": unquote(password)}
        self.login: dict[str, Any] = {k: v for k, v in login.items() if v}
        if scheme == "rediss":
            self.login["ssl"] = True

    def connect(self, *, is_async: bool = False) -> Any:
        """Return a client of redis-py; only that of a cluster asks it at once."""
        import redis.asyncio
        import redis.backoff

        library: Any = redis.asyncio if is_async else redis
        # Our scripts recognise a request that is sent again.
        retry = library.retry.Retry(redis.backoff.NoBackoff(), 1)
        options = {"retry": retry, **self.options}
        if not self.kind:
            return library.Redis.from_url(self.url, **options)
        options |= self.login
        if self.kind == CLUSTER:
            nodes = [library.cluster.ClusterNode(*host) for host in self.hosts]
            return library.RedisCluster(startup_nodes=nodes, **options)
        service, *database = self.path
        of_sentinel = {k: v for k, v in self.options.items() if k.startswith("socket")}
        sentinel = library.Sentinel(self.hosts, sentinel_kwargs=of_sentinel, **options)
        return sentinel.master_for(service, db=int(database[0]) if database else 0)

    def place(self) -> tuple[str, ...]:
        """Return where the keys are, without a password. A cluster is not asked."""
        if self.kind:
            hosts = (f"{host}:{port}" for host, port in sorted(self.hosts))
            return (self.kind, *hosts, *self.path)
        options = {**DEFAULTS, **self.connect().connection_pool.connection_kwargs}
        server = (options["host"], options["port"])
        place = (options["path"],) if "path" in options else server
        return tuple(map(str, (*place, options["db"])))


class RedisServer:
    """
    The servers of a URL, and the clients that ask them.

    The threads share one client, and each event loop has its own. If there are
    ``replicas`` to wait for, and fewer have a change within the ``timeout``, it raises
    ``Unconfirmed``.
    """

    def __init__(self, address: Address, replicas: int, timeout: timedelta):
        if replicas < 0:
            raise ValueError(f"wait_replicas={replicas!r} is no number of replicas")
        if replicas and address.kind == CLUSTER:
            raise ValueError("wait_replicas does not work with a cluster: leave it out")
        self.address = address
        self.clients = Clients(address.connect, lambda client: client.close())
        self._of_loops: WeakKeyDictionary[Any, tuple[Any, Any]] = WeakKeyDictionary()
        self._replicas = replicas
        self._wait = ("WAIT", replicas, timeout // timedelta(milliseconds=1))

    def run(
        self, script: Script, key: str, *arguments: Any, is_confirmed: bool = False
    ) -> Any:
        """Return the script's answer, once the replicas have it if ``is_confirmed``."""
        client, known = self.clients.get(), (1, key, *arguments)
        if is_confirmed and self._replicas:
            # On one connection, since WAIT counts what that has written.
            with client.pipeline(transaction=False) as pipeline:
                pipeline.execute_command("EVAL", script.text, *known)
                pipeline.execute_command(*self._wait)
                return self._confirmed(*pipeline.execute())
        try:
            return client.execute_command("EVALSHA", script.sha, *known)
        except Exception as error:
            if type(error).__name__ != UNKNOWN_SCRIPT:
                raise
        return client.execute_command("EVAL", script.text, *known)

    async def arun(
        self, script: Script, key: str, *arguments: Any, is_confirmed: bool = False
    ) -> Any:
        """Return what ``run()`` does."""
        client, known = await self._client_of_loop(), (1, key, *arguments)
        if is_confirmed and self._replicas:
            async with client.pipeline(transaction=False) as pipeline:
                pipeline.execute_command("EVAL", script.text, *known)
                pipeline.execute_command(*self._wait)
                return self._confirmed(*await pipeline.execute())
        try:
            return await client.execute_command("EVALSHA", script.sha, *known)
        except Exception as error:
            if type(error).__name__ != UNKNOWN_SCRIPT:
                raise
        return await client.execute_command("EVAL", script.text, *known)

    def _confirmed(self, answer: Any, replicas: int) -> Any:
        if answer == 1 and replicas < self._replicas:
            raise Unconfirmed(
                f"only {replicas} of {self._replicas} replicas have it, so it was "
                "released. See wait_replicas and wait_timeout."
            )
        return answer

    async def _client_of_loop(self) -> Any:
        loop = asyncio.get_running_loop()
        if loop not in self._of_loops:
            client = self.address.connect(is_async=True)
            living = _living(client)
            await anext(living)
            self._of_loops[loop] = client, living
        return self._of_loops[loop][0]


class Unconfirmed(Exception):
    """Too few replicas have a change."""


async def _living(client: Any) -> AsyncGenerator[Any, None]:
    # An event loop that ends closes the generators that began in it, and so this.
    try:
        yield client
    finally:
        await client.aclose()
        pool = getattr(client, "connection_pool", None)
        for each in getattr(getattr(pool, "sentinel_manager", None), "sentinels", ()):
            await each.aclose()
