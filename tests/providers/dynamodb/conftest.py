"""The server of these tests, and a provider."""

from tests.support.dynamodb_fixtures import dynamodb, locks

__all__ = ["dynamodb", "locks"]
