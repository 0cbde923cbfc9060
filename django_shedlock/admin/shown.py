"""The provider whose locks the admin shows."""

from __future__ import annotations

from django_shedlock.providers import get_provider, provider_aliases
from django_shedlock.providers.database import DatabaseLockProvider


def shown_provider() -> DatabaseLockProvider:
    """Return the first provider of the settings that has a database."""
    for alias in provider_aliases():
        provider = get_provider(alias)
        if isinstance(provider, DatabaseLockProvider):
            return provider
    return DatabaseLockProvider("default")
