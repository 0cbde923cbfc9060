"""Cancel the body of an async job when its lock is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast
from weakref import WeakKeyDictionary

from django_shedlock.exceptions import LockLost
from django_shedlock.locks.lock import Lock


@asynccontextmanager
async def cancelled_when_lost(lock: Lock) -> AsyncIterator[None]:
    """
    Cancel the body as soon as ``lock`` is lost, and raise ``LockLost`` in its place.

    A cancellation by somebody else passes through, as with ``asyncio.timeout()``. So
    does whatever the body does with ours: an exception of its own, or a normal end.
    """
    canceller = _Canceller()
    if not canceller.guard(lock):
        yield
        return
    with lock.watched_by(canceller.wake):
        if lock.lost.is_set():  # before it was watched
            canceller.wake()
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            if canceller.end():
                raise LockLost(
                    f"Lock {lock.name!r} was lost by {lock.locked_by}, so its job was "
                    "cancelled. Its lease ended, or it was released or taken."
                ) from None
            raise
        finally:
            canceller.end()
            _guarded[canceller.task].discard(lock)


_guarded: WeakKeyDictionary[asyncio.Task[Any], set[Lock]] = WeakKeyDictionary()


class _Canceller:
    """Cancels the task in which it is made."""

    def __init__(self) -> None:
        # A coroutine always runs in a task.
        self.task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._before = self.task.cancelling()
        self._loop = asyncio.get_running_loop()
        self._has_cancelled = False
        self._is_over = False

    def guard(self, lock: Lock) -> bool:
        """Return whether no outer body of the task guards it, which would do twice."""
        guarded = _guarded.setdefault(self.task, set())
        is_first = lock not in guarded
        guarded.add(lock)
        return is_first

    def wake(self) -> None:
        """Cancel the task soon; called from any thread."""
        with suppress(RuntimeError):  # the loop is closed, and its tasks with it
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if not self._is_over and not self._has_cancelled:
            self._has_cancelled = True
            self.task.cancel()

    def end(self) -> bool:
        """Take the cancellation back; return whether nobody else asked for one."""
        self._is_over = True
        if not self._has_cancelled:
            return False
        self._has_cancelled = False
        return self.task.uncancel() <= self._before
