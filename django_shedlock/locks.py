"""A lock's configuration, the lock a caller holds, and the active locks."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from asgiref.sync import sync_to_async

from django_shedlock import conf
from django_shedlock.durations import Duration, format_duration, parse_duration
from django_shedlock.exceptions import (
    InvalidLockConfiguration,
    LockLost,
    LockProviderError,
    NoActiveLock,
)
from django_shedlock.signals import lock_extended, lock_lost, lock_released

if TYPE_CHECKING:
    from django_shedlock.providers.base import LockProvider

LONGEST_NAME = 255
ZERO = timedelta(0)


@dataclass(frozen=True, init=False)
class LockConfiguration:
    """
    One lock's parameters: its full name, and any durations.

    Raises ``InvalidLockConfiguration`` if nobody could hold such a lock.
    """

    name: str
    lock_at_most_for: timedelta
    lock_at_least_for: timedelta

    def __init__(
        self, name: str, lock_at_most_for: Duration, lock_at_least_for: Duration = ZERO
    ):
        check_name(name)
        at_most = parse_option(name, "lock_at_most_for", lock_at_most_for)
        at_least = parse_option(name, "lock_at_least_for", lock_at_least_for)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "lock_at_most_for", at_most)
        object.__setattr__(self, "lock_at_least_for", at_least)
        self._check()

    @property
    def lease(self) -> str:
        """``lock_at_most_for`` as people write it."""
        return format_duration(self.lock_at_most_for)

    def _check(self) -> None:
        check_lease(self.name, self.lock_at_most_for)
        check_lock_at_least_for(self.name, self.lock_at_least_for)
        if self.lock_at_least_for > self.lock_at_most_for:
            raise InvalidLockConfiguration(
                f"Lock {self.name!r}: lock_at_least_for "
                f"({format_duration(self.lock_at_least_for)}) is longer than "
                f"lock_at_most_for ({format_duration(self.lock_at_most_for)}). "
                "Shorten the first, or lengthen the second."
            )


def check_name(name: object) -> None:
    """Raise ``InvalidLockConfiguration`` unless every store can keep ``name``."""
    if not isinstance(name, str):
        problem = f"is a {type(name).__name__}, not a str"
    elif not name.strip():
        problem = "is blank"
    elif name != name.strip():
        # MySQL and MariaDB ignore spaces at the end when they compare keys.
        problem = "begins or ends with white space"
    elif not name.isprintable():
        problem = "contains characters that cannot be printed"
    elif len(name) > LONGEST_NAME:
        problem = f"has {len(name)} characters; at most {LONGEST_NAME} are allowed"
    else:
        return
    raise InvalidLockConfiguration(f"Lock name {name!r} {problem}.")


def check_lease(name: str, lock_at_most_for: timedelta) -> None:
    """Raise ``InvalidLockConfiguration`` unless the lease is a positive time."""
    if lock_at_most_for <= ZERO:
        raise InvalidLockConfiguration(
            f"Lock {name!r}: lock_at_most_for ({format_duration(lock_at_most_for)}) "
            "must be positive: it ends the lease of a holder that died."
        )


def check_lock_at_least_for(name: str, lock_at_least_for: timedelta) -> None:
    """Raise ``InvalidLockConfiguration`` if ``lock_at_least_for`` is negative."""
    if lock_at_least_for < ZERO:
        raise InvalidLockConfiguration(
            f"Lock {name!r}: lock_at_least_for "
            f"({format_duration(lock_at_least_for)}) must not be negative."
        )


def parse_option(name: str, option: str, value: Duration) -> timedelta:
    """Return the duration, or raise ``InvalidLockConfiguration`` naming the lock."""
    try:
        return parse_duration(value)
    except ValueError as error:
        raise InvalidLockConfiguration(f"Lock {name!r}: {option}: {error}.") from error


@dataclass(frozen=True)
class LockHolder:
    """Who holds a lock that we did not get, and for how long by the store's clock."""

    locked_by: str
    remaining: timedelta = ZERO

    def __str__(self) -> str:
        return self.locked_by


CONTENDED = LockHolder("another worker that came first")
"""The holder, where the store refused us in a race and did not say who won."""


