"""The server of these tests, and a provider."""

from tests.support.zookeeper_fixtures import locks, running_zookeeper

__all__ = ["locks", "running_zookeeper"]
