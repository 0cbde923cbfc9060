"""The lock that a caller holds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import TYPE_CHECKING

from asgiref.sync import sync_to_async

from django_shedlock.configuration import (
    LockConfiguration,
    check_lease,
    parse_option,
)
from django_shedlock.durations import Duration
from django_shedlock.exceptions import LockLost, LockProviderError
from django_shedlock.identities import new_identity
from django_shedlock.losses import Loss
from django_shedlock.outcomes import is_success
from django_shedlock.signals import lock_extended, lock_lost, lock_released

if TYPE_CHECKING:
    from django_shedlock.providers.base import LockProvider


class Lock:
    """
    A lock that its caller holds, until it is released or its lease ends.

    Each acquisition has its own identity, ``locked_by``. All of the state is that of
    this one acquisition; a forked child inherits the object but never the lock.
    """

    def __init__(self, provider: LockProvider, configuration: LockConfiguration):
        self.provider = provider
        self.configuration = configuration
        self.locked_by = new_identity()
        self._loss = Loss()
        self.lost = self._loss.happened
        self._fencing_token: int | None = None
        self._released = False
        self._pid = os.getpid()
        self._deadline = (
            time.monotonic() + configuration.lock_at_most_for.total_seconds()
        )

    def __repr__(self) -> str:
        return f"<Lock {self.name!r} of {self.locked_by}>"

    @property
    def name(self) -> str:
        """The lock's full name, with the namespace."""
        return self.configuration.name

    @property
    def is_lost(self) -> bool:
        """Whether the lock was lost: its lease ended, or it was released or taken."""
        return self.lost.is_set() or (not self._released and not self.remaining())

    @property
    def is_active(self) -> bool:
        """Whether this process holds the lock as far as it can know."""
        return self.is_ours and not self.is_lost

    @property
    def is_ours(self) -> bool:
        """Whether this process took the lock, and did not give it back."""
        return not self._released and self._pid == os.getpid()

    def remaining(self) -> timedelta:
        """
        Return what is left of the lease, at least zero.

        It is counted by this process's monotonic clock from before the lock was
        asked for, so the store never ends the lease earlier.
        """
        return timedelta(seconds=max(0.0, self._deadline - time.monotonic()))

    def extend(self, lock_at_most_for: Duration | None = None) -> None:
        """
        Let the lease end ``lock_at_most_for`` from now, or later if it did already.

        Without an argument it is the configuration's. Raises ``LockLost`` if the lock
        is not ours any more, ``LockProviderError`` if the store failed.
        """
        self._extend(self._lease(lock_at_most_for), self.provider.extend)

    def keep_alive(self) -> None:
        """See extend(). For the heartbeat, which has to keep others alive, too."""
        self._extend(self.configuration.lock_at_most_for, self.provider.keep_alive)

    def _extend(
        self, lease: timedelta, extend: Callable[[Lock, timedelta], bool]
    ) -> None:
        asked = time.monotonic()
        if not self._is_held() or not extend(self, lease):
            self._declare_lost_unless_released()
            raise LockLost(
                f"Lock {self.name!r} can't be extended: {self.locked_by} does not hold "
                "it. Its lease ended, or it was released or taken."
            )
        self._deadline = max(self._deadline, asked + lease.total_seconds())
        lock_extended.send_robust(type(self.provider), lock=self)

    def _lease(self, lock_at_most_for: Duration | None) -> timedelta:
        if lock_at_most_for is None:
            return self.configuration.lock_at_most_for
        lease = parse_option(self.name, "lock_at_most_for", lock_at_most_for)
        check_lease(self.name, lease)
        return lease

    def release(self, exception: BaseException | None = None) -> bool:
        """
        Give the lock back; return whether it was still ours.

        ``lock_at_least_for`` is kept. ``exception`` is what ended the body, for the
        receivers of ``lock_released``. A second call does nothing. Raises
        ``LockProviderError`` if the store failed; the lease then ends by itself.
        """
        if not self.is_ours:
            return False
        was_lost = not self._is_held()
        self._released = True
        try:
            succeeded = is_success(exception) and not was_lost
            released = self.provider.release(self, succeeded=succeeded) and not was_lost
        except BaseException:
            self._released = False
            raise
        if not released:
            self.declare_lost()
        lock_released.send_robust(
            type(self.provider), lock=self, released=released, exception=exception
        )
        return released

    def fence(self) -> None:
        """
        Let the current transaction commit only if the lock is still ours.

        Call it inside ``atomic()`` on the lock's own database. From here to the end of
        the transaction nobody can take the lock: who tries, waits. Raises ``LockLost``
        if it is not ours any more, ``TransactionManagementError`` outside ``atomic()``,
        ``LockProviderError`` if the store failed or can't fence.
        """
        if not self.is_ours or not self.provider.fence(self):
            self._declare_lost_unless_released()
            raise LockLost(
                f"Lock {self.name!r} can't fence this transaction: {self.locked_by} "
                "does not hold it. Let the transaction roll back."
            )

    @property
    def fencing_token(self) -> int:
        """
        A number that grows by one with each acquisition of this name.

        Another system can refuse writes with a token lower than one it has seen. It is
        read at first use, with one statement. Raises ``LockLost`` if the record is not
        ours any more, ``LockProviderError`` if the store failed.
        """
        if self._fencing_token is None:
            self._fencing_token = self.provider.fencing_token(self)
        if self._fencing_token is None:
            self._declare_lost_unless_released()
            raise LockLost(f"Lock {self.name!r} was taken from {self.locked_by}.")
        return self._fencing_token

    def refresh(self) -> bool:
        """
        Ask the store what is left of the lease; return whether it is anything.

        An operator may have extended it, which this process can't know by itself.
        Raises ``LockProviderError`` if the store failed.
        """
        asked = time.monotonic()
        left = self.provider.remaining(self)
        self._deadline = max(self._deadline, asked + left.total_seconds())
        return self.is_active

    def _is_held(self) -> bool:
        if self.is_active or not self.is_ours or self.lost.is_set():
            return self.is_active
        try:
            return self.refresh()
        except LockProviderError:
            return False

    def declare_lost(self) -> None:
        """Set ``lost`` and tell the receivers of ``lock_lost``, once."""
        self._loss.tell(lambda: lock_lost.send_robust(type(self.provider), lock=self))

    def _declare_lost_unless_released(self) -> None:
        # A release of our own, perhaps in another thread, is no loss.
        if self.is_ours:
            self.declare_lost()

    def watched_by(self, watcher: Callable[[], None]) -> AbstractContextManager[None]:
        """Call ``watcher``, from whatever thread, if the lock is lost in the body."""
        return self._loss.watched_by(watcher)

    async def aextend(self, lock_at_most_for: Duration | None = None) -> None:
        """See extend()."""
        await sync_to_async(self.extend)(lock_at_most_for)

    async def arelease(self, exception: BaseException | None = None) -> bool:
        """See release()."""
        return await sync_to_async(self.release)(exception)

    async def afence(self) -> None:
        """See fence(). Django has no async transactions, so mind the thread."""
        await sync_to_async(self.fence)()
