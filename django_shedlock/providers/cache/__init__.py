"""Locks in one of the project's caches."""

from django_shedlock.providers.cache.provider import CacheLockProvider

__all__ = ["CacheLockProvider"]
