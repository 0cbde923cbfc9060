"""The locks of the calling code, and those of this process."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from asgiref.local import Local

from django_shedlock import conf
from django_shedlock.background import closing, outside_event_loop
from django_shedlock.durations import Duration
from django_shedlock.exceptions import LockLost, NoActiveLock, message_of
from django_shedlock.forking import renewed_in_child
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import is_success
from django_shedlock.mutexes import Mutex
from django_shedlock.signals import logger


class Body:
    """
    A body that may be inside a lock, of which there may be several at once.

    A task may outlive the body that started it. The lock is held until the last of
    them leaves it.
    """

    lock: Lock | None = None
    """The lock that it is or was inside."""
    loop: asyncio.AbstractEventLoop | None = None
    thread: threading.Thread | None = None
    """The thread that went into the lock."""

    @property
    def may_run(self) -> bool:
        """Whether another thread of this process may still run its code."""
        if self.loop is not None and self.loop.is_running():
            return True
        if not self.can_leave or self.thread is None:
            return False
        # Between two runs of a loop, its thread may be about to run it again.
        return self.thread is not threading.current_thread() and self.thread.is_alive()

    @property
    def can_leave(self) -> bool:
        """Whether it is not in a loop that was closed, where its code never goes on."""
        return self.loop is None or not self.loop.is_closed()

    def enter(self, lock: Lock) -> None:
        """Go into a lock that was acquired for this body."""
        with _held.mutex:
            self.lock, self.thread = lock, threading.current_thread()
            _held.insides[lock] = _Inside(self, {self})

    def reenter(self, provider: str, name: str) -> Lock | None:
        """Go into the lock of this name under which the calling code runs, if any."""
        locks: tuple[Lock, ...] = getattr(_held.here, "locks", ())
        for lock in locks:
            if (lock.provider.alias, lock.name) == (provider, name) and lock.is_active:
                with _held.mutex:  # else the last one could leave meanwhile
                    if lock in _held.insides:
                        self.lock, self.thread = lock, threading.current_thread()
                        _held.insides[lock].bodies.add(self)
                        return lock
        return None

    def leave(
        self, error: BaseException | None
    ) -> tuple[Lock | None, BaseException | None]:
        """
        Go out of the lock; return it if it has to be released, and what it failed with.

        That is so if nobody is inside any more. The run fails if the body that acquired
        the lock ended with an error, or one that outlived it. What an interrupt has
        stopped can be called again.
        """
        lock = self.lock
        if lock is None:
            return None, error
        with _held.mutex:
            inside = _held.insides.get(lock)
            if inside is None:
                return lock, error
            inside.bodies.discard(self)
            if inside.first not in inside.bodies and is_success(inside.failure):
                inside.failure = error
            if any(body.can_leave for body in inside.bodies):
                return None, error
            del _held.insides[lock]
            return lock, inside.failure


def was_deserted(lock: Lock) -> bool:
    """
    Return whether bodies are inside that can't leave any more, and no others.

    If so, forget them: the lock has to be released.
    """
    with _held.mutex:
        inside = _held.insides.get(lock)
        if inside is None or any(body.can_leave for body in inside.bodies):
            return False
        del _held.insides[lock]
        return True


def take_left_locks() -> list[Lock]:
    """
    Return the locks under which no other thread runs code, and forget their bodies.

    The calling thread must not run any more code under them either.
    """
    with _held.mutex:
        left = [
            lock
            for lock, inside in _held.insides.items()
            if lock.is_ours and not any(body.may_run for body in inside.bodies)
        ]
        for lock in left:
            del _held.insides[lock]
    return left


@dataclass
class _Inside:
    """The bodies that are inside a lock, and how the first of them failed."""

    first: Body
    bodies: set[Body]
    failure: BaseException | None = None


class _Held:
    # A forked child holds nothing, and may inherit a mutex that is locked for ever.
    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.mutex = Mutex()  # a signal's handler may hold a lock
        self.insides: dict[Lock, _Inside] = {}
        # Of a thread or task. Only asgiref takes it along to other threads: where a new
        # thread inherits its context, as in free-threaded builds, it is empty.
        self.here = Local()


_held = renewed_in_child(_Held())


def _locks_here() -> tuple[Lock, ...]:
    locks: tuple[Lock, ...] = getattr(_held.here, "locks", ())
    return locks


@contextmanager
def activated(lock: Lock) -> Iterator[None]:
    """Make ``lock`` the current one of this thread or task while the body runs."""
    # Without those that were left in another context, as by a dropped generator.
    _held.here.locks = (*(each for each in _locks_here() if each.is_ours), lock)
    try:
        yield
    finally:
        # Not what it was before: asyncio may exit this in another context.
        locks = _locks_here()
        if lock in locks:
            innermost = len(locks) - 1 - locks[::-1].index(lock)
            _held.here.locks = locks[:innermost] + locks[innermost + 1 :]


def current_lock() -> Lock:
    """
    Return the innermost lock under which the calling code runs.

    Raises ``NoActiveLock`` if there is none.
    """
    is_enabled = conf.ENABLED.value
    for lock in reversed(_locks_here()):
        if lock.is_ours and (lock in _held.insides or not is_enabled):
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
    if conf.ENABLED.value:
        current_lock().assert_locked()


def extend_active_lock(
    lock_at_most_for: Duration | None = None,
    lock_at_least_for: Duration | None = None,
) -> None:
    """
    Extend the lock under which the calling code runs; see ``Lock.extend()``.

    Raises ``NoActiveLock`` if there is none. With ``SHEDLOCK_ENABLED = False`` it
    does nothing.
    """
    if conf.ENABLED.value:
        current_lock().extend(lock_at_most_for, lock_at_least_for)


def locks_held() -> list[Lock]:
    """Return the locks that this process holds, in the order of their names."""
    # copy() is atomic, so other threads do not disturb it.
    held = (lock for lock in _held.insides.copy() if lock.is_active)
    return sorted(held, key=lambda lock: lock.name)


def release_all() -> list[Lock]:
    """
    Release every lock that this process holds; return those that still were its own.

    For shutdown hooks. It does not stop bodies that still run, and they lose their
    protection: call it when they have ended or are about to be killed. If a lock can't
    be released, that is logged, the others are released, and its lease ends by itself.

    A signal's handler must not call it, since it may have interrupted the very
    statement or mutex that a release needs: let the handler raise ``SystemExit``, so
    that the bodies end and release, or start a thread that calls this.
    """

    def release(lock: Lock) -> bool:
        lost = LockLost("released by release_all() before its job ended")
        try:
            return lock.release(lost)
        except (Exception, SystemExit) as error:  # the others must be released
            text = "Lock %r could not be released: %s"
            logger.error(text, lock.name, message_of(error))
            return False

    def release_each() -> list[Lock]:
        return [lock for lock in locks_held() if release(lock)]

    return outside_event_loop(release_each)


async def arelease_all() -> list[Lock]:
    """See release_all(). It does not wait for code that other coroutines run."""
    return await asyncio.to_thread(closing, release_all)
