"""A short form of each soak, and that each finds what is broken."""

from __future__ import annotations

import pytest

from benchmarks.soak import run as workers
from benchmarks.soak.beats import run as beats
from benchmarks.soak.enough import Enough, Found
from benchmarks.soak.servers import QUICK_LOCK_SERVERS
from tests.support.stores import chosen_store

pytestmark = pytest.mark.django_db(transaction=True)

SECONDS = 6
ENOUGH = {
    "bodies": 40,
    "fenced writes": 20,
    "workers killed": 2,
    "workers stopped": 2,
    "workers that ended in good order": 2,
}
FAULTS = ("server: ", "network: ")


@pytest.mark.parametrize(
    "store",
    [
        pytest.param(None, marks=pytest.mark.servers_only),
        *(pytest.param(store, marks=pytest.mark.once) for store in QUICK_LOCK_SERVERS),
    ],
)
def test_faults_of_workers_server_and_network(store: str | None) -> None:
    """No body overlaps another one, and what the library says of a loss is true."""
    enough = Enough(ENOUGH, *FAULTS, "elements added")
    plan = workers.Plan(
        SECONDS, 21, pace=0.25, store=store or chosen_store(), is_enough=enough
    )
    assert workers.soak(plan).violations == []


@pytest.mark.servers_only
def test_promoted_replica() -> None:
    """A fail-over to a replica that has each commit breaks no claim."""
    enough = Enough({**ENOUGH, "server: promote": 1}, *FAULTS)
    # With this seed, the first fault of the server is a fail-over.
    plan = workers.Plan(SECONDS, 1, pace=0.25, replica=True, is_enough=enough)
    assert workers.soak(plan).violations == []


@pytest.mark.servers_only
def test_faults_of_beats_hosts_and_store() -> None:
    """No rule is broken by beats that are killed, restarted and cut off."""
    enough = Enough({"ticks begun": 15}, "hosts: ", "store: ")
    plan = beats.Plan(0, seed=2, is_enough=enough)
    assert beats.soak(plan).violations == []


@pytest.mark.servers_only
@pytest.mark.parametrize(
    ("broken", "pace", "found"),
    [
        ("lease", 1, "before the end of"),
        ("shutdown", 0.25, "is held by a process that ended in good order"),
    ],
)
def test_broken_lock_is_found(broken: str, pace: float, found: str) -> None:
    """Each part that is taken out of the workers breaks a claim of its own."""
    is_found = Found(found)
    plan = workers.Plan(0, seed=1, pace=pace, broken=broken, is_enough=is_found)
    assert is_found(workers.soak(plan))


@pytest.mark.servers_only
def test_broken_beat_is_found() -> None:
    """The soak finds beats that begin the same tick again and again."""
    is_found = Found("once each tick: ")
    plan = beats.Plan(0, seed=2, pace=5, broken="tick", is_enough=is_found)
    assert is_found(beats.soak(plan))
