"""The models of the test project."""

from tests.concurrency.models import Body, Counter, FencedWrite

__all__ = ["Body", "Counter", "FencedWrite"]