class Lock:
    """
    A lock that its caller holds, until it is released or its lease ends.

    Each acquisition has its own identity, ``locked_by``. All of the state is that of
    this one acquisition; a forked child inherits the object but never the lock.
    """

    def __init__(self, provider: LockProvider, configuration: LockConfiguration):
        self.provider = provider
        self.configuration = configuration
        self.locked_by = identity()
        self.lost = threading.Event()
        self._lost_once = threading.Lock()
        self._watchers: list[Callable[[], None]] = []
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
        return self._is_ours and not self.is_lost

    @property
    def _is_ours(self) -> bool:
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
            # A release in another thread is no loss.
            if self._is_ours:
                self.declare_lost()
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
        if not self._is_ours:
            return False
        was_lost = not self._is_held()
        self._released = True
        try:
            released = self.provider.release(self) and not was_lost
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
        if not self._is_ours or not self.provider.fence(self):
            self.declare_lost()
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
            self.declare_lost()
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
        if self.is_active or not self._is_ours or self.lost.is_set():
            return self.is_active
        try:
            return self.refresh()
        except LockProviderError:
            return False

    def declare_lost(self) -> None:
        """Set ``lost`` and tell the receivers of ``lock_lost``, once."""
        with self._lost_once:
            if self.lost.is_set():
                return
            self.lost.set()
        for watcher in self._watchers.copy():
            watcher()
        lock_lost.send_robust(type(self.provider), lock=self)

    @contextmanager
    def watched_by(self, watcher: Callable[[], None]) -> Iterator[None]:
        """Call ``watcher``, from whatever thread, if the lock is lost in the body."""
        self._watchers.append(watcher)
        try:
            yield
        finally:
            self._watchers.remove(watcher)

    async def aextend(self, lock_at_most_for: Duration | None = None) -> None:
        """See extend()."""
        await sync_to_async(self.extend)(lock_at_most_for)

    async def arelease(self, exception: BaseException | None = None) -> bool:
        """See release()."""
        return await sync_to_async(self.release)(exception)

    async def afence(self) -> None:
        """See fence(). Django has no async transactions, so mind the thread."""
        await sync_to_async(self.fence)()


def identity() -> str:
    """Return a new ``host:pid:random``, short enough for its column."""
    return f"{socket.gethostname()[:200]}:{os.getpid()}:{secrets.token_hex(8)}"


# Never reset by token: asyncio may leave a context manager in another context.
_active_locks: ContextVar[tuple[Lock, ...]] = ContextVar(
    "django_shedlock_active_locks", default=()
)


@contextmanager
def activated(lock: Lock) -> Iterator[None]:
    """Make ``lock`` the current one of this thread or task."""
    _active_locks.set((*_active_locks.get(), lock))
    try:
        yield
    finally:
        _active_locks.set(_without_last(lock, _active_locks.get()))


def _without_last(lock: Lock, locks: tuple[Lock, ...]) -> tuple[Lock, ...]:
    if lock not in locks:
        return locks
    index = len(locks) - 1 - locks[::-1].index(lock)
    return locks[:index] + locks[index + 1 :]


def find_active_lock(provider: str, name: str) -> Lock | None:
    """Return the lock of this name that the calling code holds already, if any."""
    for lock in _active_locks.get():
        if (lock.provider.alias, lock.name) == (provider, name) and lock.is_active:
            return lock
    return None


def current_lock() -> Lock:
    """
    Return the innermost lock under which the calling code runs.

    Raises ``NoActiveLock`` if there is none.
    """
    for lock in reversed(_active_locks.get()):
        if lock._is_ours:
            return lock
    raise NoActiveLock(
        "This code runs under no lock. Call it in a job with @scheduler_lock, or "
        "inside `with hold(...)`, in the same thread or task."
    )


def assert_locked() -> None:
    """
    Do nothing if the calling code runs under a lock that is still held.

    Raises ``NoActiveLock`` if there is no lock, ``LockLost`` if it was lost. With
    ``SHEDLOCK_ENABLED = False`` it raises nothing.
    """
    if not conf.ENABLED.value:
        return
    lock = current_lock()
    if lock.is_lost:
        raise LockLost(
            f"Lock {lock.name!r} is no longer held by {lock.locked_by}. "
            "Another worker may be running the same job."
        )


def extend_active_lock(lock_at_most_for: Duration | None = None) -> None:
    """
    Extend the lock under which the calling code runs; see ``Lock.extend()``.

    Raises ``NoActiveLock`` if there is none. With ``SHEDLOCK_ENABLED = False`` it
    does nothing.
    """
    if conf.ENABLED.value:
        current_lock().extend(lock_at_most_for)
