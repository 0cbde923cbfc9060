"""Ports for the tests' own servers."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from pathlib import Path
from random import SystemRandom

PORTS = range(12_000, 22_000)
"""Below those that kernels give out by themselves, also with 10,000 added."""


def free_port() -> int:
    """
    Return a port of loopback that nobody listens on, nor on 10,000 above it.

    No other call returns it as long as this process lives: a server may take its time
    until it listens. A cluster's nodes talk to each other on the port above.
    """
    folder = Path(tempfile.gettempdir()) / f"shedlock ports of {os.getuid()}"
    folder.mkdir(exist_ok=True)
    while True:
        port = SystemRandom().choice(PORTS)  # tests may have seeded the other one
        claim = os.open(folder / str(port), os.O_CREAT | os.O_WRONLY)  # until the end
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for each in (port, port + 10_000):
                socket.create_server(("127.0.0.1", each)).close()
        except OSError:
            os.close(claim)
        else:
            return port
