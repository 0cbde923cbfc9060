"""How a Redis is asked: one server, Sentinel's master, or a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from hashlib import sha1
from typing import Any
from urllib.parse import unquote, urlsplit
from weakref import WeakKeyDictionary

from django_shedlock.providers import redis_records as records
from django_shedlock.providers.servers import Clients, shown_url

PORTS = {"sentinel": 26379, "cluster": 6379}
TIMEOUT = 5.0
"""Seconds for which a client waits for a connection, and for an answer."""
EXAMPLES = (
    "Write it as redis://HOST:6379/0, unix:///PATH, "
    "redis+sentinel://HOST:26379,HOST/SERVICE/0 or redis+cluster://HOST:6379,HOST"
)


class Unconfirmed(Exception):
    """Too few replicas have a change."""


class RedisServer:
    """
    The servers of a URL, and the clients that ask them.

    The threads share one client, and each event loop has its own. ``kind`` is empty for
    one server, which redis-py finds by itself. ``options`` are those of redis-py. A
    record stays for ``retention`` after its lease. ``wait`` is for how many replicas
    a change waits, and how long; if fewer have it then, it raises ``Unconfirmed``.
    Raises ``ValueError`` if the URL names no server.
    """

    def __init__(
        self,
        url: str,
        options: dict[str, Any],
        retention: timedelta,
        wait: tuple[int, timedelta],
    ):
        limits = {"socket_timeout": TIMEOUT, "socket_connect_timeout": TIMEOUT}
        self._url, self._options = url, {**limits, **options}
        shown_url(url)
        parts = urlsplit(url)
        scheme, _, kind = parts.scheme.partition("+")
        self.kind, self.hosts = kind if kind in PORTS else "", []
        user, _, places = parts.netloc.rpartition("@")
        for place in places.split(",") if self.kind else ():
            host = urlsplit(f"//{place}")
            if not host.hostname:
                raise ValueError(f"{place!r} is no host. {EXAMPLES}")
            self.hosts.append((host.hostname, host.port or PORTS[self.kind]))
        self.path = [unquote(part) for part in parts.path.split("/") if part]
        if self.kind == "sentinel" and not self.path:
            raise ValueError(f"url names no service after {places!r}. {EXAMPLES}")
        name, _, password = user.partition(":")
        login = {"username": unquote(name), "password": unquote(password)}
        self._login: dict[str, Any] = {k: v for k, v in login.items() if v}
        if scheme == "rediss":
            self._login["ssl"] = True
        self.replicas, timeout = wait
        if self.replicas < 0:
            raise ValueError(f"wait_replicas={wait[0]} is no number of replicas")
        if self.replicas and self.kind == "cluster":
            raise ValueError("wait_replicas does not work with a cluster: leave it out")
        millisecond = timedelta(milliseconds=1)
        self._scripts = {}
        for script in records.SCRIPTS:
            text = script.replace("RETENTION", str(retention // millisecond))
            sha = sha1(text.encode()).hexdigest()  # noqa: S324
            self._scripts[script] = text, sha
        self._wait = ("WAIT", self.replicas, timeout // millisecond)
        self.clients = Clients(self.connect, lambda client: client.close())
        self._of_loops: WeakKeyDictionary[Any, tuple[Any, Any]] = WeakKeyDictionary()

    def connect(self, *, is_async: bool = False) -> Any:
        """Return a client of redis-py; only that of a cluster asks it at once."""
        import redis.asyncio
        import redis.backoff

        library: Any = redis.asyncio if is_async else redis
        # Our scripts recognise a request that is sent again.
        retry = library.retry.Retry(redis.backoff.NoBackoff(), 1)
        options = {"retry": retry, **self._options}
        if not self.kind:
            return library.Redis.from_url(self._url, **options)
        options |= self._login
        if self.kind == "cluster":
            nodes = [library.cluster.ClusterNode(*host) for host in self.hosts]
            return library.RedisCluster(startup_nodes=nodes, **options)
        service, *database = self.path
        of_sentinel = {k: v for k, v in self._options.items() if k.startswith("socket")}
        sentinel = library.Sentinel(self.hosts, sentinel_kwargs=of_sentinel, **options)
        return sentinel.master_for(service, db=int(database[0]) if database else 0)

    def run(
        self, key: bytes, script: str, *request: Any, is_confirmed: bool = False
    ) -> Any:
        """Return the script's answer, once the replicas have it if ``is_confirmed``."""
        client, (text, sha) = self.clients.get(), self._scripts[script]
        from redis.exceptions import NoScriptError

        if is_confirmed and self.replicas:
            # On one connection, since WAIT counts what that has written.
            with client.pipeline(transaction=False) as pipeline:
                pipeline.execute_command("EVAL", text, 1, key, *request)
                pipeline.execute_command(*self._wait)
                return self._confirmed(*pipeline.execute(raise_on_error=False))
        try:
            return client.execute_command("EVALSHA", sha, 1, key, *request)
        except NoScriptError:  # the server has not seen it since it began
            return client.execute_command("EVAL", text, 1, key, *request)

    async def arun(
        self, key: bytes, script: str, *request: Any, is_confirmed: bool = False
    ) -> Any:
        """Return what ``run()`` does."""
        loop = asyncio.get_running_loop()
        if loop not in self._of_loops:
            made = self.connect(is_async=True)
            living = _living(made)
            await anext(living)
            self._of_loops[loop] = made, living
        client, (text, sha) = self._of_loops[loop][0], self._scripts[script]
        from redis.exceptions import NoScriptError

        if is_confirmed and self.replicas:
            async with client.pipeline(transaction=False) as pipeline:
                pipeline.execute_command("EVAL", text, 1, key, *request)
                pipeline.execute_command(*self._wait)
                answers = await pipeline.execute(raise_on_error=False)
                return self._confirmed(*answers)
        try:
            return await client.execute_command("EVALSHA", sha, 1, key, *request)
        except NoScriptError:
            return await client.execute_command("EVAL", text, 1, key, *request)

    def _confirmed(self, answer: Any, replicas: Any) -> Any:
        for each in (answer, replicas):
            if isinstance(each, Exception):
                raise each
        if answer == 1 and replicas < self.replicas:
            raise Unconfirmed(
                f"only {replicas} of {self.replicas} replicas have it, so it does not "
                "count. See wait_replicas and wait_timeout."
            )
        return answer

    def place(self) -> tuple[str, ...]:
        """Return where the keys are, without a password. A cluster is not asked."""
        if self.kind:
            hosts = (f"{host}:{port}" for host, port in sorted(self.hosts))
            return (self.kind, *hosts, *self.path)
        known = self.connect().connection_pool.connection_kwargs
        options = {"host": "localhost", "port": 6379, "db": 0, **known}
        names = ("path", "db") if "path" in options else ("host", "port", "db")
        return tuple(str(options[name]) for name in names)


async def _living(client: Any) -> AsyncGenerator[Any, None]:
    # An event loop that ends closes the generators that began in it, and so this.
    try:
        yield client
    finally:
        await client.aclose()
        pool = getattr(client, "connection_pool", None)
        for each in getattr(getattr(pool, "sentinel_manager", None), "sentinels", ()):
            await each.aclose()
