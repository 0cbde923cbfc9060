"""Locks in a table of the project's database: the default provider."""

from django_shedlock.providers.database.provider import DatabaseLockProvider

__all__ = ["DatabaseLockProvider"]
