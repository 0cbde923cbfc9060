"""Two hosts whose clocks are two days apart, and a database that has its own clock."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta

import pytest
from django.db import connections

from tests.support.clocks import daily_far_from_now
from tests.support.jobs import make_late
from tests.support.skewed_host import SkewedHost

pytestmark = [pytest.mark.servers_only, pytest.mark.django_db(transaction=True)]

DAY = timedelta(days=1).total_seconds()
Hosts = list[SkewedHost]


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    """Start a host whose clock is a day ahead, and one whose clock is a day behind."""
    if not shutil.which("faketime"):
        pytest.skip("faketime is not installed")
    database = connections["default"].settings_dict["NAME"]
    schedule = daily_far_from_now("America/Chicago")
    with ExitStack() as ends:
        started = [SkewedHost(o, database, schedule) for o in ("+1d", "-1d")]
        for host, days in zip(started, (1, -1), strict=True):
            ends.callback(host.end)
            # It registers the job, which is not overdue.
            answer = host.ask("catch-up")
            assert abs(answer["clock"] - time.time() - days * DAY) < 600
            assert answer["ran"] == []
        yield started


def findings(host: SkewedHost) -> list[str]:
    _, printed, _ = host.ask("check --json")["printed"]
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
    """Both know since when the job is overdue, and that their clocks are wrong."""
    assert [findings(host) for host in hosts] == [["clock"]] * 2
    make_late("job", days=1)
    assert [findings(host) for host in hosts] == [["clock", "overdue"]] * 2
    order = [hosts[first], hosts[1 - first]]
    assert [len(host.ask("catch-up")["ran"]) for host in order] == [1, 0]
    assert [findings(host) for host in hosts] == [["clock"]] * 2
    assert [len(host.ask("catch-up")["ran"]) for host in order] == [0, 0]
