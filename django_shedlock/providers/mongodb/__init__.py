"""Locks in MongoDB, in the documents of ShedLock for Java."""

from django_shedlock.providers.mongodb.provider import MongoLockProvider

__all__ = ["MongoLockProvider"]
