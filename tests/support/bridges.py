"""A bridge to the tests' server that can freeze, and lose the reply to a statement."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from django.db import connections


class Bridge:
    """Listens on loopback, and passes on what is sent, until it is frozen."""

    def __init__(self) -> None:
        # As it is now: then `default` may be told to go over the bridge.
        self._server = connections["default"].settings_dict.copy()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._passes = threading.Event()
        self._passes.set()
        self._ends: list[socket.socket] = [self._listening]
        self._fragment, self._losses = b"", 0
        self._mute: set[socket.socket] = set()
        """The servers' ends whose next reply is lost."""
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> dict[str, Any]:
        """Its part of ``DATABASES``."""
        port = self._listening.getsockname()[1]
        return {"HOST": "127.0.0.1", "PORT": str(port)}

    @property
    def server_address(self) -> dict[str, Any]:
        """The part of ``DATABASES`` that leads to the server without the bridge."""
        return {key: self._server[key] for key in ("HOST", "PORT")}

    def freeze(self) -> None:
        """Pass nothing on any more; connections are accepted, and hear nothing."""
        self._passes.clear()

    def lose_replies_to(self, fragment: str, times: int = 1) -> None:
        """Let the server get statements with this text, and break before its reply."""
        self._fragment, self._losses = fragment.encode(), times

    def close(self) -> None:
        """Break all connections, and accept none."""
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._passes.set()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, server = self._listening.accept()[0], self._connect()
                self._ends += client, server
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._passes.wait()
                if source in self._mute:
                    break
                if self._losses and self._fragment in data:
                    self._losses -= 1
                    self._mute.add(target)
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def _connect(self) -> socket.socket:
        host, port = self._server["HOST"], self._server["PORT"]
        is_mysql = connections["default"].vendor == "mysql"
        port = int(port or (3306 if is_mysql else 5432))
        if not host.startswith("/"):
            return socket.create_connection((host, port))
        path = Path(host) if is_mysql else Path(host, f".s.PGSQL.{port}")
        end = socket.socket(socket.AF_UNIX)
        end.connect(str(path))
        return end


@contextmanager
def bridge() -> Iterator[Bridge]:
    """Build a bridge to the server of the tests, and leave no connection behind."""
    built = Bridge()
    try:
        yield built
    finally:
        built.close()
