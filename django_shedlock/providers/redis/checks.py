"""What ``manage.py check --database`` says of a Redis server."""

from __future__ import annotations

from django.core.checks import CheckMessage, Warning

from django_shedlock.exceptions import described
from django_shedlock.providers.redis.clients import Clients

NO_EVICTION = "noeviction"


def check_server(alias: str, clients: Clients) -> list[CheckMessage]:
    """Return a warning if the server can't be asked, or deletes keys to make room."""
    try:
        memory = clients.client.info("memory")
    except Exception as error:  # redis-py may be missing, and then its errors, too
        return [_unreachable(alias, error)]
    policy = memory.get("maxmemory_policy", NO_EVICTION)
    if not memory.get("maxmemory") or policy == NO_EVICTION:
        return []
    return [
        Warning(
            f"The Redis server of SHEDLOCK_PROVIDERS[{alias!r}] deletes keys if it "
            f"needs room (maxmemory-policy {policy}). Locks may be among them.",
            hint=f"Set its maxmemory-policy to {NO_EVICTION}, or use another server.",
            id="shedlock.W016",
        )
    ]


def _unreachable(alias: str, error: Exception) -> CheckMessage:
    return Warning(
        f"The locks in Redis (provider {alias!r}) can't be read: {described(error)}",
        hint="No job with a lock runs while its store is unreachable.",
        id="shedlock.W005",
    )
