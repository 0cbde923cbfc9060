"""What needs a server of the tests' own: it hangs."""

from __future__ import annotations

import pytest

from django_shedlock.exceptions import LockProviderError
from tests.support.locks import MINUTE, configure, take
from tests.support.zookeeper_servers import ZooKeeperServer, locks_on


def test_server_that_hangs(own_zookeeper: ZooKeeperServer) -> None:
    """The error comes in time, says that nobody knows, and leaves the lock as it is."""
    with locks_on(own_zookeeper) as locks:
        lock = take(configure(), locks)
        locks._timeout = 0.3
        with own_zookeeper.paused():
            with pytest.raises(
                LockProviderError, match="'job' in ZooKeeper"
            ) as failure:
                locks.extend(lock, MINUTE)
        assert failure.value.is_uncertain
        locks._timeout = 240
        assert locks.release(lock)
