"""
What a MongoDB does that has no room left, or refuses a user.

The stand-in can be in neither state, and a server of MongoDB's only with a small disk
or with users. So what comes between passes all on to the server, but answers the
changes itself, with the documents that MongoDB answers then.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import bson
import pytest

from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.mongodb import MongoLockProvider
from tests.support.proxies import Proxy
from tests.support.store_states import StoreStates

CHANGES = ("findAndModify", "insert", "update")
REPLY, QUERY, MESSAGE = 1, 2004, 2013
"""The kinds of messages. PyMongo begins with a query, which MongoDB replies to."""
HEADER = struct.Struct("<iiii")
"""The length of a message, its number, that of the message it answers, its kind."""
FULL = {
    "ok": 0.0,
    "errmsg": "available disk space of 12 bytes is less than required minimum",
    "code": 14031,
    "codeName": "OutOfDiskSpace",
}
FORBIDDEN = {
    "ok": 0.0,
    "errmsg": "not authorized on test to execute command { findAndModify: 'locks' }",
    "code": 13,
    "codeName": "Unauthorized",
}


class RefusingProxy(Proxy):
    """
    A network in which somebody answers the changes while there is a refusal.

    It hangs up on a client that speaks TLS, as MongoDB does without TLS.
    """

    refusal: dict[str, Any] | None = None

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError, EOFError):
            is_server = source.getpeername()[1] == self._target
            while True:
                header = received(source, HEADER.size)
                length, number, _, kind = HEADER.unpack(header)
                if kind not in (REPLY, QUERY, MESSAGE):  # it begins TLS
                    break
                body = received(source, length - HEADER.size)
                if not is_server and kind == MESSAGE and self._is_refused(body):
                    source.sendall(self._answer_to(number))
                else:
                    target.sendall(header + body)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _is_refused(self, body: bytes) -> bool:
        # Flags and the kind of the section come before the command.
        (length,) = struct.unpack_from("<i", body, 5)
        command = bson.decode(body[5 : 5 + length])
        return self.refusal is not None and next(iter(command)) in CHANGES

    def _answer_to(self, number: int) -> bytes:
        body = bytes(5) + bson.encode(self.refusal or {})
        return HEADER.pack(HEADER.size + len(body), 1, number, MESSAGE) + body


def received(source: socket.socket, length: int) -> bytes:
    """Return just so many bytes; raise ``EOFError`` if the other end is closed."""
    data = b""
    while len(data) < length:
        more = source.recv(length - len(data))
        if not more:
            raise EOFError
        data += more
    return data


class TestStates(StoreStates):
    """A full disk, and a user who may only read."""

    store = "MongoDB"
    full_fix = "more disk space"
    forbidden_fix = "find, insert, update and remove on '.*locks"
    releases_when_full = False

    @pytest.fixture
    def locks(self, mongodb: dict[str, Any]) -> Iterator[LockProvider]:
        """Return a provider that asks through the proxy."""
        self.proxy = RefusingProxy(urlsplit(mongodb["url"]).port or 27017)
        url = f"mongodb://127.0.0.1:{self.proxy.port}/test?directConnection=true"
        provider = MongoLockProvider("default", **{**mongodb, "url": url})
        yield provider
        provider.clients.close()
        self.proxy.close()

    @contextmanager
    def refusing(self, refusal: dict[str, Any]) -> Iterator[None]:
        """Let MongoDB answer each change with this document."""
        self.proxy.refusal = refusal
        yield
        self.proxy.refusal = None

    @contextmanager
    def full(self, locks: LockProvider) -> Iterator[None]:
        with self.refusing(FULL):
            yield

    @contextmanager
    def forbidden(self, locks: LockProvider) -> Iterator[LockProvider]:
        with self.refusing(FORBIDDEN):
            yield locks

    def at(self, port: int, *, tls: bool) -> LockProvider:
        url = f"mongodb://127.0.0.1:{port}/?directConnection=true"
        return MongoLockProvider("default", url=url, tls=tls, timeout="1s")

    @contextmanager
    def plain_port(self, locks: LockProvider) -> Iterator[int]:
        yield self.proxy.port
