"""Locks in Redis or Valkey, by the server's clock."""

from django_shedlock.providers.redis.provider import RedisLockProvider

__all__ = ["RedisLockProvider"]
