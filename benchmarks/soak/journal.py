"""One file to which all processes of a soak append what they did, and when."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Event = dict[str, Any]


class Journal:
    """
    Appends events; each is one line, written by one call of the kernel.

    ``at`` is CLOCK_MONOTONIC, which all processes of a host share. No lock of the
    library has a part in it.
    """

    def __init__(self, path: Path):
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, what: str, *, at: float | None = None, **details: Any) -> None:
        """Append an event, of now or of an earlier instant."""
        now = time.monotonic() if at is None else at
        line = json.dumps({"what": what, "at": now, **details}, default=str)
        os.write(self._file, f"{line}\n".encode())


def leave_out_warnings() -> None:
    """Let this process not print what drivers log of each connection that breaks."""
    logging.getLogger().addHandler(logging.NullHandler())


def read(path: Path) -> Iterator[Event]:
    """Return the events in the order in which they were written."""
    with path.open() as lines:
        for line in lines:
            if line.endswith("\n"):  # the last one may be half written
                yield json.loads(line)
