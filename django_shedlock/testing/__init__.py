"""Helpers for a project's own tests; ``fixtures`` has them for pytest."""

from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.test import SimpleTestCase, override_settings
from django.test.utils import TestContextDecorator

from django_shedlock.locks.configuration import ZERO, LockConfiguration, full_name
from django_shedlock.locks.lock import Lock
from django_shedlock.providers import get_provider, provider_instances, use_instances
from django_shedlock.providers.base import LockProvider
from django_shedlock.testing.skips import assert_skips as assert_skips
from django_shedlock.testing.times import reopen_tick
from django_shedlock.testing.times import run_as_if_at as run_as_if_at

if TYPE_CHECKING:
    from django_shedlock.testing.contract import (
        LockProviderContract as LockProviderContract,
    )

C = TypeVar("C", bound=Callable[..., Any])

MEMORY_PROVIDERS = {
    "default": {"BACKEND": "django_shedlock.testing.times.OneClockProvider"}
}


def unlocked() -> override_settings:
    """
    Run every job without a lock, however many run at once.

    Use it as a context manager, or to decorate test functions, also async ones, and
    ``SimpleTestCase`` classes.
    """
    return override_settings(SHEDLOCK_ENABLED=False)


def locked_in_memory() -> override_settings:
    """
    Keep the locks in memory, so that a test with locks needs no database.

    Use it as a context manager, or to decorate test functions, also async ones, and
    ``SimpleTestCase`` classes. Each test of a class begins without locks. So does each
    inner ``locked_in_memory()``; the locks of the outer one stay as they were.

    Leases, ``lock_at_least_for`` and ticks all use the wall clock, so freezegun,
    time-machine and ``run_as_if_at()`` move all of them.
    """
    return LockedInMemory()


class LockedInMemory(override_settings):
    """See locked_in_memory()."""

    def __init__(self) -> None:
        super().__init__(SHEDLOCK_PROVIDERS=MEMORY_PROVIDERS)
        self._outer: dict[str, LockProvider] = {}

    def enable(self) -> None:
        """Begin without locks."""
        self._outer = provider_instances()
        super().enable()

    def disable(self) -> None:
        """Forget the locks, and continue with those of before."""
        super().disable()
        use_instances(self._outer)

    def decorate_class(self, cls: type[SimpleTestCase]) -> type[SimpleTestCase]:
        """Let each test, and the set-up of the class, begin without locks."""
        super().decorate_class(cls)
        return TestContextDecorator.decorate_class(LockedInMemory(), cls)


def held_elsewhere(name: str, *, provider: str = "default") -> "HeldElsewhere":
    """
    Let another worker hold the lock, so that the job under test is skipped.

    Use it with ``with`` or ``async with``, or to decorate test functions, also async
    ones, and ``SimpleTestCase`` classes. ``name`` is the job's, without the namespace.
    ``provider`` is the alias of the lock's provider. Raises ``AssertionError`` if the
    lock is held already.
    """
    return HeldElsewhere(name, provider)


class HeldElsewhere(TestContextDecorator):
    """See held_elsewhere()."""

    def __init__(self, name: str, provider: str):
        super().__init__()
        self._name = name
        self._provider = provider
        self._locks: list[Lock] = []

    def enable(self) -> None:
        """Acquire the lock."""
        configuration = LockConfiguration(full_name(self._name), timedelta(hours=1))
        provider = get_provider(self._provider)
        lock = Lock(provider, configuration)
        if (holder := provider.acquire(lock)) is not None:
            raise AssertionError(f"Lock {self._name!r} is held already, by {holder}.")
        self._locks.append(lock)

    def disable(self) -> None:
        """Release the lock where it was acquired, whatever the settings are now."""
        lock = self._locks.pop()
        lock.provider.release(lock)

    async def __aenter__(self) -> None:
        await sync_to_async(self.enable)()

    async def __aexit__(self, *raised: object) -> None:
        await sync_to_async(self.disable)()

    def decorate_callable(self, func: C) -> C:
        """Let the lock be held while the function, or the coroutine, runs."""
        if not iscoroutinefunction(func):
            return super().decorate_callable(func)

        @wraps(func)
        async def inner(*args: Any, **kwargs: Any) -> Any:
            async with self:
                return await func(*args, **kwargs)

        return cast(C, inner)


def is_held(name: str, *, provider: str = "default") -> bool:
    """
    Return whether the lock is held, even if only ``lock_at_least_for`` keeps it.

    ``name`` is the job's, without the namespace.
    """
    status = get_provider(provider).status(full_name(name))
    return status is not None and status.state.is_held


async def ais_held(name: str, *, provider: str = "default") -> bool:
    """See is_held()."""
    return await sync_to_async(is_held)(name, provider=provider)


def force_release(name: str, *, provider: str = "default") -> bool:
    """
    Release the lock, whoever holds it; return whether it was held.

    This also reopens a tick that was run, if the lock is in memory, in a database, or
    in another store that keeps an ``Entry``.
    """
    store = get_provider(provider)
    status = store.status(full_name(name))
    if status is None:
        return False
    was_held = store.replace(status, ZERO)
    reopen_tick(store, status.name)
    return was_held


async def aforce_release(name: str, *, provider: str = "default") -> bool:
    """See force_release()."""
    return await sync_to_async(force_release)(name, provider=provider)


def __getattr__(name: str) -> "type[LockProviderContract]":
    # The other helpers need neither pytest nor Hypothesis.
    if name != "LockProviderContract":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from django_shedlock.testing.contract import LockProviderContract

    return LockProviderContract
