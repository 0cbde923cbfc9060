"""Helpers for a project's own tests; ``pytest_plugin`` has them as fixtures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.test import override_settings

from django_shedlock.locks.configuration import LockConfiguration, full_name
from django_shedlock.locks.states import LockHolder
from django_shedlock.providers import get_provider

MEMORY = {"default": {"BACKEND": "django_shedlock.providers.memory.MemoryLockProvider"}}


def unlocked() -> override_settings:
    """
    Run every job without a lock, however many run at once.

    Use it as a context manager, or to decorate test functions and ``SimpleTestCase``
    classes.
    """
    return override_settings(SHEDLOCK_ENABLED=False)


def locked_in_memory() -> override_settings:
    """
    Keep the locks in memory, so that a test with locks needs no database.

    Use it as a context manager, or to decorate test functions and ``SimpleTestCase``
    classes.
    """
    return override_settings(SHEDLOCK_PROVIDERS=MEMORY)


@contextmanager
def held_elsewhere(name: str, *, provider: str = "default") -> Iterator[None]:
    """
    Let another worker hold the lock, so that the job under test is skipped.

    ``name`` is the job's, without the namespace. Raises ``AssertionError`` if the lock
    is held already.
    """
    configuration = LockConfiguration(full_name(name), timedelta(hours=1))
    lock = get_provider(provider).acquire(configuration)
    if isinstance(lock, LockHolder):
        raise AssertionError(f"Lock {name!r} is held already, by {lock}.")
    try:
        yield
    finally:
        get_provider(provider).release(lock)


def is_held(name: str, *, provider: str = "default") -> bool:
    """Return whether the lock is held, even if only ``lock_at_least_for`` keeps it."""
    statuses = get_provider(provider).statuses(full_name(name))
    return any(status.state.is_held for status in statuses)


def free(name: str, *, provider: str = "default") -> bool:
    """Release the lock, whoever holds it; return whether it was held."""
    return get_provider(provider).force_release(full_name(name), running=True)
