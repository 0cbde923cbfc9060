"""The soak's short form, and that it finds what is broken."""

from __future__ import annotations

import pytest

from tests.concurrency.soak import Plan, soak
from tests.support.soak.enough import Enough, Found, has_some
from tests.support.soak.servers import QUICK_LOCK_SERVERS
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
    store = store or chosen_store()
    enough = Enough(ENOUGH, *FAULTS)
    verdict = soak(Plan(SECONDS, seed=21, pace=0.25, store=store, is_enough=enough))
    assert verdict.violations == []
    assert has_some(verdict.counts, "elements added")


@pytest.mark.servers_only
def test_promoted_replica() -> None:
    """A fail-over to a replica that has each commit breaks no claim."""
    enough = Enough({**ENOUGH, "server: promote": 1}, *FAULTS)
    # With this seed, the first fault of the server is a fail-over.
    plan = Plan(SECONDS, seed=1, pace=0.25, replica=True, is_enough=enough)
    assert soak(plan).violations == []


@pytest.mark.servers_only
@pytest.mark.parametrize(
    ("broken", "pace", "found"),
    [
        ("lease", 1, "before the end of"),
        ("tick", 1, "by scheduler"),
        ("shutdown", 0.25, "is held by a process that ended in good order"),
    ],
)
def test_what_is_broken_is_found(broken: str, pace: float, found: str) -> None:
    """Each part that is taken out breaks a claim of its own."""
    is_found = Found(found)
    verdict = soak(Plan(0, seed=1, pace=pace, broken=broken, is_enough=is_found))
    assert is_found(verdict)
