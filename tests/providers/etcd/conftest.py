"""The server of these tests, and a provider."""

from tests.support.etcd_servers import locks, running_etcd

__all__ = ["locks", "running_etcd"]
