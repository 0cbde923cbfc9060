"""The server of these tests."""

from tests.support.etcd_fixtures import running_etcd

__all__ = ["running_etcd"]
