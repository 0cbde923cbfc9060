"""Cancel the body of an async job when its lock is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast
from weakref import WeakKeyDictionary

from django_shedlock.exceptions import LockLost
from django_shedlock.locks.lock import Lock

_guarded: WeakKeyDictionary[asyncio.Task[Any], set[Lock]] = WeakKeyDictionary()


@asynccontextmanager
async def cancelled_when_lost(lock: Lock) -> AsyncIterator[None]:
    """
    Cancel the body as soon as ``lock`` is lost, and raise ``LockLost`` in its place.

    A cancellation by somebody else passes through, as with ``asyncio.timeout()``. So
    does whatever the body does with ours: an exception of its own, or a normal end.
    """
    task = cast("asyncio.Task[Any]", asyncio.current_task())  # coroutines run in tasks
    guarded = _guarded.setdefault(task, set())
    if lock in guarded:  # by an outer body of the task
        yield
        return
    guarded.add(lock)
    canceller = _Canceller(task)
    with lock.watched_by(canceller.wake):
        if lock.lost.is_set():  # before it was watched
            canceller.wake()
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            if canceller.end():
                raise LockLost(
                    f"Lock {lock.name!r} was lost by {lock.locked_by}, so its job was "
                    "cancelled. Its lease ended, or somebody else released or acquired "
                    "it."
                ) from None
            raise
        finally:
            canceller.end()
            guarded.discard(lock)


class _Canceller:
    """Cancels the task once, and can take that back."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self._before = task.cancelling()
        self._loop = asyncio.get_running_loop()
        self._has_cancelled = False
        self._is_over = False

    def wake(self) -> None:
        """Cancel the task soon; called from any thread."""
        with suppress(RuntimeError):  # the loop is closed, and its tasks with it
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if not self._is_over and not self._has_cancelled:
            self._has_cancelled = True
            self._task.cancel()

    def end(self) -> bool:
        """Take the cancellation back; return whether nobody else asked for one."""
        self._is_over = True
        if not self._has_cancelled:
            return False
        self._has_cancelled = False
        return self._task.uncancel() <= self._before
