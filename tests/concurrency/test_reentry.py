"""Bodies that leave a task behind, which keeps their lock, on real servers."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from datetime import datetime
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async

from django_shedlock import ahold, current_lock, execute, hold, scheduler_lock
from django_shedlock.models import LockRecord, LockRun
from tests.support.leases import beat_now
from tests.support.processes import Parent, worker
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.servers_only, pytest.mark.django_db(transaction=True)]

OPTIONS: dict[str, Any] = {"lock_at_most_for": "10m", "keep_alive": True}
"""A beat is told when to come, so that nobody waits for it."""
Stay = Callable[[], Awaitable[None]]


class Failed(Exception):
    """What a body ends with."""


@scheduler_lock("job", **OPTIONS)
async def decorated(stay: Stay) -> None:
    await stay()


async def nested(stay: Stay) -> None:
    async with ahold("job"):
        await decorated(stay)


async def synchronous(stay: Stay) -> None:
    @scheduler_lock("job", **OPTIONS)
    def job() -> None:
        async_to_sync(stay)()

    await sync_to_async(job, thread_sensitive=False)()


async def in_the_loop(stay: Stay) -> None:
    with hold("job"):
        await stay()


async def failing(stay: Stay) -> None:
    async with ahold("job"):
        await stay()
        raise Failed


async def cancelled(stay: Stay) -> None:
    async with ahold("job"):
        await stay()
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)


async def two(stay: Stay) -> None:
    """Two parts, in threads of their own, that leave at once."""
    both = asyncio.Barrier(2)

    async def stay_together() -> None:
        await both.wait()
        await stay()

    await asyncio.gather(synchronous(stay_together), synchronous(both.wait))


PARTS = [decorated, nested, synchronous, in_the_loop, failing, cancelled, two]


def leave_behind(
    parent: Parent, part: Callable[[Stay], Awaitable[None]], fails: bool
) -> None:
    """Run a body that ends while its task is still inside."""

    async def main() -> None:
        inside = asyncio.Event()

        async def stay() -> None:
            lock = current_lock()
            loop.call_soon_threadsafe(inside.set)
            for _ in range(2):
                await asyncio.to_thread(parent.wait)
                beat_now(lock)
            await asyncio.to_thread(parent.wait)

        async def body() -> asyncio.Task[None]:
            async with ahold("job", **OPTIONS):
                task = asyncio.create_task(in_a_task())
                tasks.append(task)
                await inside.wait()
                if fails:
                    raise Failed
                return task

        async def in_a_task() -> None:
            await part(stay)

        loop = asyncio.get_running_loop()
        tasks: list[asyncio.Task[None]] = []
        with suppress(Failed):
            await body()
        parent.say("the body has ended")
        with suppress(Failed, asyncio.CancelledError):
            await tasks[0]

    asyncio.run(main())


def runs_here() -> bool:
    return execute(list, "job").was_executed


def lock_until() -> datetime:
    return LockRecord.objects.get().lock_until


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("part", PARTS)
def test_task_that_outlives_its_body_keeps_other_processes_out(
    part: Any, *, fails: bool
) -> None:
    """A task that outlives its body keeps the lock until the task ends."""
    with worker(leave_behind, part, fails) as holder:
        assert holder.heard() == "the body has ended"
        for _ in range(2):
            assert not runs_here()
            before = lock_until()
            holder.send()
            wait_for(lambda before=before: lock_until() > before)
        assert not runs_here()
        record = LockRecord.objects.get()
        assert record.open_run == record.locked_by
        holder.send()
        holder.result()
    assert runs_here()
    ended = LockRun.objects.get(locked_by=record.locked_by)
    is_good = not fails and part not in (failing, cancelled)
    assert ended.outcome == ("succeeded" if is_good else "failed")


def close_loop(parent: Parent, has_outer: bool) -> None:
    """Close an event loop under a body, inside one of this thread or not."""
    locks = []

    async def stay() -> None:
        async with ahold("job", **OPTIONS) as lock:
            locks.append(lock)
            await asyncio.Event().wait()

    async def wait_until_inside() -> None:
        while not locks:
            await asyncio.sleep(0.01)

    with hold("job", **OPTIONS) if has_outer else nullcontext():
        loop = asyncio.new_event_loop()
        task = loop.create_task(stay())
        loop.run_until_complete(wait_until_inside())
        loop.close()
    parent.say("closed")
    parent.wait()
    if not has_outer:  # else it has no beats any more
        beat_now(locks[0])
    parent.wait()
    del task, loop
    gc.collect()
    parent.say("collected")
    parent.wait()


@pytest.mark.parametrize("has_outer", [False, True])
def test_closed_loop_keeps_no_lock(*, has_outer: bool) -> None:
    """A body whose event loop was closed keeps no other process out."""
    with worker(close_loop, has_outer) as holder:
        assert holder.heard() == "closed"
        before = lock_until()
        holder.send()
        wait_for(lambda: has_outer or lock_until() != before)
        assert runs_here()
        # The row of the late release may come after that of the run here.
        wait_for(lambda: LockRun.objects.count() == 2)
        outcomes = sorted(LockRun.objects.values_list("outcome", flat=True))
        assert outcomes == ["succeeded" if has_outer else "failed", "succeeded"]
        holder.send()
        assert holder.heard() == "collected"
        assert runs_here()
        holder.send()
        holder.result()
