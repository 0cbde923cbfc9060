"""What a task of an event loop finds: the same locks, without blocking the loop."""

from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync, sync_to_async

from django_shedlock.exceptions import LockLost
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.states import LockHolder
from django_shedlock.providers.base import LockProvider
from django_shedlock.test.contract.harness import (
    MINUTE,
    Contract,
    configure,
    force_release,
    is_held,
    take_from,
)


async def atry_from(
    provider: LockProvider, lease: timedelta = MINUTE
) -> Lock | LockHolder:
    """Return the lock, or its holder."""
    lock = Lock(provider, configure(lock_at_most_for=lease))
    return await provider.aacquire(lock) or lock


class AsyncContract(Contract):
    """``aacquire()``, ``aextend()`` and ``arelease()`` do what their twins do."""

    def test_async_pair(self, provider: LockProvider) -> None:
        """A task acquires a lock, another is refused, and a release ends that."""

        async def work() -> None:
            lock = await atry_from(provider)
            assert isinstance(lock, Lock)
            holder = await atry_from(provider)
            assert isinstance(holder, LockHolder)
            assert await lock.arelease()
            assert not await lock.arelease()
            again = await atry_from(provider)
            assert isinstance(again, Lock)
            assert await again.arelease()

        async_to_sync(work)()

    def test_async_release_keeps_at_least(self, provider: LockProvider) -> None:
        """Released by a task the lock stays held for ``lock_at_least_for``."""

        async def work() -> None:
            lock = Lock(provider, configure(lock_at_least_for=MINUTE))
            assert await provider.aacquire(lock) is None
            assert await lock.arelease()

        async_to_sync(work)()
        assert is_held(provider, configure())

    def test_async_extend(self, provider: LockProvider) -> None:
        """A task extends its lock; one that was released by force is lost."""

        async def work() -> None:
            lock = await atry_from(provider)
            assert isinstance(lock, Lock)
            await lock.aextend("1h")
            assert lock.remaining() > 30 * MINUTE
            assert await sync_to_async(force_release)(provider)
            with pytest.raises(LockLost, match="'job'"):
                await lock.aextend("1h")
            assert lock.is_lost
            assert not await lock.arelease()

        async_to_sync(work)()

    def test_late_task_spares_the_next_holder(self, provider: LockProvider) -> None:
        """A task whose lease ended extends and releases nobody else's lock."""

        late = async_to_sync(atry_from)(provider, self.short)
        assert isinstance(late, Lock)
        self.outlast(late)
        take_from(provider, configure())
        assert not async_to_sync(provider.aextend)(late, 2 * MINUTE)
        assert not async_to_sync(provider.arelease)(late)
        assert is_held(provider, configure())

    def test_two_event_loops(self, provider: LockProvider) -> None:
        """One provider serves one loop after the other."""
        for _ in range(2):
            self.test_async_pair(provider)
