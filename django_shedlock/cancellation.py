"""Cancel the body of an async job when its lock is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

from asgiref.sync import sync_to_async

from django_shedlock.exceptions import LockLost, LockProviderError
from django_shedlock.locks.lock import Lock


@asynccontextmanager
async def cancelled_when_lost(lock: Lock) -> AsyncIterator[None]:
    """
    Cancel the body as soon as ``lock`` is lost, and raise ``LockLost`` in its place.

    A cancellation by somebody else passes through, as with ``asyncio.timeout()``.
    """
    guard = _Guard(lock)
    watching = asyncio.create_task(guard.watch())
    try:
        with lock.watched_by(guard.wake):
            yield
    except asyncio.CancelledError:
        if guard.was_the_only_one():
            raise LockLost(
                f"Lock {lock.name!r} was lost by {lock.locked_by}, so its job was "
                "cancelled. Its lease ended, or it was released or taken."
            ) from None
        raise
    finally:
        watching.cancel()


class _Guard:
    """Cancels the task in which it is made."""

    def __init__(self, lock: Lock):
        body = asyncio.current_task()
        self._lock = lock
        # A coroutine always runs in a task.
        self._body = cast("asyncio.Task[Any]", body)
        self._cancelling = self._body.cancelling()
        self._has_cancelled = False
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()

    async def watch(self) -> None:
        """Wait until the lock is lost or released; the lease ends without news."""
        while self._lock.is_active or await self._is_extended():
            with suppress(TimeoutError):
                remaining = self._lock.remaining().total_seconds()
                await asyncio.wait_for(self._news.wait(), remaining)
        if self._lock.is_lost:
            self._has_cancelled = True
            self._body.cancel()
            await sync_to_async(self._lock.declare_lost)()

    async def _is_extended(self) -> bool:
        # An operator may have extended it without this process knowing.
        if not self._lock.is_lost or self._lock.lost.is_set():
            return False
        try:
            return await sync_to_async(self._lock.refresh)()
        except LockProviderError:
            return False

    def wake(self) -> None:
        """Tell the loop that the lock is lost; called from any thread."""
        with suppress(RuntimeError):  # the loop is closed, and its tasks with it
            self._loop.call_soon_threadsafe(self._news.set)

    def was_the_only_one(self) -> bool:
        """Whether nobody else asked for the cancellation."""
        return self._has_cancelled and self._body.uncancel() <= self._cancelling
