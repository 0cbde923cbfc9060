"""A network between a client and a server that can be cut."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Proxy:
    """
    Passes on what comes to its port of loopback, while it is not cut.

    ``address`` is the server's port, or the path of its Unix socket.
    """

    def __init__(self, address: int | str):
        self._target = address
        self._passes = threading.Event()
        self._passes.set()
        self._is_away = False
        self.is_holding: threading.Event = threading.Event()
        """Set as soon as something arrives while it is cut."""
        self._sockets: list[socket.socket] = []
        self.accepted = 0
        """How many clients have connected."""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Let nothing through, and tell nobody; what was sent arrives afterwards."""
        self.is_holding.clear()
        self._passes.clear()
        try:
            yield
        finally:
            self._passes.set()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Break all connections, and refuse new ones, as a server does that is away."""
        self._is_away = True
        for each in [*self._sockets]:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        try:
            yield
        finally:
            self._is_away = False

    def lead_to(self, address: int | str) -> None:
        """Let new connections lead to another server, as a changed name does."""
        self._target = address

    def close(self) -> None:
        """End all connections, and listen no more; what is under way is lost."""
        for each in [self._listening, *self._sockets]:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._passes.set()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                self.accepted += 1
                if self._is_away:
                    client.close()
                else:
                    self._sockets.append(client)
                    self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        try:
            server = connected_to(self._target)
        except OSError:
            self._forget(client)
            return
        self._sockets.append(server)
        threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        back = threading.Thread(
            target=self._pass_on, args=(server, client), daemon=True
        )
        back.start()
        self._pass_on(client, server)
        back.join()
        for each in (client, server):
            self._forget(each)

    def _forget(self, ended: socket.socket) -> None:
        with suppress(ValueError):  # close() has ended it as well
            self._sockets.remove(ended)
        ended.close()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if not self._passes.is_set():
                    self.is_holding.set()
                self._passes.wait()
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def connected_to(address: int | str) -> socket.socket:
    """Connect to a port of loopback, or to a Unix socket."""
    if isinstance(address, int):
        return socket.create_connection(("127.0.0.1", address))
    connected = socket.socket(socket.AF_UNIX)
    try:
        connected.connect(address)
    except OSError:
        connected.close()
        raise
    return connected


@contextmanager
def proxy(address: int | str) -> Iterator[Proxy]:
    """Put a network before the server at this address."""
    passing = Proxy(address)
    try:
        yield passing
    finally:
        passing.close()
