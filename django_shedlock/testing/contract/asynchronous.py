"""Coroutines use the same locks, through a thread."""

import asyncio
import random
from datetime import UTC, datetime, timedelta

import pytest
from asgiref.sync import async_to_sync, sync_to_async

from django_shedlock.exceptions import LockLost, LockNotAcquired
from django_shedlock.execution.executor import aexecute, aexecute_request, ahold
from django_shedlock.locks.configuration import LockConfiguration, LockRequest
from django_shedlock.locks.status import LockHolder
from django_shedlock.providers.base import LockProvider
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import Start
from django_shedlock.testing.contract.harness import (
    HOUR,
    MINUTE,
    Contract,
    configure,
    configured,
    force_release,
    is_held,
    status_of,
    take_from,
    try_from,
)

EVERY_HOUR = Schedule("0 * * * *", "UTC")


async def succeed() -> None:
    """Be a job that succeeds at once."""


class Ticks:
    """
    Coroutines of a scheduled job, tick by tick, and what the record has to say.

    Queues' messages for past ticks start them, so that no test waits for a tick.
    """

    def __init__(self, provider: LockProvider):
        self.provider = provider
        self.random: random.Random = random.Random(1)
        today = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
        self.tick: datetime = today - 10 * 24 * HOUR
        self.begun: datetime | None = None
        self.due_at: datetime | None = None

    @property
    def start(self) -> Start:
        """How a message starts the job that was sent a little after the tick."""
        return Start(asked_at=self.tick + 10 * MINUTE)

    async def execute(self) -> bool:
        """Run the job for the tick, or skip it; return whether it ran."""
        request = LockRequest("job", schedule=EVERY_HOUR, start=self.start)
        is_due = self.begun is None or self.begun < self.tick
        ends = self.random.choice([None, LookupError, asyncio.CancelledError])
        ran = []

        async def work() -> None:
            ran.append(True)
            self.begun = self.tick
            self.due_at = min(self.due_at or self.tick, self.tick)
            await self.compare()
            await self.try_again()
            if ends is not None:
                raise ends

        try:
            result = await aexecute_request(work, request)
        except (LookupError, asyncio.CancelledError):
            assert ran
        else:
            assert result.was_executed == is_due == bool(ran)
            if ran:
                self.due_at = self.tick + HOUR
        await self.compare()
        return bool(ran)

    async def try_again(self) -> None:
        """Be skipped while the job runs, for its tick and for the next one."""
        for later in (timedelta(0), HOUR):
            start = Start(asked_at=self.tick + later + 10 * MINUTE)
            wanted = LockConfiguration("job", MINUTE, schedule=EVERY_HOUR, start=start)
            holder = await sync_to_async(try_from)(self.provider, wanted)
            assert isinstance(holder, LockHolder)
        await self.compare()

    async def compare(self) -> None:
        """Fail unless the record has the tick, and the first one without success."""
        status = await sync_to_async(status_of)(self.provider)
        ticks = status.schedule_state
        assert (ticks.tick, ticks.due_at) == (self.begun, self.due_at)


class AsyncContract(Contract):
    """``ahold()``, ``aextend()`` and ``arelease()`` do what their sync twins do."""

    def test_async_pair(self, provider: LockProvider) -> None:
        """A coroutine excludes all others until its body ends."""

        async def work() -> None:
            async with ahold("job") as lock:
                holder = await sync_to_async(try_from)(provider, configure())
                assert isinstance(holder, LockHolder)
                assert holder.locked_by == lock.locked_by
            assert not await sync_to_async(is_held)(provider, configure())

        with configured(provider):
            async_to_sync(work)()

    def test_async_refusal(self, provider: LockProvider) -> None:
        """A coroutine is refused while somebody else has the lock, and runs later."""

        async def work() -> None:
            other = await sync_to_async(take_from)(provider, configure())
            assert not (await aexecute(succeed, "job")).was_executed
            with pytest.raises(LockNotAcquired, match=other.locked_by):
                async with ahold("job"):
                    pytest.fail("its body runs, and another holds the lock")
            assert await other.arelease()
            assert not await other.arelease()
            assert (await aexecute(succeed, "job")).was_executed

        with configured(provider):
            async_to_sync(work)()

    def test_async_release_keeps_at_least(self, provider: LockProvider) -> None:
        """A lock that a coroutine releases stays held for ``lock_at_least_for``."""
        with configured(provider):
            async_to_sync(aexecute)(succeed, "job", lock_at_least_for=MINUTE)
        assert is_held(provider, configure())

    def test_async_extend(self, provider: LockProvider) -> None:
        """A coroutine extends its lock, unless an operator has released it."""

        async def work() -> None:
            lock = await sync_to_async(take_from)(provider, configure())
            await lock.aextend("1h")
            assert lock.remaining() > 30 * MINUTE
            status = await sync_to_async(provider.status)("job")
            assert status is not None
            assert status.remaining > 30 * MINUTE
            assert await sync_to_async(force_release)(provider)
            with pytest.raises(LockLost, match="'job'"):
                await lock.aextend("1h")
            assert lock.is_lost
            assert not await lock.arelease()

        async_to_sync(work)()

    def test_late_task_spares_the_next_holder(self, provider: LockProvider) -> None:
        """A coroutine whose lease ended leaves the next holder's lock alone."""
        late = take_from(provider, configure(lock_at_most_for=self.short))
        self.outlast(late)
        take_from(provider, configure())
        with pytest.raises(LockLost, match="'job'"):
            async_to_sync(late.aextend)(2 * MINUTE)
        assert not async_to_sync(late.arelease)()
        assert is_held(provider, configure())

    def test_async_ticks(self, provider: LockProvider) -> None:
        """Each tick runs once; the record notes its success, failure, or skip."""
        if not provider.keeps_ticks:
            return
        ticks = Ticks(provider)

        async def work() -> None:
            for _ in range(30):
                await ticks.execute()
                assert not await ticks.execute()
                ticks.tick += ticks.random.choice([0, 1, 1, 3]) * HOUR

        with configured(provider):
            async_to_sync(work)()
