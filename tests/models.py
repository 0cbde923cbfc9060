"""The models of the test project."""

from tests.concurrency.models import Counter

__all__ = ["Counter"]
