"""Real processes whose schedulers start one job, each by its own clock."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from multiprocessing.synchronize import Barrier
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings

from django_shedlock import current_lock
from django_shedlock.execution.executor import execute_request
from django_shedlock.locks.configuration import make_request
from django_shedlock.models import LockRecord
from django_shedlock.sql.fields import DatabaseNow
from tests.models import Body
from tests.support.clocks import store_clock
from tests.support.history import Acquisition, recorded, violations
from tests.support.processes import Parent, Worker, race, workers

pytestmark = pytest.mark.django_db(transaction=True)

QUARTER = timedelta(minutes=15)
FIRST = datetime(2026, 3, 8, 7, tzinfo=UTC)
TICKS = [FIRST + turn * QUARTER for turn in range(200)]
"""They go past a change to summer time, at 8 o'clock."""
REQUEST = make_request("job", {"lock_at_most_for": "1m", "schedule": "*/15 * * * *"})
without_history = override_settings(SHEDLOCK_HISTORY=False)
"""The table of bodies tells what was run."""


def host(parent: Parent) -> list[Acquisition]:
    """Start the job whenever the test says, at the store's time that it says."""
    history: list[Acquisition] = []
    while (moment := parent.wait()) is not None:
        parent.say(run(moment, history))
    return history


def run(moment: datetime, history: list[Acquisition]) -> bool:
    """Start the job at this time of the store; return whether its body ran."""
    asked = time.monotonic()

    def write_body() -> None:
        with recorded(history, current_lock(), asked):
            token = current_lock().fencing_token
            Body.objects.create(
                name="job", token=token, worker="any", begun_at=DatabaseNow()
            )

    with store_clock(moment), without_history:
        return execute_request(write_body, REQUEST).was_executed


def fire(host: Worker, moment: datetime) -> Any:
    host.send(moment)
    return host.heard()


def end(hosts: Iterable[Worker]) -> None:
    """Let the hosts end, and check what all of them ran."""
    history: list[Acquisition] = []
    for started in hosts:
        started.send(None)
        history += started.result()
    assert [*violations(history)] == []


def ticks_of_bodies() -> list[datetime]:
    begun = Body.objects.order_by("begun_at").values_list("begun_at", flat=True)
    halfway = QUARTER / 2
    return [
        FIRST + ((moment - FIRST + halfway) // QUARTER) * QUARTER for moment in begun
    ]


def test_two_hosts_with_skew_run_each_tick_once() -> None:
    """Hosts whose clocks are up to a minute ahead or behind run each tick once."""
    chance = random.Random(1)
    ticks = TICKS if connection.vendor == "sqlite" else TICKS[:50]
    with workers(2, host) as hosts:
        for tick in ticks:
            ahead = {each: timedelta(seconds=chance.uniform(-59, 59)) for each in hosts}
            # A host that is ahead starts before the store's tick.
            for each in sorted(hosts, key=ahead.__getitem__, reverse=True):
                fire(each, tick - ahead[each])
        end(hosts)
    assert ticks_of_bodies() == ticks


def test_two_hosts_20_seconds_apart_run_each_tick_once() -> None:
    """A short job that is over when the second host starts does not run again."""
    with workers(2, host) as (early, late):
        for tick in TICKS[:30]:
            assert fire(early, tick)
            assert not fire(late, tick + timedelta(seconds=20))
        end([early, late])
    assert ticks_of_bodies() == TICKS[:30]
    assert LockRecord.objects.filter(tick=TICKS[29], due_at=TICKS[30]).exists()


def at_once(parent: Parent, barrier: Barrier) -> list[Acquisition]:
    history: list[Acquisition] = []
    for tick in TICKS[:15]:
        barrier.wait()
        run(tick, history)
    return history


def test_processes_at_the_same_instant_run_each_tick_once() -> None:
    """Eight processes that start at one moment run each tick once, also the first."""
    history = [one for of_one in race(8, at_once) for one in of_one]
    assert ticks_of_bodies() == TICKS[:15]
    assert [*violations(history)] == []
