"""Cancel the body of an async job when its lock is lost."""

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
    loop, before = asyncio.get_running_loop(), task.cancelling()
    has_cancelled = is_over = False

    def cancel() -> None:
        nonlocal has_cancelled
        if not is_over and not has_cancelled:
            has_cancelled = True
            task.cancel()

    def wake() -> None:  # called from any thread
        with suppress(RuntimeError):  # the loop is closed, and its tasks with it
            loop.call_soon_threadsafe(cancel)

    guarded.add(lock)
    with lock.watched_by(wake):
        if lock.lost.is_set():  # before it was watched
            wake()
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            if has_cancelled and task.cancelling() <= before + 1:  # it was only us
                raise LockLost(
                    f"Lock {lock.name!r} was lost by {lock.locked_by}, so its job was "
                    "cancelled. Its lease ended, or somebody else released or acquired "
                    "it."
                ) from None
            raise
        finally:
            is_over = True
            if has_cancelled:
                task.uncancel()
            guarded.discard(lock)
