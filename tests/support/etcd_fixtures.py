"""
The etcd of the tests, and a provider with keys of its own.

It may be somebody else's: ``SHEDLOCK_TEST_ETCD_URL`` names it. Else each process of the
tests starts one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from typing import Any
from uuid import uuid4

import pytest

from django_shedlock.providers.etcd import EtcdLockProvider
from tests.support.etcd_servers import ReachableEtcd, etcd_servers

ETCD_VARIABLE = "SHEDLOCK_TEST_ETCD_URL"
PATIENT: dict[str, Any] = {"timeout": "4m"}
prefixes = (f"test {uuid4().hex}/" for _ in count())
"""Unique even across processes, which may share a server that outlives them."""


@pytest.fixture(scope="session")
def running_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReachableEtcd]:
    """Return the server that the environment names, or one of the tests' own."""
    if url := os.environ.get(ETCD_VARIABLE):
        yield ReachableEtcd(url)
        return
    with etcd_servers(tmp_path_factory.mktemp("etcd"), 1) as [server]:
        yield server


@pytest.fixture
def locks(running_etcd: ReachableEtcd) -> Iterator[EtcdLockProvider]:
    provider = EtcdLockProvider(
        "default", endpoints=[running_etcd.url], prefix=next(prefixes), **PATIENT
    )
    yield provider
    provider.members.clients.close()
