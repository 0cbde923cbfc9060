"""Cancel the body of an async job: when its lock is lost, and when a signal comes."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from threading import current_thread, main_thread
from types import FrameType
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

from asgiref.sync import async_to_sync

from django_shedlock.exceptions import LockLost
from django_shedlock.locks.lock import Lock

T = TypeVar("T")

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


def run_async(function: Callable[[], Awaitable[T]]) -> T:
    """
    Return what the coroutine function returns, called by sync code.

    Its loop is in another thread, which this one serves. If a handler of SIGTERM raises
    here, the coroutine is cancelled, and that is raised after its end: else nobody
    would serve the release of its lock.
    """
    handler: Any = signal.getsignal(signal.SIGTERM)
    if not callable(handler) or current_thread() is not main_thread():
        return async_to_sync(function)()
    raised: list[BaseException] = []
    running: asyncio.Task[T] | None = None

    async def run() -> T:
        nonlocal running
        running = asyncio.current_task()
        if raised:
            raise asyncio.CancelledError
        return await function()

    def handle(number: int, frame: FrameType | None) -> None:
        try:
            handler(number, frame)
        except BaseException as error:
            raised.append(error)
            if running is not None:
                with suppress(RuntimeError):  # its loop is closed
                    running.get_loop().call_soon_threadsafe(running.cancel)

    signal.signal(signal.SIGTERM, handle)
    try:
        return async_to_sync(run)()
    finally:
        signal.signal(signal.SIGTERM, handler)
        if raised:
            raise raised[0] from None


def is_ending(exception: BaseException | None) -> bool:
    """Return whether the handler of a signal has raised it, to end the process."""
    codes = {128 + signal.SIGTERM, 128 + signal.SIGINT}
    return isinstance(exception, SystemExit) and exception.code in codes
