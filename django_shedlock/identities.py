"""The identity of an acquisition, which says where a lock is held."""

from __future__ import annotations

import os
import secrets
import socket


def new_identity() -> str:
    """Return a new ``host:pid:random``, short enough for its column."""
    return f"{socket.gethostname()[:200]}:{os.getpid()}:{secrets.token_hex(8)}"


def split_identity(locked_by: str) -> tuple[str, int | None]:
    """Return host and process of a ``host:pid:random``; others are taken for a host."""
    host, *rest = locked_by.rsplit(":", 2)
    if len(rest) == 2 and rest[0].isdecimal():
        return host, int(rest[0])
    return locked_by, None
