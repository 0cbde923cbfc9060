"""Hosts whose clocks are wrong, and a database that has its own clock."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta

import pytest
from django.db import connections

from django_shedlock.providers import get_provider
from tests.concurrency.skewed_host import SkewedHost
from tests.support.clocks import daily_far_from_now
from tests.support.jobs import make_late
from tests.support.locks import MINUTE, status_of, take

pytestmark = [pytest.mark.servers_only, pytest.mark.django_db(transaction=True)]

DAY = timedelta(days=1).total_seconds()
Hosts = list[SkewedHost]


@contextmanager
def hosts_off_by(*days: int) -> Iterator[Hosts]:
    """Start hosts whose clocks are so many days ahead, or behind."""
    if not shutil.which("faketime"):
        pytest.skip("faketime is not installed")
    database = connections["default"].settings_dict["NAME"]
    schedule = daily_far_from_now("America/Chicago")
    with ExitStack() as ends:
        started = [SkewedHost(f"{each:+}d", database, schedule) for each in days]
        for host, ahead in zip(started, days, strict=True):
            ends.callback(host.end)
            # It registers the job, which is not overdue.
            answer = host.ask("catch-up")
            assert abs(answer["clock"] - time.time() - ahead * DAY) < 600
            assert answer["ran"] == []
        yield started


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    """Start a host whose clock is a day ahead, and one whose clock is a day behind."""
    with hosts_off_by(1, -1) as started:
        yield started


def findings(host: SkewedHost) -> list[str]:
    _, printed, _ = host.ask("check --json")["result"]
    return sorted(finding["kind"] for finding in json.loads(printed))


def test_hosts_run_each_tick_once_between_them(hosts: Hosts) -> None:
    """Whoever comes first runs it, and knows which tick it is by the store's clock."""
    ticks = set()
    for turn in range(4):
        first, second = hosts[:: -1 if turn % 2 else 1]
        make_late("job", days=1)  # the next tick, seen from then, is the last one
        [tick] = first.ask("execute")["ran"]
        assert second.ask("execute")["ran"] == []
        assert first.ask("execute")["ran"] == []
        ticks.add(tick)
        assert [findings(host) for host in hosts] == [["clock"]] * 2
    assert len(ticks) == 1


@pytest.mark.parametrize("first", [0, 1])
def test_hosts_catch_up_once_between_them(hosts: Hosts, first: int) -> None:
    """Two hosts with wrong clocks find the same overdue job, and one catches it up."""
    assert [findings(host) for host in hosts] == [["clock"]] * 2
    make_late("job", days=1)
    assert [findings(host) for host in hosts] == [["clock", "overdue"]] * 2
    order = [hosts[first], hosts[1 - first]]
    assert [len(host.ask("catch-up")["ran"]) for host in order] == [1, 0]
    assert [findings(host) for host in hosts] == [["clock"]] * 2
    assert [len(host.ask("catch-up")["ran"]) for host in order] == [0, 0]


@pytest.mark.parametrize("days", [1, -1])
def test_wrong_clock_of_a_worker_changes_nothing(days: int) -> None:
    """A worker a day early or late takes neither a held lock nor a longer lease."""
    with hosts_off_by(days) as [host]:
        lock = take()
        assert host.ask("take")["result"] == lock.locked_by
        assert lock.release()
        assert host.ask("take")["result"] == "this host"
    status = status_of(get_provider())
    assert timedelta(0) < status.remaining <= MINUTE
