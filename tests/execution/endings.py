"""Ways in which a process ends: ``python -m tests.execution.endings WAY DATABASES``."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import django

from django_shedlock import ahold, hold, scheduler_lock, shut_down

BODY_COUNT = 10
FOREVER_SECONDS = 3600
left_open: list[Any] = []
"""What a module keeps for as long as the process runs."""


async def body(name: str, begun: asyncio.Semaphore) -> None:
    """Stay inside a lock until somebody ends the task."""
    async with ahold(name, lock_at_most_for="1h", keep_alive=True):
        begun.release()
        await asyncio.sleep(FOREVER_SECONDS)


class Bodies:
    """Tasks inside locks of their own."""

    def __init__(self) -> None:
        self._begun = asyncio.Semaphore(0)

    def make(self) -> list[Coroutine[Any, Any, None]]:
        return [body(f"job {number}", self._begun) for number in range(BODY_COUNT)]

    async def wait(self) -> None:
        """Wait until all are inside."""
        for _ in range(BODY_COUNT):
            await self._begun.acquire()


async def gathered_under_a_timeout() -> None:
    """End the tasks of a gather() by a timeout, and the loop at once after it."""
    bodies = Bodies()
    gathered = asyncio.gather(*bodies.make())
    await bodies.wait()
    with suppress(TimeoutError):
        await asyncio.wait_for(gathered, 0.01)


async def in_anyio_scope() -> None:
    """Cancel tasks of anyio, which cancels them again at each await."""
    import anyio

    bodies = Bodies()
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            for each in bodies.make():
                group.start_soon(asyncio.wait_for, each, None)
            await bodies.wait()
            scope.cancel()


async def cancelled_often() -> None:
    """Cancel a task again and again while it ends."""
    bodies = Bodies()
    tasks = [asyncio.create_task(each) for each in bodies.make()]
    await bodies.wait()
    for _ in range(5):
        for task in tasks:
            task.cancel()
        await asyncio.sleep(0)


async def left_in_the_background() -> None:
    """Let the loop end tasks that nobody awaits."""
    bodies = Bodies()
    left_open.extend(asyncio.create_task(each) for each in bodies.make())
    await bodies.wait()


async def interrupted() -> None:
    """Press Ctrl-C while tasks run."""
    bodies = Bodies()
    gathered = asyncio.gather(*bodies.make())
    await bodies.wait()
    os.kill(os.getpid(), signal.SIGINT)
    await gathered


def by_async_to_sync() -> None:
    """End the loop of sync code that calls async code."""
    from asgiref.sync import async_to_sync

    async_to_sync(gathered_under_a_timeout)()


def never_left() -> None:
    """Keep locks in a module, of which nobody leaves the bodies."""
    stack = ExitStack()
    for number, keep_alive in enumerate([True, False]):
        stack.enter_context(
            hold(f"job {number}", lock_at_most_for="1h", keep_alive=keep_alive)
        )
    left_open.append(stack)


def kept_in_a_generator() -> None:
    """Keep a generator in a module that is inside a lock."""

    def generate() -> Iterator[None]:
        with hold("job 0", lock_at_most_for="1h", keep_alive=True):
            yield

    generator = generate()
    next(generator)
    left_open.append(generator)


def left_by_a_thread() -> None:
    """End a thread that has not left its lock."""
    thread = threading.Thread(target=never_left)
    thread.start()
    thread.join()


def by_os_exit() -> None:
    """End as a worker of a queue does, after the one call that it needs."""
    never_left()
    shut_down()
    os._exit(0)


def in_a_daemon_thread() -> None:
    """End while a daemon thread is inside its lock."""
    inside = threading.Event()

    def run() -> None:
        with hold("job 0", lock_at_most_for="1h", keep_alive=True):
            inside.set()
            threading.Event().wait()

    threading.Thread(target=run, daemon=True).start()
    assert inside.wait(60)


def without_its_store() -> None:
    """End a job whose store was stopped while it ran."""

    @scheduler_lock("job 0", lock_at_most_for="1h")
    def run() -> None:
        print("inside", flush=True)
        sys.stdin.readline()

    run()


def main(way: str, databases: str, timeout: str) -> None:
    """Connect to these databases, and end in this way."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.support.lean_settings"
    django.setup()
    from django.conf import settings

    from tests.support.processes import use

    logging.basicConfig(level=logging.WARNING)
    settings.SHEDLOCK_EXIT_TIMEOUT = timeout
    use(json.loads(databases))
    function: Callable[[], Any] = globals()[way]
    if inspect.iscoroutinefunction(function):
        asyncio.run(function())
    else:
        function()


if __name__ == "__main__":
    main(*sys.argv[1:])
