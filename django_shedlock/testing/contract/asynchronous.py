"""Coroutines use the same locks, through a thread."""

import pytest
from asgiref.sync import async_to_sync, sync_to_async

from django_shedlock.exceptions import LockLost, LockNotAcquired
from django_shedlock.execution.executor import aexecute, ahold
from django_shedlock.locks.status import LockHolder
from django_shedlock.providers.base import LockProvider
from django_shedlock.testing.contract.harness import (
    MINUTE,
    Contract,
    configure,
    configured,
    force_release,
    is_held,
    take_from,
    try_from,
)


async def succeed() -> None:
    """Be a job that succeeds at once."""


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
