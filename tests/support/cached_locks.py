"""Locks in a cache, as tests make them and find them."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.test import override_settings

from django_shedlock.locks.lock import Lock
from django_shedlock.providers.cache import CacheLockProvider


class WithCaches(CacheLockProvider):
    """Brings its ``CACHES`` along, also into a process that a test starts."""

    def __init__(self, alias: str, *, caches: dict[str, Any], **options: Any):
        if caches != settings.CACHES:
            override_settings(CACHES=caches).enable()
        super().__init__(alias, **options)


def entry_of(provider: CacheLockProvider, name: str = "job") -> Any:
    """Return what the cache keeps of a lock; ``None`` if that is nothing."""
    with provider._using("read", name) as (store, key):
        return store.get(key)


def end_lease(lock: Lock) -> None:
    """Let the lease be over in the cache."""
    provider: Any = lock.provider
    with provider._using("read", lock.name) as (store, key):
        store.delete(key, store.get(key))
