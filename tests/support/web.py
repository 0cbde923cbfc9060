"""A web server on loopback, which notes what it is sent and answers as it is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from tests.support.waiting import PATIENCE, wait_for


class Sent(NamedTuple):
    """A request."""

    method: str
    path: str
    body: str


class Web(ThreadingHTTPServer):
    """The server: ``statuses`` are those of its next answers, later ones are 200."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.sent: list[Sent] = []
        self.statuses: list[int] = []
        self.answers = threading.Event()
        """Set unless requests are to wait for their answer."""
        self.answers.set()
        self.answered = 0

    def wait_for(self, count: int) -> list[Sent]:
        """Return what was sent, as soon as it is so many requests."""
        wait_for(lambda: len(self.sent) >= count)
        return self.sent

    def paths(self, count: int) -> list[str]:
        """Return the paths of what was sent, as soon as it is so many requests."""
        return [each.path for each in self.wait_for(count)]


class Handler(BaseHTTPRequestHandler):
    """Notes a request, and answers it."""

    server: Web

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0)).decode()
        statuses = self.server.statuses
        status = statuses.pop(0) if statuses else 200
        self.server.sent.append(Sent(self.command, self.path, body))
        self.server.answers.wait(PATIENCE)
        self.send_response(status)
        self.send_header("Location", f"{self.server.url}/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()
        self.server.answered += 1

    def do_GET(self) -> None:
        self.do_POST()

    def log_message(self, *args: object) -> None: ...


@contextmanager
def serving() -> Iterator[Web]:
    """Serve while the body runs."""
    with Web() as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01], daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.answers.set()
            server.shutdown()
            thread.join(PATIENCE)
