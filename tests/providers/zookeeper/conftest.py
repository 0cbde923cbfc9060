"""The servers of these tests, and a provider."""

from tests.support.zookeeper_servers import locks, own_zookeeper, running_zookeeper

__all__ = ["locks", "own_zookeeper", "running_zookeeper"]
