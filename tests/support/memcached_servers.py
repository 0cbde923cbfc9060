"""A Memcached of the tests' own, which may be stopped and started again."""

from __future__ import annotations

import getpass
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.standstills import stopped
from tests.support.waiting import PATIENCE, wait_for

PROGRAM = "memcached"


def needs_memcached() -> None:
    """Skip a test where the program is missing; in ``.ci/run`` a skip is a failure."""
    if shutil.which(PROGRAM) is None:
        pytest.skip(f"{PROGRAM} is missing: install Debian's package memcached")


class Memcached:
    """Listens on a socket in a folder, for this process's user."""

    def __init__(self, folder: Path):
        self.socket = folder / "memcached.sock"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def cache(self) -> dict[str, Any]:
        """Its entry of ``CACHES``."""
        return {
            "BACKEND": "django.core.cache.backends.memcached.PyMemcacheCache",
            "LOCATION": f"unix:{self.socket}",
            "OPTIONS": {"connect_timeout": PATIENCE, "timeout": PATIENCE},
        }

    def start(self) -> None:
        """Start it, with nothing in it."""
        command = [PROGRAM, "-s", str(self.socket), "-u", getpass.getuser()]
        self._process = subprocess.Popen(command)
        assert wait_for(self._listens)

    def stop(self) -> None:
        """End it, and with it all that it keeps."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE)
        self._process = None
        self.socket.unlink(missing_ok=True)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Let it answer nothing, though it listens, as after a pause of its host."""
        assert self._process is not None
        with stopped(self._process):
            yield

    def forget(self) -> None:
        """Delete all that it keeps."""
        with self._connected() as connection:
            connection.sendall(b"flush_all\r\n")
            assert connection.recv(100) == b"OK\r\n"

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None
        try:
            self._connected().close()
        except OSError:
            return False
        return True

    def _connected(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(self.socket))
        except OSError:
            connection.close()
            raise
        return connection


@contextmanager
def memcached() -> Iterator[Memcached]:
    """Start one, and end it afterwards."""
    needs_memcached()
    with tempfile.TemporaryDirectory(prefix="shedlock_memcached_") as folder:
        server = Memcached(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()
