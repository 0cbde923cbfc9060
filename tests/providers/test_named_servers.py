"""Servers that the environment names, which other processes may use as well."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.etcd_servers import ETCD_VARIABLE, etcd_servers, prefixes
from tests.support.forks import forked
from tests.support.paths import ROOT
from tests.support.redis_servers import (
    REDIS_STORE_VARIABLE,
    ReachableRedis,
    redis_servers,
    url_for_process,
)
from tests.support.stores import REQUIRED, STORE_VARIABLE, STORES
from tests.support.zookeeper_servers import ZOOKEEPER_VARIABLE, paths, zookeeper_servers

TESTS = ("test_acquisition_opens_a_run", "test_success_is_accounted_for")


def run_contract(store: str, variable: str, place: str) -> None:
    """Run two tests of this store's contract, in a process that finds no programs."""
    contract = f"tests/providers/{store}/test_contract.py::TestServer"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    environment = {
        **os.environ,
        STORE_VARIABLE: STORES[0],
        "PYTEST_XDIST_WORKER": "gw0",
        "PATH": "",
        REQUIRED: "1",
        variable: place,
    }
    result = subprocess.run(
        [*command, *(f"{contract}::{test}" for test in TESTS)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{len(TESTS)} passed" in result.stdout


@pytest.mark.once
def test_redis_that_is_named(tmp_path: Path) -> None:
    """No program is needed, and only the database of the URL is emptied."""
    with redis_servers(tmp_path, 1) as [server]:
        before, named, after = (
            ReachableRedis(f"redis://127.0.0.1:{server.port}/{number}")
            for number in (4, 5, 6)
        )
        for each in (before, named, after):
            each.ask("SET", "theirs", "kept")
        run_contract("redis", REDIS_STORE_VARIABLE, named.url)
        assert named.ask("GET", "theirs") is None
        assert before.ask("GET", "theirs") == after.ask("GET", "theirs") == "kept"


@pytest.mark.once
def test_etcd_that_is_named(tmp_path: Path) -> None:
    """No program is needed."""
    with etcd_servers(tmp_path, 1) as [server]:
        run_contract("etcd", ETCD_VARIABLE, server.url)


@pytest.mark.once
def test_zookeeper_that_is_named(tmp_path: Path) -> None:
    """No program is needed."""
    with zookeeper_servers(tmp_path, 1) as [server]:
        run_contract("zookeeper", ZOOKEEPER_VARIABLE, server.address)


def test_each_process_has_a_redis_database() -> None:
    """Redis has 16: enough for five workers on each of three stores."""
    url = "redis://:secret@127.0.0.1:6379"
    found = {
        url_for_process(url, store, f"gw{worker}")
        for store in STORES
        for worker in range(5)
    }
    assert found == {f"{url}/{number}" for number in range(15)}
    assert url_for_process(f"{url}/7", STORES[1], "gw2") == f"{url}/14"


@pytest.mark.parametrize("names", [prefixes, paths], ids=["etcd", "ZooKeeper"])
def test_each_process_has_other_names(names: Iterator[str], tmp_path: Path) -> None:
    """What one of them writes into a server that they share is not the other's."""
    file = tmp_path / "name"
    assert forked(lambda: file.write_text(next(names)) > 0)
    assert file.read_text() != next(names)
