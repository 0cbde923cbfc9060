"""An event loop whose order of steps is chosen, and a store that counts releases."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any

from django_shedlock.locks.lock import Lock
from django_shedlock.providers.memory import MemoryLockProvider

LONGEST = 5000
"""Steps after which something goes round in circles."""


class ChosenLoop(asyncio.SelectorEventLoop):
    """
    Takes one step at a time, of those that are ready that which ``choose(count)`` says.

    Work for other threads is a step, too: nothing goes on beside the loop.
    """

    def __init__(self, choose: Callable[[int], int]):
        super().__init__()
        self._choose = choose
        self._steps = 0

    def _run_once(self) -> None:
        ready: Any = self._ready  # type: ignore[attr-defined]
        # One by one: another thread may add to it meanwhile.
        others = [ready.popleft() for _ in range(len(ready))]
        if others:
            self._steps += 1
            assert self._steps < LONGEST, "the schedule does not end"
            ready.append(others.pop(self._choose(len(others))))
        super()._run_once()  # type: ignore[misc]
        ready.extendleft(reversed(others))

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Call the function as a step of its own."""
        future = self.create_future()

        def call() -> None:
            if future.cancelled():
                return
            try:
                result = func(*args)
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        self.call_soon(call)
        return future


def run_scheduled(
    choose: Callable[[int], int], main: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    """Run the coroutine function in an order that is chosen."""
    loop = ChosenLoop(choose)
    try:
        loop.run_until_complete(main())
    finally:
        # After a failure: let every body leave.
        while tasks := asyncio.all_tasks(loop):
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.wait(tasks))
        loop.close()


class CountingProvider(MemoryLockProvider):
    """Counts how often each acquisition is released."""

    def __init__(self, alias: str, **options: Any):
        super().__init__(alias, **options)
        self.releases: Counter[str] = Counter()

    def release(self, lock: Lock, *, succeeded: bool = True) -> bool:
        self.releases[lock.locked_by] += 1
        return super().release(lock, succeeded=succeeded)
