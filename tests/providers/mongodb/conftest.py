"""The server of these tests, and a provider."""

from tests.support.mongodb_fixtures import locks, mongodb

__all__ = ["locks", "mongodb"]
