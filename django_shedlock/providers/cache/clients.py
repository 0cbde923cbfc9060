"""The cache as each thread has it: with a client, and so with sockets, of its own."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import Any

from django.core.cache import caches
from django.core.cache.backends.base import BaseCache, InvalidCacheBackendError


class Clients:
    """
    Makes a cache of ``CACHES`` for each thread that asks for it.

    Not Django's own ``caches[alias]``: a request's end closes that, a forked child
    would use its parent's sockets, and pymemcache goes on with a socket on which the
    answer to an interrupted call is still to come.
    """

    def __init__(self, alias: str):
        self.alias = alias
        self._threads = threading.local()
        self._inherited: list[object] = []

    def get(self) -> BaseCache:
        """
        Return this thread's cache.

        Raises ``InvalidCacheBackendError``, or what the backend raises.
        """
        client: _Client | None = getattr(self._threads, "client", None)
        if client is not None and client.pid != os.getpid():
            # Freed in the child, some clients would end the parent's connection.
            self._inherited.append(client)
            client = None
        if client is None or client.parameters is not _parameters(self.alias):
            client = self._threads.client = _Client(self.alias)
        return client.cache

    def forget(self) -> None:
        """Let this thread begin again: a call has failed, perhaps before its answer."""
        self._threads.client = None


class _Client:
    def __init__(self, alias: str):
        self.pid = os.getpid()
        self.parameters = _parameters(alias)
        self.cache: BaseCache = caches.create_connection(alias)

    def __del__(self) -> None:
        # A socket that is freed before it is closed is a warning.
        if self.pid == os.getpid() and "cache" in vars(self):
            with suppress(Exception):
                self.cache.close()


def _parameters(alias: str) -> dict[str, Any]:
    if alias not in caches.settings:
        raise InvalidCacheBackendError(
            f"{alias!r} is not in CACHES, which has "
            f"{', '.join(map(repr, caches.settings))}."
        )
    parameters: dict[str, Any] = caches.settings[alias]
    return parameters
