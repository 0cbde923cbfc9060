"""Waiting for what has to happen, however slow the machine is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

PATIENCE = 15
"""Seconds within which what a healthy library does at once has happened."""
STARTUP_PATIENCE = 120
"""Seconds within which a slow machine starts an interpreter, a server or a browser."""
NEVER_SECONDS = 240
"""Seconds that no test lets pass: a lease, timeout or sleep that is not to end."""
LONGEST_STEP_SECONDS = 1
"""The most that a step of a wait counts: in a longer one the machine stood still."""


_shipped: dict[str, Any] = {}


def wait_for_servers() -> None:
    """Let the package's statements wait as long as a slow machine needs."""
    from django_shedlock.sql import connections

    if not _shipped:
        _shipped["longest"] = connections.PrivateConnections.answer_timeout_seconds
        _shipped["options"] = {
            k: v.copy() for k, v in connections.CONNECTION_OPTIONS.items()
        }
    connections.PrivateConnections.answer_timeout_seconds = STARTUP_PATIENCE
    for options in connections.CONNECTION_OPTIONS.values():
        options.update(dict.fromkeys(options, STARTUP_PATIENCE))


def wait_as_shipped() -> None:
    """Let them wait as they do in a project."""
    from django_shedlock.sql import connections

    if _shipped:
        connections.PrivateConnections.answer_timeout_seconds = _shipped["longest"]
        connections.CONNECTION_OPTIONS.update(_shipped["options"])


def wait_for(
    condition: Callable[[], Any], timeout: float = PATIENCE, pause: float = 0.005
) -> Any:
    """
    Return the first true result of ``condition``, asked after such pauses.

    ``timeout`` counts the seconds in which this process got to run: while the machine
    stands still, it uses up no more than one step.
    """
    left, before = timeout, time.monotonic()
    while not (result := condition()):
        if left < 0:
            raise AssertionError(f"it did not happen within {timeout} seconds")
        time.sleep(pause)
        now = time.monotonic()
        left -= min(now - before, LONGEST_STEP_SECONDS)
        before = now
    return result


@asynccontextmanager
async def patience() -> AsyncIterator[None]:
    """Raise ``TimeoutError`` if the body takes too long, counted as in wait_for()."""

    async def give_up() -> None:
        left, before = float(PATIENCE), time.monotonic()
        while left > 0:
            await asyncio.sleep(0.1)
            now = time.monotonic()
            left -= min(now - before, LONGEST_STEP_SECONDS)
            before = now
        limit.reschedule(0)

    async with asyncio.timeout(None) as limit:
        giving_up = asyncio.create_task(give_up())
        try:
            yield
        finally:
            giving_up.cancel()
