"""Waiting for what has to happen, however slow the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE = 240
"""Seconds: what has not happened by then never will. No test waits for them to pass."""


_shipped: dict[str, Any] = {}


def wait_for_servers() -> None:
    """Let the package's statements wait that long for an answer."""
    from django_shedlock.sql import connections

    if not _shipped:
        _shipped["longest"] = connections.PrivateConnections.answer_timeout_seconds
        _shipped["options"] = {
            k: v.copy() for k, v in connections.CONNECTION_OPTIONS.items()
        }
    connections.PrivateConnections.answer_timeout_seconds = PATIENCE
    for options in connections.CONNECTION_OPTIONS.values():
        options.update(dict.fromkeys(options, PATIENCE))


def wait_as_shipped() -> None:
    """Let them wait as they do in a project."""
    from django_shedlock.sql import connections

    if _shipped:
        connections.PrivateConnections.answer_timeout_seconds = _shipped["longest"]
        connections.CONNECTION_OPTIONS.update(_shipped["options"])


def wait_for(
    condition: Callable[[], Any], timeout: float = PATIENCE, pause: float = 0.005
) -> Any:
    """Return the first true result of ``condition``, asked after such pauses."""
    deadline = time.monotonic() + timeout
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise AssertionError("it did not happen in time")
        time.sleep(pause)
    return result
